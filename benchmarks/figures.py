"""Medians, percentiles and the like; and one row of the table."""

from __future__ import annotations

import statistics
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from throttle import TokenBucket
from throttle.testing import excess

TOLERANCE = 0.005  #: s allowed for the recorder's own jitter


@dataclass
class Row:
    """One line of the table: measure, result, target, and whether it was met (None: no target)."""

    measure: str
    result: str
    target: str = "–"
    ok: bool | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        return {True: "ok", False: "**MISS**", None: "–"}[self.ok]


@dataclass
class Ledger:
    """Every start of every paced run, so that the bound is checked on all of them."""

    checked: int = 0
    beyond: int = 0
    worst: float = 0.0  #: s by which the worst of them was early
    runs: list[str] = field(default_factory=list)
    woke: list[float] = field(default_factory=list)  #: how late the metronome beside them woke, s

    def check(self, what: str, starts: Sequence[float], limit: TokenBucket) -> None:
        """Add one run under one bucket."""
        self.checked += len(starts)
        broken = excess(starts, limit, tolerance=TOLERANCE)
        self.beyond += broken
        self.worst = max(self.worst, earliness(starts, limit))
        if broken:
            self.runs.append(f"{what}: {broken} of {len(starts)}")


def earliness(starts: Sequence[float], limit: TokenBucket) -> float:
    """Seconds by which the worst start came before the bound allowed it."""
    interval, tat, worst = limit.interval / 1e6, float("-inf"), 0.0
    for start in sorted(starts):
        worst = max(worst, tat - (limit.burst - 1) * interval - start)
        tat = max(tat, start) + interval
    return worst


def at_most(value: float, target: float) -> bool:
    """Whether a figure that should be small is."""
    return value <= target


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def spread(values: Sequence[float], form: Callable[[float], str]) -> str:
    """The median, and between which figures the runs were."""
    if len(values) == 1:
        return form(values[0])
    return f"{form(median(values))} ({form(min(values))} … {form(max(values))})"


def percentile(values: Iterable[float], share: float) -> float:
    """The value below or at which `share` of them lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def gap_errors(starts: Iterable[float], rate: float) -> list[float]:
    """How far each gap between neighbours is from 1/rate, s."""
    ordered = sorted(starts)
    return [abs(b - a - 1 / rate) for a, b in pairwise(ordered)]


def inversions(order: Sequence[int]) -> float:
    """Share of all pairs that started the wrong way round (0.5: no order at all)."""
    seen: list[int] = []
    wrong = 0
    for item in order:
        wrong += len(seen) - bisect_left(seen, item)
        insort(seen, item)
    pairs = len(order) * (len(order) - 1) / 2
    return wrong / pairs if pairs else 0.0
