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


class Calm:
    """What one process knows of the calm lanes of one backlog."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self._lanes: OrderedDict[str, _Lane] = OrderedDict()

    def _lane(self, name: str) -> _Lane:
        lane = self._lanes.pop(name, None) or _Lane()
        self._lanes[name] = lane
        if len(self._lanes) > LANES:
            self._lanes.popitem(last=False)
        return lane

    # -- producers -------------------------------------------------------------------------------------

    def told(self, name: str, calm: bool, asked: float) -> None:
        """Submit has said whether the lane is calm; asked when."""
        lane = self._lane(name)
        lane.left, lane.until = (UNASKED, asked + SPAN) if calm else (0, 0.0)

    def publishes(self, name: str) -> bool:
        """Whether a task may be published without asking: the gate asks, should it be wrong."""
        lane = self._lanes.get(name)
        if lane is None or not lane.left or time.monotonic() > lane.until:
            return False
        lane.left -= 1
        return True

    # -- workers ---------------------------------------------------------------------------------------

    def start(self, name: str, keys: Sequence[str], costs: Sequence[int]) -> float:
        """Take a start that is charged already; returns until when it may be used (monotonic), 0 for none.

        Only a lane whose tasks come within `HOT` of each other is asked for.
        """
        lane, now = self._lane(name), time.monotonic()
        hot, lane.seen = now - lane.seen < HOT, now
        if not lane.left or now > lane.until - MARGIN:
            lane.left, lane.until = self._more(keys, costs) if hot else 0, now + SPAN
        if not lane.left:
            return 0.0
        lane.left -= 1
        return lane.until

    def _more(self, keys: Sequence[str], costs: Sequence[int]) -> int:
        return AT_ONCE if self._backlog.credit(keys, [cost * AT_ONCE for cost in costs], SPAN) else 0
