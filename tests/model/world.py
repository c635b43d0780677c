"""What should be true of a scope: a model that knows nothing of lanes' virtual time, leases or TATs."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.reference import Level, Window
from throttle import SlidingLog, TokenBucket
from throttle.entry import Entry

PARKED, DELAYED, FLYING, OVER = "parked", "delayed", "flying", "over"


@dataclass
class Task:
    """One accepted task, from acceptance to start: a life."""

    entry: Entry
    place: int = 0  # order of coming into the line
    phase: str = PARKED
    ticket: str = ""
    starts: int = 0


@dataclass
class Copy:
    """A message of a task in the broker or in a worker's hand."""

    entry: Entry
    ticket: str
    slot: int
    redelivered: bool = False
    begins: int = 0  # true time from when its body may begin, or is to ask again
    granted: int = 0  # the same by Redis's clock
    slack: int = 0  # µs that it may begin later
    step: str = ""  # once its start was taken, what comes then: 'begin', 'done' or the 'body'
    gone: bool = False  # Redis has let its body begin, and knows nothing of it any more
    leave: bool = False  # granted by limits that have changed since


@dataclass
class World:
    """All tasks, all copies, and how full each bucket is by true time, which never goes back."""

    limits: tuple[TokenBucket | SlidingLog, ...]
    true: int = 0
    count: int = 0
    tasks: dict[str, Task] = field(default_factory=dict)
    copies: list[Copy] = field(default_factory=list)
    holds: list[Copy] = field(default_factory=list)
    credits: list[Copy] = field(default_factory=list)
    stale: set[tuple[str, str]] = field(default_factory=set)
    levels: dict[tuple[int, str], Level | Window] = field(default_factory=dict)

    def of(self, *phases: str) -> list[Task]:
        return [task for task in self.tasks.values() if task.phase in phases]

    def line(self, lane: str) -> list[str]:
        """Ids that wait in the lane, first to go first."""
        waiting = [task for task in self.of(PARKED) if task.entry.lane == lane]
        return [task.entry.id for task in sorted(waiting, key=lambda task: (task.entry.rank, task.place))]

    def lanes(self) -> set[str]:
        return {task.entry.lane for task in self.of(PARKED)}

    # -- what happens to a task ---------------------------------------------------------------------------

    def accept(self, entry: Entry, phase: str) -> Task:
        assert entry.id not in self.tasks or self.tasks[entry.id].phase == OVER
        self.count += 1
        task = self.tasks[entry.id] = Task(entry, self.count, phase)
        return task

    def come_due(self, horizon: int, most: int) -> None:
        """Tasks whose ETA has come join the end of the line."""
        due = [task for task in self.of(DELAYED) if task.entry.eta <= horizon]
        for task in sorted(due, key=lambda task: (task.entry.eta, task.entry.id.encode()))[:most]:
            self.count += 1
            task.phase, task.place = PARKED, self.count

    def fly(self, id: str, ticket: str) -> None:
        task = self.tasks[id]
        assert task.phase in (PARKED, FLYING)
        task.phase, task.ticket = FLYING, ticket

    def put_back(self, id: str) -> None:
        """To the head: it keeps its place; the copy under way is dead."""
        task = self.tasks[id]
        assert task.phase == FLYING
        self.stale.add((id, task.ticket))
        task.phase, task.ticket = PARKED, ""

    def end(self, id: str, *, started: bool) -> None:
        task = self.tasks[id]
        assert task.phase != OVER
        if not started and task.ticket:
            self.stale.add((id, task.ticket))
        task.phase, task.ticket = OVER, ""

    def is_current(self, copy: Copy) -> bool:
        task = self.tasks.get(copy.entry.id)
        return bool(task and task.phase == FLYING and task.ticket == copy.ticket)

    def is_stale(self, copy: Copy) -> bool:
        task = self.tasks.get(copy.entry.id)
        return (copy.entry.id, copy.ticket) in self.stale or bool(
            task and task.phase != OVER and task.ticket != copy.ticket
        )

    # -- the bound ----------------------------------------------------------------------------------------

    def charge(self, copy: Copy) -> None:
        """A body begins: every limit must have room for it, however it came to this."""
        if copy.leave:
            return
        for i, limit in enumerate(self.limits):
            level, cost = self.level(i, copy.entry.keys[i]), copy.entry.costs[i]
            if isinstance(level, Window):
                assert level.used(self.true) + cost <= level.count, f"{copy.entry.id} starts too early for {limit}"
                level.take(self.true, cost)
                continue
            has = level.at(self.true)
            lacks = min(cost, level.burst) * level.interval - has
            assert lacks <= level.rounded, f"{copy.entry.id} starts {lacks} us too early for {limit}"
            left = has - cost * level.interval
            level.level, level.seen = left if cost > level.burst else max(0, left), self.true

    def run(self, copy: Copy) -> None:
        """Redis lets the body begin, and forgets the task."""
        task = self.tasks[copy.entry.id]
        task.starts += 1
        assert task.starts == 1, f"{copy.entry.id} starts twice"
        self.end(copy.entry.id, started=True)

    def level(self, index: int, key: str) -> Level | Window:
        limit = self.limits[index]
        if (index, key) not in self.levels and isinstance(limit, SlidingLog):
            self.levels[index, key] = Window(limit.quota, limit.period)
        elif (index, key) not in self.levels:
            full = limit.burst * limit.interval
            self.levels[index, key] = Level(limit.interval, limit.burst, full, 0)
        return self.levels[index, key]

    def decide(self, entry: Entry, limits: list[tuple[int, int, bool]]) -> None:
        """A changed limit takes effect with the next decision."""
        for i, (interval, burst, _) in enumerate(limits):
            level = self.level(i, entry.keys[i])
            if isinstance(level, Level):
                level.change(self.true, interval, burst)

    def take_leave(self) -> None:
        """The rate changes: what was granted by the old one is used by the old one, for 80 ms at most."""
        self.credits.clear()
        for copy in self.holds:
            copy.leave = True

    def lose(self, index: int, key: str) -> None:
        """Redis has lost the bucket, with all starts taken from it: it counts as full."""
        self.levels.pop((index, key), None)
