"""The same app without the library: Celery counts its `rate_limit` in every worker apart.

So two workers send 20 a second. The last tasks may trickle at 2 a second: each waiting task is a timer of its own,
and where ten come due together kombu's event loop sleeps up to a second before the next (`Hub.fire_timers`).
"""

from __future__ import annotations

import os

from celery import Celery

from examples.demo import sms

app = Celery("plain", broker=os.environ.get("DEMO_BROKER", "redis://localhost:6379/1"))


@app.task(rate_limit="10/s", ignore_result=True)
def send_sms(to: str, text: str) -> None:
    sms.send(to, text)
