"""Calm: while a limit is far from biting, nobody asks about each task; workers take starts several at a time.

Calm is a lane whose bucket is nine tenths full while nothing waits in its scope. Its tasks travel as plain
Celery's do, their messages with the broker alone. The bound stays exact: starts taken ahead are charged
before they are used, and for the time they may be used late (`SPAN`) the bucket forfeits what would come in
meanwhile (`lua/credit.lua` has the argument).
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

from throttle.backlog import Backlog

SPAN = 0.08  #: s for which a word of calm holds, so that a busy pool's queue is no longer: a pause is obeyed within it
HOT = 0.02  #: s within which the next task of a lane must come for starts to be taken ahead
MARGIN = 0.001  #: s before its end at which a start is not used any more
AT_ONCE = 16  #: starts taken at a time
UNASKED = 64  #: tasks published on one word of calm
LANES = 1000  #: lanes remembered per process; the longest unused is forgotten


class _Lane:
    __slots__ = ("left", "seen", "until")

    def __init__(self) -> None:
        self.left, self.until, self.seen = 0, 0.0, float("-inf")

    def take(self, now: float) -> bool:
        if self.left <= 0 or now > self.until:
            return False
        self.left -= 1
        return True


class Calm:
    """What one process knows of the calm lanes of one backlog; its threads share it."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog, self._lock = backlog, Lock()
        # Producer and worker may be one process, and what one was told is not what the other took.
        self._words: OrderedDict[object, _Lane] = OrderedDict()
        self._starts: OrderedDict[object, _Lane] = OrderedDict()

    # -- producers -------------------------------------------------------------------------------------

    def told(self, lane: str, calm: bool, asked: float) -> None:
        """Submit has said whether the lane is calm; asked when."""
        with self._lock:
            word = _of(self._words, lane)
            word.left, word.until = (UNASKED, asked + SPAN) if calm else (0, 0.0)

    def publishes(self, lane: str) -> bool:
        """Whether a task may be published without asking: the gate asks, should it be wrong."""
        with self._lock:
            word = self._words.get(lane)
            return word is not None and word.take(time.monotonic())

    # -- workers ---------------------------------------------------------------------------------------

    def start(self, lane: str, keys: Sequence[str], costs: Sequence[int]) -> float:
        """Take a start that is charged already; returns until when it may be used (monotonic), 0 for none.

        Only for tasks that come within `HOT` of the last of their lane and cost are starts taken ahead.
        """
        with self._lock:
            now = time.monotonic()
            starts = _of(self._starts, (lane, tuple(costs)))
            hot, starts.seen = now - starts.seen < HOT, now
            if starts.take(now + MARGIN):
                return starts.until
            if not hot or not self._backlog.credit(keys, [cost * AT_ONCE for cost in costs], SPAN):
                return 0.0
            starts.left, starts.until = AT_ONCE - 1, now + SPAN
            return starts.until


def _of(lanes: OrderedDict[object, _Lane], name: object) -> _Lane:
    """The lane of that name; the longest unused is forgotten for a new one."""
    lane = lanes.pop(name, None) or _Lane()
    lanes[name] = lane
    if len(lanes) > LANES:
        lanes.popitem(last=False)
    return lane
