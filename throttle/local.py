"""A limiter in this process alone, for the time that Redis does not answer: each process keeps to its share."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, NamedTuple

from throttle.decision import Decision
from throttle.question import Question
from throttle.windows import Counted

KEYS = 10_000  #: buckets remembered; the longest unused is forgotten, which fills it


class _Share(NamedTuple):
    interval: int  # µs; 0 when closed
    burst: int
    depth: int

    @property
    def capacity(self) -> int:
        return self.burst + self.depth


class Local:
    """GCRA on this machine's clock. A limit that counts in windows is taken as a bucket of the same count per period.

    Of n processes each lets 1/n of the rate and of the burst pass, but a burst of 1 at least: together they admit no
    more than the limit, or n units back to back where n is more than its burst. It begins full.

    Args:
        now: test clock giving µs.
    """

    def __init__(self, now: Callable[[], int] | None = None) -> None:
        self._now = now or (lambda: time.monotonic_ns() // 1000)
        self._tats: OrderedDict[str, int] = OrderedDict()
        self._lock = Lock()
        #: Processes that share the limits, as last known.
        self.processes = 1

    def decide(self, question: Question) -> Decision:
        """As the scripts answer, all or nothing, of this process's shares; a refund gives back."""
        with self._lock:
            now, shares = self._now(), [self._share(limit) for limit in question.limits]
            tats = [max(now, self._tats.get(key, now)) for key in question.keys]
            if question.script == "refund":
                costs = [-question.cost * share.interval for share in shares]
                self._store(question.keys, [max(now, tat + cost) for tat, cost in zip(tats, costs, strict=True)])
                return Decision(True, 0, 0, 0.0, 0.0)
            waits = [_wait(share, tat - now, question.cost) for share, tat in zip(shares, tats, strict=True)]
            if max(waits) <= 0 and question.text.startswith("take"):
                tats = [tat + question.cost * share.interval for share, tat in zip(shares, tats, strict=True)]
                self._store(question.keys, tats)
            return _told(question, shares, [tat - now for tat in tats], waits)

    def _share(self, limit: Any) -> _Share:
        n, interval = self.processes, limit.interval
        if isinstance(limit, Counted) and limit.quota:
            interval = -(-limit.period // limit.quota)
        return _Share(interval * n, max(1, limit.burst // n), limit.depth // n)

    def _store(self, keys: Sequence[str], tats: Sequence[int]) -> None:
        for key, tat in zip(keys, tats, strict=True):
            self._tats.pop(key, None)
            self._tats[key] = tat
        while len(self._tats) > KEYS:
            self._tats.popitem(last=False)


def _wait(share: _Share, lacks: int, cost: int) -> float:
    """µs until it passes, not above 0 if now; infinite while closed. A cost beyond the share passes when full."""
    if not share.interval:
        return math.inf
    return lacks + (min(cost, share.capacity) - share.capacity) * share.interval if cost else 0


def _told(question: Question, shares: Sequence[_Share], lacks: Sequence[int], waits: Sequence[float]) -> Decision:
    """Of the limit that has one wait longest, else of the one nearest to empty."""
    left = [
        max(0, s.capacity + -lack // s.interval) if s.interval else 0 for s, lack in zip(shares, lacks, strict=True)
    ]
    wait = max(0, *waits)
    which = waits.index(wait) if wait > 0 else left.index(min(left))
    limits = (question.limits[which], *question.limits[:which], *question.limits[which + 1 :])
    delay = 0.0
    if wait == 0 and question.cost:
        lines = [lack - s.burst * s.interval for s, lack in zip(shares, lacks, strict=True) if s.depth]
        delay = max(0, *lines, 0) / 1e6
    return Decision(
        wait == 0, shares[which].capacity, left[which], wait / 1e6, lacks[which] / 1e6, tuple(limits), delay
    )
