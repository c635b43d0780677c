"""The app that the tests' workers run; configured by environment, see `tests.fleet.Fleet`."""

from __future__ import annotations

import os
import time

import redis
from celery import Celery

from throttle import TokenBucket, throttled

app = Celery("project", broker=os.environ["PROJECT_BROKER"], backend=os.environ["PROJECT_RESULTS"])
app.conf.update(
    throttle_redis_url=os.environ["PROJECT_REDIS"],
    broker_connection_retry_on_startup=True,
    accept_content=["json", "pickle", "yaml", "msgpack"],
    broker_transport_options={"visibility_timeout": float(os.environ.get("PROJECT_VISIBILITY", "3600"))},
    task_acks_late=os.environ.get("PROJECT_LATE") == "1",
    worker_prefetch_multiplier=int(os.environ.get("PROJECT_PREFETCH", "4")),
    task_default_queue=os.environ.get("PROJECT_QUEUE", "celery"),
    throttle_enabled=os.environ.get("PROJECT_ENABLED") != "0",
)
RATE = os.environ.get("PROJECT_RATE", "20/s")
record = redis.Redis.from_url(os.environ["PROJECT_RECORD"])


def note(task: object, what: object) -> None:
    """Tell the downstream's record that this body starts now."""
    at, request = time.time(), task.request  # type: ignore[attr-defined]
    record.rpush("starts", f"{at:.6f} {task.name} {what} {request.id} {os.getpid()} {request.retries}")  # type: ignore[attr-defined]


@throttled(RATE, burst=int(os.environ.get("PROJECT_BURST", "1")))
@app.task(bind=True, name="send")
def send(self, n, *args, **kwargs):
    note(self, n)
    return n


@throttled(TokenBucket(RATE, key="{tenant}"))
@app.task(bind=True, name="export")
def export(self, tenant, n=0):
    note(self, f"{tenant}:{n}")
    return n


@app.task(bind=True, name="plain")
def plain(self, n):
    note(self, n)
    return n


@throttled(RATE)
@app.task(bind=True, name="slow")
def slow(self, n, seconds=1.0):
    note(self, n)
    time.sleep(seconds)
    return n


@throttled(0)
@app.task(bind=True, name="closed")
def closed(self, n=0):
    note(self, n)
    return n


@throttled(RATE)
@app.task(bind=True, name="flaky", max_retries=5)
def flaky(self, n):
    note(self, n)
    raise self.retry(countdown=0)
