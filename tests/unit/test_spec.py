"""Templates, values and callables for keys and costs; what is wrong is said at import."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery

from throttle import CostExceedsLimit, InvalidRate, LeakyBucket, ThrottleError, TokenBucket, throttled
from throttle.spec import Spec


def resolve(function: Any, *args: Any, key: Any = None, cost: Any = 1, **kwargs: Any) -> tuple[Any, ...]:
    spec = Spec([TokenBucket("1/s", 100, key=key)], None, cost)
    spec.bind(function)
    return spec.resolve(args, kwargs, str)


def task(customer: str, pages: int = 1, *, urgent: bool = False, **more: Any) -> None: ...


@pytest.mark.parametrize(
    ("key", "lane"),
    [
        ("{customer}", "acme"),
        ("{customer}/{pages}", "acme/7"),
        ("{customer[0]}", "a"),
        ("{pages:03d}", "007"),
        ("{urgent}", "False"),
        ("all", "all"),
        ("{{x}}", "{x}"),
        (12, "12"),
        (lambda customer, pages, **more: customer.upper(), "ACME"),
    ],
)
def test_keys(key: Any, lane: str) -> None:
    assert resolve(task, "acme", 7, key=key)[:2] == (lane, (lane,))


@pytest.mark.parametrize(("cost", "units"), [(3, 3), ("{pages}", 7), (lambda customer, pages: pages * 2, 14), (0, 0)])
def test_costs(cost: Any, units: int) -> None:
    assert resolve(task, "acme", 7, cost=cost)[2] == (units,)


def test_arguments_are_found_however_they_are_passed() -> None:
    for args, kwargs in ((("acme",), {}), ((), {"customer": "acme"}), ((), {"customer": "acme", "pages": 1})):
        assert resolve(task, *args, key="{customer}-{pages}", **kwargs)[0] == "acme-1"


def test_no_key_is_one_count_for_all() -> None:
    """B36: the default does not count each combination of arguments apart."""
    assert {resolve(task, customer)[:2] for customer in ("a", "b")} == {("-", ("-",))}


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: throttled("1/s", key="{customr}")(lambda customer: None), ThrottleError, "takes customer"),
        (lambda: throttled("1/s", cost="{pages}")(lambda: None), ThrottleError, "no arguments"),
        (lambda: throttled("1/s", key="{}")(task), ThrottleError, "must name its arguments"),
        (lambda: throttled("1/s", key="{0}")(task), ThrottleError, "must name its arguments"),
        (lambda: throttled("1/s", max_wait=0), ThrottleError, "max_wait must be seconds or a timedelta"),
        (lambda: throttled("1/s", max_wait="1h"), ThrottleError, "max_wait must be seconds or a timedelta"),
        (lambda: throttled("1/s", max_backlog=0), ThrottleError, "max_backlog must be a whole number"),
        (lambda: throttled("1/s", max_backlog=1.5), ThrottleError, "max_backlog must be a whole number"),
        (lambda: throttled("1/s", key="{customer")(task), ThrottleError, "no template"),
        (lambda: throttled("10/s", cost=2), CostExceedsLimit, "cost 2 exceeds capacity 1"),
        (lambda: throttled("10/s", cost=-1), InvalidRate, "cost must be a whole number"),
        (lambda: throttled(0, cost=-1), InvalidRate, "cost must be a whole number"),
        (lambda: throttled("10/s", cost=1.5), InvalidRate, "cost must be"),
        (lambda: throttled("10/x"), InvalidRate, "'10/x' is not a rate"),
        (lambda: throttled(), ThrottleError, "needs a limit"),
        (lambda: throttled(task), ThrottleError, "needs a limit"),
        (lambda: throttled(TokenBucket("1/s"), burst=2), ThrottleError, r"inside TokenBucket\("),
        (lambda: throttled(LeakyBucket("1/s"), key="x"), ThrottleError, r"inside LeakyBucket\("),
        (lambda: throttled("1/s")(42), ThrottleError, "needs a Celery task"),
        (lambda: throttled("1/s", rte="10/s"), TypeError, "rte"),
        (lambda: throttled("1/s", brust=2), TypeError, "brust"),
    ],
)
def test_b30_what_is_wrong_is_said_at_import(make: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        make()


def test_what_only_a_call_shows_is_said_at_submit() -> None:
    with pytest.raises(CostExceedsLimit, match="cost 101 exceeds capacity 100"):
        resolve(task, "acme", 101, cost="{pages}")
    with pytest.raises(InvalidRate, match="no whole number of units"):
        resolve(task, "acme", "many", cost="{pages}")
    with pytest.raises(ThrottleError, match="cannot make the key"):
        resolve(task, None, key="{customer.name}")
    with pytest.raises(ThrottleError, match="ZeroDivisionError"):
        resolve(task, "acme", key=lambda customer: 1 // 0)


def test_tasks_of_one_scope_have_one_set_of_limits() -> None:
    app = Celery("scopes", broker="redis://localhost:1", set_as_current=False)
    names = []
    for n, rate in enumerate(("1/s", "1/s", "2/s")):
        names.append(throttled(rate, scope="shared")(_task(app, n)))
    assert names[0].throttle.backlog is names[1].throttle.backlog
    with pytest.raises(ThrottleError, match="tasks that share a scope need the same limits"):
        _ = names[2].throttle.backlog


def _task(app: Celery, n: int) -> Any:
    def function() -> None: ...

    return app.task(function, name=f"t{n}")


def test_none_is_no_limit() -> None:
    spec = Spec([TokenBucket(None)], None, 1)
    assert not spec.active
