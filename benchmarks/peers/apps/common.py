"""What all contenders' apps have in common: nothing but Celery's defaults."""

from __future__ import annotations

import os
from itertools import cycle
from typing import Any, NamedTuple

import redis
from celery import Celery

from benchmarks.peers import USERS
from benchmarks.provider import call

BUCKET, FIXED, LOG, COUNTERS = "token bucket, GCRA", "fixed window", "log of every unit", "two counters, weighted"
LIMITER = os.environ["BENCH_LIMITER"]


class Ask(NamedTuple):
    """One way to ask: its kind, how it is called, what a pass and a refusal tell, and one question of one user.

    The question answers with a tuple, of which the first says whether it may pass.
    """

    kind: str
    how: str
    tells: str
    question: Any


def in_turn(made):
    """What returns the next user's, every time: `made` of the user's number, once for each."""
    return cycle([made(n) for n in range(USERS)]).__next__


def make_app() -> Celery:
    app = Celery("contender", broker=os.environ["BENCH_BROKER"])
    app.conf.update(broker_connection_retry_on_startup=True, task_ignore_result=True)
    return app


def store() -> redis.Redis:
    return redis.Redis.from_url(LIMITER)


def started(task: str, what: object) -> None:
    """The body: one call of the provider."""
    call("start", task, what)
