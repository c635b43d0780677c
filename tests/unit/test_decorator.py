"""Forms of the decorator: each limits, or says at import why not."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery, Task, shared_task

from throttle import InvalidRate, ThrottleError, throttled
from throttle.ticket import HANDED, HEADER, Ticket, stripped


@pytest.fixture
def app() -> Celery:
    return Celery("forms", broker="redis://localhost:1", set_as_current=False)


def limited(task: Any) -> bool:
    return hasattr(task.apply_async, "throttled") and hasattr(task, "throttle")


def test_a_throttled_base_class_limits_every_task_of_it(app: Celery) -> None:
    @throttled("1/s")
    class Base(Task):
        abstract = True

    @app.task(base=Base, name="one")
    def one() -> None: ...

    class Two(Base):
        name = "two"

        def run(self) -> None: ...

    two = app.register_task(Two())
    assert limited(one)
    assert limited(two)
    assert one.throttle.backlog.scope == "one"
    assert two.throttle.backlog.scope == "two"
    assert one.apply_async.__wrapped__.__qualname__ == "Task.apply_async"  # wrapped once


def test_two_on_one_task_are_refused(app: Celery) -> None:
    def decorate(target: Any) -> Any:
        return throttled("1/s")(throttled("100/h")(target))

    with pytest.raises(ThrottleError, match="several limits in one"):
        decorate(lambda: None)
    with pytest.raises(ThrottleError, match="several limits in one"):
        decorate(app.task(_function(), name="twice"))


def test_a_burst_is_given_by_name() -> None:
    with pytest.raises(InvalidRate, match=r'say burst=20, or "20/s"'):
        throttled("10/s", 20)
    with pytest.raises(InvalidRate, match=r'did you mean "10/s"'):
        throttled(10)
    with pytest.raises(InvalidRate, match="not a rate"):
        throttled("10/s", True)


def test_above_shared_task_after_the_app_was_finalised() -> None:
    mine = Celery("late", broker="redis://localhost:1", set_as_current=False)
    mine.finalize()

    @throttled("1/s")
    @shared_task(name="late.task")
    def task() -> None: ...

    assert limited(mine.tasks["late.task"])


def test_one_decorator_serves_tasks_with_other_arguments(app: Celery) -> None:
    api = throttled("2/min", key="{customer}")

    def a(customer: str, x: str) -> None: ...
    def b(x: str, customer: str) -> None: ...

    tasks = [api(app.task(function)) for function in (a, b)]
    calls = [("acme", "x1"), ("x1", "acme")]
    lanes = [task.__throttle__.resolve(call, {}, str)[0] for task, call in zip(tasks, calls, strict=True)]
    assert lanes == ["acme", "acme"]


def test_none_is_no_limit_and_needs_no_redis() -> None:
    app = Celery("none", broker="memory://", set_as_current=False)

    @throttled(None)
    @app.task
    def task() -> None: ...

    task.delay()


def test_a_class_with_an_apply_async_of_its_own(app: Celery) -> None:
    asked = []

    class Base(Task):
        abstract = True

        def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
            asked.append(options)

    @throttled("1/s")
    @app.task(base=Base)
    def task() -> None: ...

    task.delay()
    task.apply_async((), {}, "an id")
    assert [options.get("task_id") for options in asked] == [None, "an id"]


def _function() -> Any:
    def function() -> None: ...

    return function


@pytest.mark.parametrize("id", ["plain", "report 1 of 3", "é{}", ""])
def test_a_ticket_says_the_same_when_read(id: str) -> None:
    ticket = Ticket("1700000000000001", 1700000000000002, "scope%20x", id)
    assert Ticket.parse(str(ticket)) == ticket


@pytest.mark.parametrize(
    "header", [None, "", "?", "1 2", "1 2 3", "x 2 s id", "1 ٣ s id", f"1 {'9' * 30} s id", b"1 2 s i", 7]
)
def test_what_is_no_ticket_is_none(header: object) -> None:
    assert Ticket.parse(header) is None


def test_our_headers_are_not_handed_on() -> None:
    assert stripped({HEADER: "1 2 s i", HANDED: (1.0,), "mine": 1}) == {"mine": 1}
    assert stripped(None) == {}
