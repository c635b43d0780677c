"""What a token bucket is, written a second time and differently: as a level that fills, not as a TAT.

Units are counted in microseconds of filling, so all is in whole numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Window:
    """At most `count` units in any window of `period` µs, half open: all that passed, by when."""

    count: int
    period: int
    passed: list[tuple[int, int]] = field(default_factory=list)

    def used(self, now: int) -> int:
        """Units in the window that ends now."""
        return sum(cost for at, cost in self.passed if at > now - self.period)

    def take(self, now: int, cost: int) -> None:
        self.passed.append((now, cost))


@dataclass
class Level:
    """A bucket that holds `burst` units and gains one per `interval` µs."""

    interval: int
    burst: int
    level: int
    seen: int
    rounded: int = 0  # µs by which it may be off since rates changed

    def at(self, now: int) -> int:
        """The level then; while the clock stands before the last change, time stands still."""
        return min(self.burst * self.interval, self.level + max(0, now - self.seen))

    def ask(self, now: int, cost: int, *, take: bool = True) -> tuple[bool, int, int, int]:
        """Allowed, units remaining, µs until full, µs to wait."""
        level, price = self.at(now), cost * self.interval
        wait = max(0, price - level)
        if now < self.seen or (take and not wait and cost):
            self.level, self.seen = level - (0 if wait or not take else price), now
        left = self.at(now)
        return not wait, left // self.interval, self.burst * self.interval - left, wait

    def give(self, now: int, cost: int) -> None:
        """Back into the bucket; never beyond full."""
        self.level, self.seen = min(self.burst * self.interval, self.at(now) + cost * self.interval), now

    def change(self, now: int, interval: int, burst: int) -> None:
        """Another limit (interval 0: closed, which changes nothing): the units in it stay, as far as it holds them."""
        if interval and (interval, burst) != (self.interval, self.burst):
            inside = self.at(now) * interval // self.interval
            if self.at(now) < self.burst * self.interval or burst < self.burst:
                self.level = min(max(0, inside), burst * interval)
            else:
                self.level = burst * interval  # full stays full
            self.interval, self.burst, self.seen, self.rounded = interval, burst, now, self.rounded + 2
