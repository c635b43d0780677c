"""The shortest use of the library: a Celery app whose workers together send 10 SMS a second, however many run."""

from __future__ import annotations

import os

from celery import Celery

from examples.demo import sms
from throttle import throttled

app = Celery("throttled", broker=os.environ.get("DEMO_BROKER", "redis://localhost:6379/0"))


@throttled("10/s", burst=5)
@app.task(ignore_result=True)
def send_sms(to: str, text: str) -> None:
    sms.send(to, text)
