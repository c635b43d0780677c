"""`@throttled`: what users write."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import wraps
from typing import Any, TypeVar, cast

from celery import _state
from celery.app.task import Task
from celery.local import PromiseProxy, Proxy

from throttle import idle
from throttle.bootstep import ThrottleStep
from throttle.errors import BacklogFull, InvalidRate, ThrottleError
from throttle.gate import gated
from throttle.handle import HandleProperty
from throttle.limits import Limit, TokenBucket
from throttle.spec import Spec
from throttle.start import before_start_of
from throttle.submit import apply_async_of
from throttle.windows import Counted, FixedWindow, SlidingWindow

T = TypeVar("T")

MARK = "__throttle__"


def throttled(
    *limits: Limit | str | tuple[Any, Any] | float | None,
    burst: int = 1,
    key: str | int | Callable[..., object] | None = None,
    initial: int | None = None,
    cost: int | str | Callable[..., int] = 1,
    scope: str | None = None,
    max_wait: float | timedelta | None = None,
    max_backlog: int | None = None,
) -> Callable[[T], T]:
    """Limit a Celery task for the whole fleet; what exceeds the limit waits its turn.

    Works above or below `@app.task` and `@shared_task`, on class-based tasks, and on a task that exists.

    Args:
        limits: rates ("10/s") or limits (`TokenBucket`, `LeakyBucket`, `SlidingLog`, `Quota`), all or nothing.
        burst: for a limit given as a rate, as are the next two: units that may pass back to back.
        key: whom it counts apart; see `TokenBucket`.
        initial: units in a bucket never used before.
        cost: units a call takes: a number, a template over the arguments ("{pages}"), or a callable
            given the arguments.
        scope: a name that makes several tasks share buckets and backlog; the task's name unless said.
        max_wait: seconds (or a timedelta) that a task may have to wait, as far as can be told when it comes; one
            that would wait longer is refused with `BacklogFull`, at `delay()` or, sent by others, as a failure.
        max_backlog: the same for the number of tasks that wait in the scope.

    Raises:
        InvalidRate, CostExceedsLimit, ThrottleError, TypeError: at import, for what is seen to be wrong.
    """
    _refuse_bare_counts(limits)
    spec = Spec([_limit(limit, burst, key, initial) for limit in limits], scope, cost, max_wait, max_backlog)

    def decorate(target: T) -> T:
        _mark(target, spec.copy())
        return target

    return decorate


def _refuse_bare_counts(limits: Sequence[object]) -> None:
    """`TokenBucket` takes its burst second; here the second is another limit."""
    for limit in limits[1:]:
        if isinstance(limit, int) and not isinstance(limit, bool) and limit:
            raise InvalidRate(f'{limit!r} is not a rate; say burst={limit}, or "{limit}/s" for another limit')


def _limit(limit: object, burst: int, key: Any, initial: int | None) -> Limit:
    if isinstance(limit, (FixedWindow, SlidingWindow)):
        raise InvalidRate(f"{limit!r} is for requests; for tasks say SlidingLog, which keeps the count in any window")
    if isinstance(limit, (TokenBucket, Counted)):
        if burst != 1 or key is not None or initial is not None:
            raise ThrottleError(f"say burst, key and initial inside {type(limit).__name__}(…), where they belong")
        return limit
    if callable(limit):
        raise ThrottleError('@throttled needs a limit: @throttled("10/s")')
    return TokenBucket(limit, burst, key=key, initial=initial)


def _mark(target: Any, spec: Spec) -> None:
    """Leave the spec where `Task.bind`, through which every task passes, finds it."""
    if type(target) is PromiseProxy and target.__evaluated__():
        target = target._get_current_object()
    if issubclass(type(target), Task):  # isinstance would wake a lazy task
        _refuse_second(type(target).__dict__.get(MARK))
        adopt(type(target), spec, target._get_app())
        return
    if issubclass(type(target), type) and issubclass(target, Task):
        _refuse_second(target.__dict__.get(MARK))
        spec.bind(_function(target))
        setattr(target, MARK, spec)
        return
    function = _function_behind(target)
    if not callable(function):
        raise ThrottleError(f"@throttled needs a Celery task or the function of one, not {target!r}")
    _refuse_second(getattr(function, MARK, None))
    spec.bind(function)
    setattr(function, MARK, spec)
    idle.note(spec, function)
    _adopt_made(function, spec)


def _refuse_second(there: Spec | None) -> None:
    if there is not None:
        raise ThrottleError('two @throttled on one task: say several limits in one, @throttled("1/s", "100/h")')


def _adopt_made(function: Any, spec: Spec) -> None:
    """The tasks that apps already finalised have made of a shared function."""
    for app in _state._get_active_apps():  # type: ignore[attr-defined]
        for task in list(app._tasks.values()) if app.finalized else ():
            run = inspect.getattr_static(type(task), "run")
            if getattr(run, "__func__", run) is function:
                adopt(type(task), spec, app)


def _function_behind(target: Any) -> Any:
    """The user's function, without waking a task that Celery makes later."""
    kind = type(target)
    if kind is PromiseProxy:
        return object.__getattribute__(target, "_Proxy__args")[0]
    if kind is Proxy:  # @shared_task: every app makes its own task of this function
        return inspect.getclosurevars(object.__getattribute__(target, "_Proxy__local")).nonlocals["fun"]
    return target


def _function(cls: type[Any]) -> Callable[..., Any]:
    """The task's function without `self`."""
    run = inspect.getattr_static(cls, "run")
    if isinstance(run, staticmethod):
        return run.__func__
    return cast("Callable[..., Any]", run.__get__(object()))


def adopt(cls: type[Any], spec: Spec, app: Any) -> None:
    """Make a task class throttled: its submit, its gate, its start."""
    app.steps["consumer"].add(ThrottleStep)
    idle.forget(spec)
    if "_throttle_adopted" in cls.__dict__:
        return
    spec = spec.copy()
    spec.bind(_function(cls))
    put = cast("Any", cls)
    put._throttle_adopted = True
    put.__throttle__ = spec
    put.throttle = HandleProperty()
    put.throws = (*cls.throws, BacklogFull)  # sent by name beyond the bounds: one line in the log, no traceback
    if not hasattr(cls.apply_async, "throttled"):  # inherited from a throttled class
        put.apply_async = apply_async_of(cls.apply_async)
        put.before_start = before_start_of(cls.before_start)
        put.Strategy = staticmethod(gated(cls.Strategy))


def _bind_and_adopt(bind: Any) -> Any:
    @wraps(bind)
    def wrapper(cls: type[Any], app: Any) -> Any:
        bound = bind(cls, app)
        run = inspect.getattr_static(cls, "run")
        spec = getattr(getattr(run, "__func__", run), MARK, None) or getattr(cls, MARK, None)
        if isinstance(spec, Spec):
            adopt(cls, spec, app)
        return bound

    return classmethod(wrapper)


# The one seam: Celery binds every task to its app with this method, whatever made the task (app.task,
# shared_task once per app, register_task) and whenever (lazily, at finalisation, in a shell).
Task.bind = _bind_and_adopt(Task.bind.__func__)  # type: ignore[method-assign, attr-defined]
