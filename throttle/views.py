"""What the decorators of views share, whatever the framework."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from throttle.errors import BacklogFull, StoreUnavailable, Throttled
from throttle.http import Refusal, refusal
from throttle.policing import ascii_text
from throttle.rules import Asking, Guard, Limited, Rule

#: What a view may raise that has an answer of its own.
ANSWERED = (BacklogFull, StoreUnavailable, Throttled)


def answer_to(error: BaseException, guard: Guard | None) -> Refusal:
    """The answer to one of `ANSWERED`, with fields as the guard has them."""
    cause: Any = error.decision if isinstance(error, Throttled) else error
    return refusal(cause) if guard is None else refusal(cause, guard.style, **guard.settings)


class ViewLimits:
    """The limits of one decorator. Routes have limits of their own each, unless a name makes them share.

    Args:
        limits, key, methods, cost: as `Rule` has them.
        name: what the limits are called; unless said, methods and template of the route.

    Raises:
        ThrottleError, TypeError: limits that make no sense.
    """

    def __init__(
        self,
        *limits: Limited,
        key: Any = None,
        methods: str | Iterable[str] | None = None,
        cost: int | Callable[[Asking], Any] | None = None,
        name: str | None = None,
    ) -> None:
        if not limits:
            raise TypeError('limit() needs a limit: @limit("10/min")')
        said = (methods,) if isinstance(methods, str) else tuple(methods or ())
        self._methods = tuple(method.upper() for method in said)
        self._name = name
        self._settings: dict[str, Any] = {"key": key, "methods": self._methods or None, "cost": cost}
        self._limits = limits
        self._rules = {name: self._rule(name)}  # one for each route: bounded by their number

    def rule(self, template: str, methods: Iterable[str] = ()) -> Rule:
        """The rule for requests of a route.

        Args:
            template: of the route.
            methods: that it serves, where the framework says so.
        """
        if self._name is not None:
            return self._rules[self._name]
        served = ",".join(sorted(self._methods or methods))
        label = ascii_text(f"{served} {template}".strip())
        if label not in self._rules:
            self._rules[label] = self._rule(label)
        return self._rules[label]

    def _rule(self, name: str | None) -> Rule:
        return Rule(*self._limits, name=name, **self._settings)
