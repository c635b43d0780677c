"""Limits that count in windows of time: fixed, sliding by two counters, sliding by a log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from throttle.errors import CostExceedsLimit, InvalidRate
from throttle.keyed import Keyed, check_name
from throttle.rates import Rate

LONGEST_LOG = 100_000  #: units a log remembers at most: about 10 MB of Redis for one key


@dataclass(frozen=True, init=False, repr=False)
class Counted(Keyed):
    """What the limits that count in windows have in common; see each for what it promises.

    Args:
        rate: "100/min", "5/30s", (100, 7200) …: so many units per window. `None` is no limit, `0` is closed.
        key: whom it counts apart: a template over a task's arguments ("{customer}"), a value, or a callable.
        name: what the policy is called in headers and in Redis.

    Raises:
        InvalidRate: a rate outside the grammar or range, or with a part of a unit in a window.
    """

    rate: Rate | None
    key: str | int | Callable[..., object] | None = field(default=None, kw_only=True)
    name: str | None = field(default=None, kw_only=True)

    #: Which script part decides.
    kind: ClassVar[str] = ""
    #: What the count is of.
    unit: ClassVar[str] = "requests"

    #: Units per window; 0 while closed.
    quota: int = field(init=False, compare=False, repr=False)
    #: Length of a window, µs.
    period: int = field(init=False, compare=False, repr=False)
    #: Its name, or what it says.
    label: str = field(init=False, compare=False, repr=False)

    def __init__(
        self, rate: object, *, key: str | int | Callable[..., object] | None = None, name: str | None = None
    ) -> None:
        parsed = Rate.parse(rate)
        count, period = (parsed.count, parsed.period * 10**6) if parsed else (0, 10**6)
        if count.denominator != 1 or period.denominator != 1:
            raise InvalidRate(f"{parsed} has part of a unit, or of a µs, in a window; say whole ones: 1 per 2 s")
        self._settle(parsed, int(count), int(period), key, name)

    def _settle(self, rate: Rate | None, quota: int, period: int, key: object, name: str | None) -> None:
        check_name(name)
        for what, value in {"rate": rate, "key": key, "name": name, "quota": quota, "period": period}.items():
            object.__setattr__(self, what, value)
        object.__setattr__(self, "label", name or str(self))

    @property
    def burst(self) -> int:
        """Units that may pass back to back from idle: all of a window."""
        return self.quota

    #: None of its units waits once admitted.
    depth: ClassVar[int] = 0

    @property
    def capacity(self) -> int:
        """Units that it lets in at most at one moment."""
        return self.quota

    #: For tasks: µs until a new bucket is full, and for which a full one is remembered.
    fresh: ClassVar[int] = 0
    keep: ClassVar[int] = 0
    initial: ClassVar[None] = None

    @property
    def interval(self) -> int:
        """For tasks: µs between two releases once as many as fill a window are out; starts are what is counted."""
        return -(-self.period // self.quota) if self.quota else 0

    @property
    def closed(self) -> bool:
        """Whether nothing ever passes."""
        return self.rate is not None and not self.quota

    @property
    def window(self) -> int:
        """Length of a window in seconds, as HTTP fields have it: whole, at least 1."""
        return max(1, -(-self.period // 10**6))

    def asked(self, now: int) -> str:
        """What the scripts take, `now` (µs) being the time as far as known; the cost follows it."""
        return f"{self.kind} {self.quota} {self.period} 0 0 "

    def declared(self, now: int) -> str:
        """What the scripts of the backlog take: kind, count, and what tells the windows; `now` as in `asked`."""
        return f"{self.kind} {self.quota} {self.period}"

    @property
    def terms(self) -> tuple[object, ...]:
        """What two tasks of one scope must agree on, besides whether it has a key."""
        return (self.kind, self.quota, self.period, self.rate is None, self.name)

    def check_cost(self, cost: int, key: str | None = None) -> None:
        """Raise `CostExceedsLimit` if `cost` units could never pass."""
        if cost > self.quota and self.quota:
            raise CostExceedsLimit(cost, self.quota, key)

    def __repr__(self) -> str:
        said = [repr(str(self.rate)) if self.rate else repr(self.rate)]
        said += [f"{name}={value!r}" for name in ("key", "name") if (value := getattr(self, name)) is not None]
        return f"{type(self).__name__}({', '.join(said)})"

    def __str__(self) -> str:
        return f"{self.rate} ({self.kind})" if self.rate is not None else "no limit"


@dataclass(frozen=True, init=False, repr=False)
class FixedWindow(Counted):
    """So many units in each period of the clock, aligned to the epoch.

    The cheapest to explain and the loosest: around the border of two windows twice as many may pass.
    """

    kind: ClassVar[str] = "fixed"


@dataclass(frozen=True, init=False, repr=False)
class SlidingWindow(Counted):
    """About so many units in any window: two counters, the older one weighted by how much of it still counts.

    Exact where units come evenly; twice as many may pass in a window where they come in bursts.
    """

    kind: ClassVar[str] = "sliding"


@dataclass(frozen=True, init=False, repr=False)
class SlidingLog(Counted):
    """Never more than so many units in any window of one period: each unit is remembered for that long.

    The exact one, at about 100 bytes of Redis per unit and key, so for counts up to 100,000.
    """

    kind: ClassVar[str] = "log"

    def _settle(self, rate: Rate | None, quota: int, period: int, key: object, name: str | None) -> None:
        if quota > LONGEST_LOG:
            raise InvalidRate(f"{rate}: a log remembers {LONGEST_LOG} units at most; SlidingWindow has no such bound")
        super()._settle(rate, quota, period, key, name)
