"""Limits: the policies, as small immutable values that print themselves as people say them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, ClassVar
from urllib.parse import quote

from throttle.errors import CostExceedsLimit, InvalidRate
from throttle.keyed import Keyed, check_name
from throttle.rates import Rate
from throttle.windows import Counted

DAY = 86400 * 10**6  # µs
MOST = 10**9  # units of a burst

#: Whom a limit counts apart: a template over the task's arguments, a value, or a callable given them.
Key = "str | int | Callable[..., object] | None"


@dataclass(frozen=True, init=False, repr=False)
class TokenBucket(Keyed):
    """At most `burst` units back to back from idle, then one per emission interval.

    For every interval of length t: units ≤ burst + rate·t (GCRA, ITU-T I.371). Idle, it is full and holds
    `burst` units; empty, the next unit comes after one emission interval.

    Args:
        rate: "10/s", "5/30s", (100, 7200) …; `None` is no limit, `0` is closed.
        burst: units that may pass back to back, the first included; 1 (the default) is even spacing.
        key: whom it counts apart: a template over the task's arguments ("{customer}"), a value, or a
            callable given the arguments. `None`: one count for all.
        initial: units in a bucket never used before; `burst` unless said. A bucket unused for a day
            counts as never used.
        name: what the policy is called in headers and in Redis. Limits of one name in one scope share buckets.

    Raises:
        InvalidRate: a rate outside the grammar or range, or a burst or initial that makes no sense.
    """

    rate: Rate | None
    burst: int = 1
    key: str | int | Callable[..., object] | None = field(default=None, kw_only=True)
    initial: int | None = field(default=None, kw_only=True)
    name: str | None = field(default=None, kw_only=True)

    #: Units that may wait for their moment once admitted; see `LeakyBucket`.
    depth: ClassVar[int] = 0

    #: Emission interval, µs; 0 when closed (or when there is no limit).
    interval: int = field(init=False, compare=False, repr=False)
    #: µs until a bucket never used before is full.
    fresh: int = field(init=False, compare=False, repr=False)
    #: µs for which a full bucket is remembered: none, unless a new one would not be full.
    keep: int = field(init=False, compare=False, repr=False)
    #: Units that it lets in at most at one moment: those that pass and those that may wait.
    capacity: int = field(init=False, compare=False, repr=False)
    #: Its name, or what it says.
    label: str = field(init=False, compare=False, repr=False)
    #: What the scripts take; a cost is appended to it.
    packed: str = field(init=False, compare=False, repr=False)

    def __init__(
        self,
        rate: object,
        burst: int = 1,
        *,
        key: str | int | Callable[..., object] | None = None,
        initial: int | None = None,
        name: str | None = None,
    ) -> None:
        _whole("burst", burst, 1, 10**9)
        if initial is not None:
            _whole("initial", initial, 0, burst)
        check_name(name)
        parsed = Rate.parse(rate)
        interval = parsed.interval if parsed else 0
        capacity = burst + self.depth
        if interval * capacity > 2**52:
            raise InvalidRate(f"burst {burst} at {parsed} takes more than 142 years to refill")
        fresh = 0 if initial is None else (burst - initial) * interval
        keep = DAY if fresh else 0
        values = {
            "rate": parsed, "burst": burst, "key": key, "initial": initial, "name": name,
            "interval": interval, "fresh": fresh, "keep": keep, "capacity": capacity,
            "packed": f"{interval} {capacity} {fresh} {keep} ",
        }  # fmt: skip
        for field_name, value in values.items():
            object.__setattr__(self, field_name, value)
        object.__setattr__(self, "label", name or str(self))

    @property
    def closed(self) -> bool:
        """Whether nothing passes until the rate is changed."""
        return self.rate is not None and not self.interval

    def asked(self, now: int) -> str:
        """What the scripts take of limits of all kinds; the cost follows it."""
        return f"bucket {self.packed}"

    @property
    def terms(self) -> tuple[object, ...]:
        """What two tasks of one scope must agree on, besides whether it has a key."""
        return (self.rate, self.burst, self.initial, self.name)

    @cached_property
    def window(self) -> int:
        """Seconds in which an empty bucket fills, in whole ones as HTTP fields have them: at least 1."""
        if self.rate is None or not self.rate.count:
            return 1
        return max(1, math.ceil(self.capacity * self.rate.period / self.rate.count))

    @cached_property
    def quota(self) -> int:
        """Units per window: the burst, or what the rate makes of a window that was rounded up; 0 while closed.

        So "10/s" with a burst of 1, which fills in 0.1 s, is 10 in 1 s and not 1 in 1 s.
        """
        if self.rate is None or not self.rate.count:
            return self.burst if self.rate is None else 0
        return max(self.capacity, math.floor(self.window * self.rate.count / self.rate.period))

    @property
    def unit(self) -> str:
        """What is counted, as HTTP fields say it."""
        return "requests"

    def check_cost(self, cost: int, key: str | None = None) -> None:
        """Raise `CostExceedsLimit` if `cost` units could never pass."""
        if cost > self.capacity:
            raise CostExceedsLimit(cost, self.capacity, key)

    def __repr__(self) -> str:
        said = [repr(str(self.rate)) if self.rate else repr(self.rate), f"burst={self.burst}"]
        said += [f"depth={self.depth}"] if self.depth else []
        said += [
            f"{name}={value!r}" for name in ("key", "initial", "name") if (value := getattr(self, name)) is not None
        ]
        return f"{type(self).__name__}({', '.join(said)})"

    def __str__(self) -> str:
        burst = f", burst {self.burst}" if self.burst != 1 else ""
        burst += f", depth {self.depth}" if self.depth else ""
        return f"{self.rate if self.rate is not None else 'no limit'}{burst}"


@dataclass(frozen=True, init=False, repr=False)
class LeakyBucket(TokenBucket):
    """Work leaves at an even pace: what the scheduler shapes tasks into.

    The same arithmetic as `TokenBucket` (a leaky bucket is a token bucket seen from below); `burst` is what may
    pass before spacing begins, 1 unless said.

    Args:
        rate, burst, key, initial, name: as for `TokenBucket`.
        depth: for requests: units that may wait in line. A unit beyond the burst is admitted with the `delay` until
            its own moment if no more than these wait, itself included, and refused otherwise. A cost may be as
            much as `burst + depth`; its delay is that of its last unit. Tasks wait in their backlog instead.

    Raises:
        InvalidRate: as `TokenBucket`; a depth that makes no sense, or one with `initial`.
    """

    depth: int = 0  # type: ignore[misc]

    def __init__(
        self,
        rate: object,
        burst: int = 1,
        depth: int = 0,
        *,
        key: str | int | Callable[..., object] | None = None,
        initial: int | None = None,
        name: str | None = None,
    ) -> None:
        object.__setattr__(self, "depth", _whole("depth", depth, 0, 10**9))
        if depth and initial is not None:
            raise InvalidRate("a line that may wait begins empty: say depth or initial, not both")
        super().__init__(rate, burst, key=key, initial=initial, name=name)

    def asked(self, now: int) -> str:
        """As a queue where it has a depth: the scripts then say the delay too."""
        return f"queue {self.interval} {self.capacity} {self.depth} 0 " if self.depth else super().asked(now)


#: Any limit.
Limit = TokenBucket | Counted


def _whole(what: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidRate(f"{what} must be a whole number from {least} to {most}, not {value!r}")
    return value


def stored_name(name: str) -> str:
    """A limit's name as it stands in Redis, for requests and tasks alike: they may share a bucket."""
    return quote(name, safe=",")


def policy_of(limit: Limit, unnamed: str) -> str:
    """What its buckets are called in Redis. Each kind of state has names of its own: a limit may become another."""
    policy = stored_name(limit.name or unnamed)
    return f"{policy}.{limit.kind}" if isinstance(limit, Counted) else policy


@lru_cache(256)
def of_rate(said: Any) -> TokenBucket | None:
    """What a rate alone means to requests: a whole period's count may come at once.

    Raises:
        InvalidRate: a rate outside the grammar.
    """
    rate = Rate.parse(said)
    return None if rate is None else TokenBucket(rate, max(1, min(math.floor(rate.count), MOST)))


def check_units(cost: object) -> int:
    """A cost as a whole number of units, 0 or more.

    Raises:
        InvalidRate: if it is not one.
    """
    return _whole("cost", cost, 0, 10**9)


_LONGEST_LANE = 120


def lane_of(keys: Sequence[str], identity: Callable[[object], str]) -> str:
    """The name of the lane of these keys, as stored: themselves where short, '-' where there are none."""
    lane = keys[0] if len(set(keys)) == 1 else ",".join(keys) or "-"
    return lane if len(lane) <= _LONGEST_LANE else identity(lane)
