"""What `@throttled` says of one task: its limits, whom they count apart, and what a call costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from throttle.errors import InvalidRate, ThrottleError
from throttle.limits import Limit, check_units, lane_of
from throttle.templates import Arguments, applied, maker, names_in

_YEAR = 366 * 86400


class Spec:
    """One task's throttling, checked as far as possible when it is written down.

    Args:
        limits: the policies, all or nothing.
        scope: what shares buckets and backlog; the task's name unless said.
        cost: units a call takes: a number, a template over the arguments ("{pages}"), or a callable
            given the arguments.
        max_wait: seconds (or a timedelta) that a task may have to wait, as far as can be told when it comes.
        max_backlog: tasks that may wait in the scope.

    Raises:
        ThrottleError, InvalidRate, CostExceedsLimit: what can be seen to be wrong.
    """

    def __init__(
        self,
        limits: Sequence[Limit],
        scope: str | None,
        cost: object,
        max_wait: float | timedelta | None = None,
        max_backlog: int | None = None,
    ) -> None:
        self.limits = tuple(limit for limit in limits if limit.rate is not None)
        self.scope, self.cost = scope, cost
        if not limits:
            raise ThrottleError('@throttled needs a limit: @throttled("10/s")')
        for limit in self.limits:
            if limit.depth:
                raise InvalidRate(f"{limit!r}: tasks wait in their backlog; say max_backlog=… in place of a depth")
        names = [limit.name or str(i) for i, limit in enumerate(self.limits, 1)]
        if len(set(names)) < len(names):
            raise InvalidRate(f"{', '.join(names)}: limits of one task would share a bucket; give each its own name")
        if isinstance(cost, int):
            check_units(cost)
            for limit in self.limits:
                if not limit.closed:
                    limit.check_cost(cost)
        elif not callable(cost) and not names_in(cost):
            raise InvalidRate(f"cost must be a whole number, a template or a callable, not {cost!r}")
        #: µs that a task may wait, and tasks among which it may; 0 for any.
        self.bounds = (_longest(max_wait), _most(max_backlog))
        self._keys = [None if limit.key is None else maker(limit.key) for limit in self.limits]
        self._cost = maker(cost)
        self._arguments: Arguments | None = None

    def copy(self) -> Spec:
        """The same, for another task: it will be bound to that one's arguments."""
        made = Spec.__new__(Spec)
        made.__dict__.update(self.__dict__, _arguments=None)
        return made

    @property
    def active(self) -> bool:
        """False when every limit is `None`: then nothing of ours runs."""
        return bool(self.limits)

    def bounds_of(self, about: Mapping[str, Any]) -> tuple[int, int]:
        """The bounds of one message: a task that was taken has its retries, however long they wait."""
        return (0, 0) if about.get("retries") else self.bounds

    def bind(self, function: Callable[..., Any]) -> None:
        """Check the templates against the task's signature.

        Raises:
            ThrottleError: a template names what the task does not take.
        """
        arguments = Arguments(function)
        for what, template in [("key", limit.key) for limit in self.limits] + [("cost", self.cost)]:
            arguments.check(what, template)
        self._arguments = arguments

    def resolve(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], identity: Callable[[object], str]
    ) -> tuple[str, tuple[str, ...], tuple[int, ...]]:
        """Lane, stored key and cost per limit, of one call.

        Raises:
            ThrottleError: key or cost cannot be made of these arguments.
            CostExceedsLimit: the cost could never pass.
        """
        values = self._arguments.values(args, kwargs) if self._arguments else dict(kwargs)
        keys = [
            "-" if make is None else identity(applied("key", limit.key, make, values, args, kwargs))
            for limit, make in zip(self.limits, self._keys, strict=True)
        ]
        cost = self._units(values, args, kwargs)
        for limit, key in zip(self.limits, keys, strict=True):
            if not limit.closed:
                limit.check_cost(cost, None if key == "-" else key)
        apart = [key for limit, key in zip(self.limits, keys, strict=True) if limit.key is not None]
        return lane_of(apart, identity), tuple(keys), (cost,) * len(keys)

    def _units(self, values: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
        if isinstance(self.cost, int):
            return self.cost
        found = applied("cost", self.cost, self._cost, values, args, kwargs)
        try:
            return check_units(int(found) if isinstance(found, str) else found)
        except ValueError as exc:
            raise InvalidRate(f"cost {self.cost!r} gave {found!r}, which is no whole number of units") from exc


def _longest(max_wait: object) -> int:
    if max_wait is None:
        return 0
    seconds = max_wait.total_seconds() if isinstance(max_wait, timedelta) else max_wait
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= _YEAR:
        raise ThrottleError(f"max_wait must be seconds or a timedelta, above 0 and up to a year, not {max_wait!r}")
    return round(seconds * 1e6)


def _most(max_backlog: object) -> int:
    if max_backlog is None:
        return 0
    if isinstance(max_backlog, bool) or not isinstance(max_backlog, int) or not 0 < max_backlog <= 10**9:
        raise ThrottleError(f"max_backlog must be a whole number of tasks from 1, not {max_backlog!r}")
    return max_backlog
