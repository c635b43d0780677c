"""A hundred throttled tasks in one app (B49)."""

from __future__ import annotations

import os
import time

import redis
from celery import Celery

from throttle import throttled

app = Celery("many", broker=os.environ["PROJECT_BROKER"])
app.conf.update(throttle_redis_url=os.environ["PROJECT_REDIS"], broker_connection_retry_on_startup=True)
record = redis.Redis.from_url(os.environ["PROJECT_RECORD"])


def make(number: int):
    @throttled("1000/s")
    @app.task(name=f"many{number}", shared=False)
    def one(n):
        record.rpush("starts", f"{time.time():.6f} many{number} {n} - {os.getpid()} 0")

    return one


TASKS = [make(number) for number in range(100)]
