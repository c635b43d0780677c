"""What all contenders' apps have in common: nothing but Celery's defaults."""

from __future__ import annotations

import os

import redis
from celery import Celery

from benchmarks.provider import call

LIMITER = os.environ["BENCH_LIMITER"]


def make_app() -> Celery:
    app = Celery("contender", broker=os.environ["BENCH_BROKER"])
    app.conf.update(broker_connection_retry_on_startup=True, task_ignore_result=True)
    return app


def store() -> redis.Redis:
    return redis.Redis.from_url(LIMITER)


def started(task: str, what: object) -> None:
    """The body: one call of the provider."""
    call("start", task, what)
