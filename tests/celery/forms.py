"""Every way to write a throttled task (B79), in one app."""

from __future__ import annotations

import os
import time

import redis
from celery import Celery, Task, shared_task
from pydantic import BaseModel

from throttle import throttled

app = Celery("forms", broker=os.environ["PROJECT_BROKER"], backend=os.environ["PROJECT_RESULTS"])
app.conf.update(throttle_redis_url=os.environ["PROJECT_REDIS"], broker_connection_retry_on_startup=True)
record = redis.Redis.from_url(os.environ["PROJECT_RECORD"])
RATE = "1000/s"


def note(name: str, n: object) -> None:
    record.rpush("starts", f"{time.time():.6f} {name} {n} - {os.getpid()} 0")


@throttled(RATE)
@app.task(name="above", shared=False)
def above(n: int, times: int = 1) -> int:
    """Doc."""
    note("above", n)
    return n * times


@app.task(name="below", shared=False)
@throttled(RATE)
def below(n: int, times: int = 1) -> int:
    """Doc."""
    note("below", n)
    return n * times


@throttled(RATE)
@app.task(name="bound", bind=True, shared=False)
def bound(self, n: int, times: int = 1) -> int:
    """Doc."""
    assert self.request.id
    note("bound", n)
    return n * times


@throttled(RATE)
@shared_task(name="shared_above")
def shared_above(n: int, times: int = 1) -> int:
    """Doc."""
    note("shared_above", n)
    return n * times


@shared_task(name="shared_below", bind=True)
@throttled(RATE)
def shared_below(self, n: int, times: int = 1) -> int:
    """Doc."""
    note("shared_below", n)
    return n * times


@throttled(RATE)
class OfClass(Task):
    """Doc."""

    name = "of_class"

    def run(self, n: int, times: int = 1) -> int:
        note("of_class", n)
        return n * times


of_class = app.register_task(OfClass())


class Base(Task):
    abstract = True
    mark = "base"


@throttled(RATE)
@app.task(name="with_base", base=Base, bind=True, shared=False)
def with_base(self, n: int, times: int = 1) -> int:
    """Doc."""
    assert self.mark == "base"
    note("with_base", n)
    return n * times


class Order(BaseModel):
    n: int
    times: int = 1


@throttled(RATE)
@app.task(name="validated", pydantic=True, shared=False)
def validated(n: int, times: int = 1) -> int:
    """Doc."""
    note("validated", n)
    return n * times


def _late(n: int, times: int = 1) -> int:
    """Doc."""
    note("late", n)
    return n * times


late = throttled(RATE)(app.task(_late, name="late", shared=False, lazy=False))


@throttled(RATE)
def forgotten(n: int) -> int:
    """No task: the decorator has no effect."""
    return 2 * n


def _unwrapped(function):
    def wrapper(n: int) -> int:
        return function(n)

    return wrapper


@app.task(name="hidden", shared=False)
@_unwrapped
@throttled(RATE)
def hidden(n: int) -> int:
    """Neither has it here: the decorator between hides it."""
    return 2 * n


FORMS = {
    task.name: task for task in (above, below, bound, shared_above, shared_below, of_class, with_base, validated, late)
}
