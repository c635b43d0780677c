"""The smallest deployment: `celery -A workers.app worker`. Broker and Redis by environment."""

from __future__ import annotations

import os

from celery import Celery

from throttle import throttled

app = Celery("workers", broker=os.environ.get("CELERY_BROKER_URL", "redis://localhost:6379/0"))


@throttled("10/s")
@app.task
def send_sms(to: str, text: str) -> None:
    """Starts ten times a second at most, however many workers run."""
    print(f"to {to}: {text}", flush=True)
