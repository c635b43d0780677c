"""`task.throttle`: the handle on a throttled task's scope."""

from __future__ import annotations

from typing import Any

from throttle.deployment import deployment
from throttle.errors import InvalidRate
from throttle.limits import Limit, TokenBucket


class Handle:
    """What waits, and what one may do about it; for a whole scope, from any process."""

    def __init__(self, task: Any) -> None:
        self._task = task

    @property
    def backlog(self) -> Any:
        """The scope's backlog."""
        return deployment(self._task.app).backlog(self._task.__throttle__, self._task.name)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits as coded."""
        return tuple(self._task.__throttle__.limits)

    def depth(self, *key: object) -> int:
        """Tasks waiting in the scope, or those of one key (with several keyed limits, a value for each)."""
        return int(self.backlog.depth(*key))

    def estimate(self, *args: object, **kwargs: object) -> float:
        """Seconds until a task with these arguments would start if it were sent now; infinite while closed.

        Reckons that those that wait before it cost what it costs. Changes nothing.

        Raises:
            ThrottleError: key or cost cannot be made of these arguments.
        """
        place, spec = deployment(self._task.app), self._task.__throttle__
        if not spec.active:
            return 0.0
        call = spec.resolve(args, kwargs, place.store.namer.identity)
        return float(self.backlog.estimate(*call, place.rank(getattr(self._task, "priority", None)))[0])

    def set_rate(self, rate: object, *, burst: int | None = None) -> None:
        """Override the first limit's rate for the whole fleet, at once, until `reset_rate`; 0 closes it.

        Raises:
            InvalidRate: as at decoration.
        """
        coded = self.limits[0]
        if not isinstance(coded, TokenBucket):
            raise InvalidRate(f"{coded!r} has no rate that could be set at run time")
        limit = TokenBucket(rate, coded.burst if burst is None else burst)
        if limit.rate is None:
            raise InvalidRate('no limit cannot be set at run time; say set_rate("1000000/s"), or reset_rate()')
        self.backlog.set_rate(limit)

    def reset_rate(self) -> None:
        """Back to the coded rate."""
        self.backlog.reset_rate()

    def reset(self) -> None:
        """Forget what was charged: the buckets are as new. Waiting tasks stay."""
        self.backlog.reset()

    def purge(self, *key: object) -> int:
        """Throw away the waiting tasks, of one key or all; returns how many there were."""
        return int(self.backlog.purge(*key))

    def __repr__(self) -> str:
        limits = " and ".join(map(str, self.limits)) or "no limit"
        return f"<throttle of {self._task.name}: {limits}>"


class HandleProperty:
    """`task.throttle`, made when asked for."""

    def __get__(self, task: Any, owner: Any = None) -> Any:
        return self if task is None else Handle(task)
