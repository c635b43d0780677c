"""Producers, scheduler, broker and workers in virtual time, against the real scripts.

What takes time in a real fleet (the broker's hop, a late process) takes it here by the test's clock, so an
hour of backlog is tested in a second, and to the microsecond.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from redis.exceptions import ResponseError

from throttle.backlog import Backlog
from throttle.entry import Due, Entry
from throttle.testing import FakeClock

HOP = 2_000  # µs from publish to the worker's gate
EARLY = 1_500  # µs before its slot that a pool process asks for its start
ROUND = 8_000  # µs between two looks of the scheduler


def entry(id: object, lane: str = "-", *, keys: tuple[str, ...] = ("-",), cost: int = 1, **more: Any) -> Entry:
    """A task as the scripts know it."""
    return Entry(str(id), lane, keys, (cost,) * len(keys), b"message of %s" % str(id).encode(), **more)


@dataclass(frozen=True)
class Begun:
    """A body that started."""

    at: int
    id: str
    lane: str
    cost: int


class Simulation:
    """One scope's life.

    Args:
        backlog: the scope.
        clock: the clock of its store.
        late: µs more than the hop that a task needs from publish to its pool process.
        stall: µs that a pool process is kept from running when it is to go on.
    """

    def __init__(
        self,
        backlog: Backlog,
        clock: FakeClock,
        late: Callable[[str], int] = lambda _: 0,
        stall: Callable[[], int] = lambda: 0,
    ) -> None:
        self.backlog, self.clock, self.late, self.stall = backlog, clock, late, stall
        self.begun: list[Begun] = []
        self.dropped: Callable[[str], Any] = lambda _: None
        self.asked: dict[str, int] = {}  # how often each task came before the limits
        self.waits: list[int] = []  # µs between asking for a start and starting, all in a pool slot
        self.reparked = self.looks = 0
        self._entries: dict[str, Entry] = {}
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._look_at = 0
        self._planned = 2**62  # what the scheduler told Redis it would sleep until
        self._served = -ROUND
        self._at(clock(), self._look)

    # -- what a test does --------------------------------------------------------------------------------

    def submit(self, task: Entry) -> str:
        """Publish it, now."""
        verdict = self.backlog.submit(task)
        self._entries[verdict.id] = task
        self._count(verdict.id)
        if verdict.what == "go":
            self._publish(Due(verdict.id, verdict.ticket, verdict.slot, task.message))
        self.heed()
        return verdict.what

    def at(self, seconds: float, action: Callable[..., Any], *args: Any) -> None:
        """Do it so many seconds from now."""
        self._at(self.clock() + round(seconds * 1e6), action, *args)

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> Simulation:
        """Let time go on."""
        end = self.clock() + round(seconds * 1e6)
        while self._events and self._events[0][0] <= end and not until():
            moment, _, action, args = heapq.heappop(self._events)
            self.clock.tick(max(0, moment - self.clock()))
            action(*args)
        if not until():
            self.clock.tick(max(0, end - self.clock()))
        return self

    def drained(self, seconds: float) -> Simulation:
        """Run until nothing is parked or in flight."""
        self.run(seconds, lambda: bool(self.begun) and not self.backlog.depth() and not self.backlog.flying())
        assert (self.backlog.depth(), self.backlog.flying()) == (0, 0), f"{len(self.begun)} begun"
        return self.run(0.1)

    def step(self, seconds: float) -> None:
        """The clock has been stepped: what was to happen happens as much earlier or later by it."""
        micros = round(seconds * 1e6)
        self._events = [(at + micros, *rest) for at, *rest in self._events]  # type: ignore[misc]
        self._served += micros
        if self._look_at:
            self._plan(self._look_at + micros)

    def ids(self) -> list[str]:
        return [begun.id for begun in self.begun]

    # -- the fleet ---------------------------------------------------------------------------------------

    def _at(self, moment: int, action: Callable[..., Any], *args: Any) -> None:
        heapq.heappush(self._events, (moment, next(self._order), action, args))

    def _look(self, moment: int | None = None) -> None:
        if moment is not None and moment != self._look_at:
            return  # another look was planned since
        self.looks += 1
        self._served = self.clock()
        try:
            wait, _, due, _ = self.backlog.release()
        except ResponseError:
            self.backlog.declare(replace=False)
            wait, due = ROUND, []
        for task in due:
            self._count(task.id)
            self._publish(task)
        self.backlog.confirm((task.id, task.ticket) for task in due)
        self._planned = int(self.backlog.store.client.hget(self.backlog.keys[1], "wake") or 2**62)
        self._plan(self.clock() + max(ROUND, wait))

    def _plan(self, moment: int) -> None:
        self._look_at = moment
        self._at(moment, self._look, moment)

    def heed(self) -> None:
        """As a notification would: the scheduler looks at once."""
        wake = int(self.backlog.store.client.hget(self.backlog.keys[1], "wake") or 2**62)
        if wake < self._planned:
            self._planned = wake
            self._plan(max(self.clock(), self._served + ROUND))

    def _count(self, id: str) -> None:
        self.asked[id] = self.asked.get(id, 0) + 1

    def _publish(self, task: Due) -> None:
        came = self.clock() + HOP + self.late(task.id)
        self._at(max(came, task.slot - EARLY), self._ask, "take", task)

    def _ask(self, mode: str, task: Due, slot: int = 0) -> None:
        known = self._entries[task.id]
        if 0 < known.expires < self.clock():  # Celery drops it, and ours tells Redis
            self.backlog.forget((task.id, task.ticket))
            self.dropped(task.id)
            return
        turn = self.backlog.start(mode, task.id, task.ticket, slot or task.slot, known.keys, known.costs)
        then = self.clock() + turn.wait
        if turn.what in ("go", "hold") and mode == "take":
            self.waits.append(turn.wait)
        if turn.what == "hold":
            self._at(then - EARLY + self.stall(), self._resume, mode, task, then, turn.slot)
        elif turn.what == "wait":
            self._at(then, self._ask, "take", task)
        elif turn.what == "parked":
            self.reparked += 1
        elif turn.what == "go":
            self._at(then + self.stall(), self._body, task, then + turn.slack, turn.slot)
        self.heed()

    def _resume(self, mode: str, task: Due, due: int, slot: int) -> None:
        self._ask("begin" if mode == "take" else "late" if self.clock() > due else "done", task, slot)

    def _body(self, task: Due, latest: int, slot: int) -> None:
        if self.clock() > latest:
            self._ask("late", task, slot)
        else:
            self._begin(self._entries[task.id], task.id)

    def _begin(self, known: Entry, id: str) -> None:
        self.begun.append(Begun(self.clock(), id, known.lane, known.costs[0]))


def excess(begun: list[Begun], interval: int, burst: int) -> int:
    """Starts beyond what burst + rate·t allows, for every interval: a leaky bucket as a level."""
    level, seen, broken = burst * interval, begun[0].at if begun else 0, 0
    for start in sorted(begun, key=lambda start: start.at):
        level = min(burst * interval, level + start.at - seen) - start.cost * interval
        seen = start.at
        if level < 0:
            broken += 1
            level = 0
    return broken
