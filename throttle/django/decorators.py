"""The decorator of views."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from asgiref.sync import iscoroutinefunction
from django.core.handlers.asgi import ASGIRequest
from django.utils.decorators import method_decorator

from throttle.asking import Asking
from throttle.checks import the_guard
from throttle.django.requests import acheck, asking_of, check, response_of, tell
from throttle.django.settings import guard as settings_guard
from throttle.errors import ThrottleError
from throttle.rules import Guard, Limited, Rule
from throttle.views import ViewLimits

View = TypeVar("View", bound=Callable[..., Any])


def limit(
    *limits: Limited,
    key: Any = None,
    methods: str | Iterable[str] | None = None,
    cost: int | Callable[[Asking], Any] | None = None,
    name: str | None = None,
    guard: Guard | None = None,
) -> Callable[[View], View]:
    """A decorator that limits a view, each of its routes apart: `@limit("10/min", key="user")`.

    For `def`, `async def` and class-based views: on the class, on a method, or by Django's `method_decorator`. It
    stands above `cache_page`, or cached pages would tell everybody what was left for the first. What the view raises is
    the middleware's to answer, outside the transaction that the view may be in.

    Args:
        *limits: limits, rates, callables and pairs of one of these and a key, as `Rule` takes them.
        key: whom to count apart, where a limit says none.
        methods: those that are limited; all, unless said.
        cost: units, or a callable given the `Asking`.
        name: what the limits are called. Views with one name share its limits; unless said, methods and template.
        guard: unless said, that of the setting THROTTLE.

    Raises:
        ThrottleError, TypeError: limits or a guard that make no sense.
    """
    if guard is not None:
        the_guard(guard, "limit(…, guard=guard)")
    return _Limit(ViewLimits(*limits, key=key, methods=methods, cost=cost, name=name), guard)


class _Limit:
    """What `limit` returns."""

    def __init__(self, limits: ViewLimits, guard: Guard | None) -> None:
        self._limits, self._guard = limits, guard

    def __call__(self, view: Any) -> Any:
        """Limit a view, or a class of views."""
        if isinstance(view, type):
            return method_decorator(self, name="dispatch")(view)
        return self._async(view) if _is_async(view) else self._sync(view)

    def _sync(self, view: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(view)
        def limited(*args: Any, **kwargs: Any) -> Any:
            request, guard = _request_of(args, kwargs), self._guard or settings_guard()
            asking = asking_of(request)
            answer = check(guard, asking, self._rule(asking, view)).refusal
            return tell(request, view(*args, **kwargs) if answer is None else response_of(request, answer))

        return limited

    def _async(self, view: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(view)
        async def limited(*args: Any, **kwargs: Any) -> Any:
            request = _request_of(args, kwargs)
            # Under WSGI each call has a loop of its own, and connections of a loop do not outlive it.
            guard = self._guard or settings_guard(is_async=isinstance(request, ASGIRequest))
            asking = asking_of(request)
            answer = (await acheck(guard, asking, self._rule(asking, view))).refusal
            return tell(request, await view(*args, **kwargs) if answer is None else response_of(request, answer))

        return limited

    def _rule(self, asking: Asking, view: Any) -> Rule:
        return self._limits.rule(asking.template or str(getattr(view, "__qualname__", "-")))


def _is_async(view: Any) -> bool:
    """Whether it must be awaited: `dispatch` of a class with async methods is a `def` that returns what must be."""
    method = getattr(view, "func", view)  # within `method_decorator`
    owner = getattr(method, "__self__", None)
    return iscoroutinefunction(view) or getattr(owner, "view_is_async", False) is True


def _request_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Django's own, also within REST framework's; after `self` where a method is decorated."""
    for one in (*args, *kwargs.values()):
        request = getattr(one, "_request", one)
        if hasattr(request, "META") and hasattr(request, "resolver_match"):
            return request
    raise ThrottleError("limit() is for views, and there is no request among the arguments of this call")
