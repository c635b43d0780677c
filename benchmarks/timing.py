"""Times single calls, interleaved in rounds. Needs nothing but Python, so that peers can import it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

BATCH = 50


def timed(call: Callable[[], object]) -> float:
    """The median of a batch of single calls, s."""
    found = []
    for _ in range(BATCH):
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


def interleaved(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Medians of batches, round by round, so that a slow moment of the machine meets all of them."""
    medians: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        timed(call)
    for _ in range(rounds):
        for name, call in calls.items():
            medians[name].append(timed(call))
    return medians


def ratio(above: list[float], below: list[float]) -> float:
    """The median of the rounds' ratios."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))
