"""What a decorated function's calls ask: limits, key and cost, made of the arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from throttle.errors import InvalidRate
from throttle.keyed import Of
from throttle.limits import TokenBucket, check_units, of_rate
from throttle.question import Asked
from throttle.rates import Rate
from throttle.templates import Arguments, applied, maker, names_in
from throttle.windows import Counted


def limit_of(said: Any) -> Any:
    """A limit, or the limit that a rate means to requests: a whole period's count may come at once.

    Raises:
        InvalidRate: a rate outside the grammar.
    """
    return of_rate(said) if isinstance(said, (str, tuple, Rate)) and not isinstance(said, Of) else said


class Calls:
    """Makes the question of each call.

    Args:
        function: what is called; templates name its arguments.
        limits: rates ("10/s"), limits, limits for keys, or callables given the key.
        key: a template over the arguments ("{user.id}"), a value, or a callable given them.
        cost: the same, for units.

    Raises:
        ThrottleError, InvalidRate: what can be seen to be wrong.
    """

    def __init__(self, function: Callable[..., Any], limits: Sequence[Any], key: Any, cost: Any) -> None:
        if not limits:
            raise InvalidRate('a limit is missing: say @limiter.limit("10/s")')
        self._arguments, self._limits = Arguments(function), [limit_of(limit) for limit in limits]
        self._whose = f"{getattr(function, '__qualname__', function)}'s"
        for what, said in [("key", key), ("cost", cost), *(("key", _own(limit)) for limit in self._limits)]:
            self._arguments.check(what, said)
        self._key, self._cost = (key, maker(key)), (cost, maker(cost))
        self._own = [(limit, _own(limit)) for limit in self._limits]

    def asked(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Asked], object, int]:
        """Limits, key and cost of one call.

        Raises:
            ThrottleError: they cannot be made of its arguments.
            InvalidRate: the cost is no whole number of units.
        """
        call = (self._arguments.values(args, kwargs), args, kwargs)
        limits = [
            limit if own is None else Of(limit, applied("key", own, maker(own), *call, whose=self._whose))
            for limit, own in self._own
        ]
        key = applied("key", *self._key, *call, whose=self._whose)
        cost: Any = applied("cost", *self._cost, *call, whose=self._whose)
        return limits, key, check_units(int(cost) if isinstance(cost, str) and cost.isdigit() else cost)


def _own(limit: Any) -> Any:
    """The limit's own key, if it is made of arguments."""
    key = limit.key if isinstance(limit, (TokenBucket, Counted)) else None
    return key if callable(key) or names_in(key) else None
