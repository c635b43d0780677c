"""A task on its way, as the scripts know it: what goes in, what they answer, what comes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from throttle.ticket import Ticket


@dataclass(frozen=True, slots=True)
class Entry:
    """What the scripts know of a task; its message is opaque bytes to them.

    Attributes:
        id: the task's id.
        lane: its key combination, as stored.
        keys: one stored key per limit ('-' where the limit counts all together).
        costs: units, one number per limit.
        message: the dumped envelope.
        rank: one digit, 0 goes first.
        expires, eta: µs since the epoch; 0 for none.
        bounds: µs that it may wait and tasks among which it may; 0 for any.
    """

    id: str
    lane: str
    keys: tuple[str, ...]
    costs: tuple[int, ...]
    message: bytes
    rank: int = 0
    expires: int = 0
    eta: int = 0
    bounds: tuple[int, int] = (0, 0)

    def args(self) -> list[Any]:
        """As the scripts take it."""
        keys, costs = ",".join(self.keys), ",".join(map(str, self.costs))
        return [self.id, self.lane, self.rank, self.expires, self.eta, keys, costs, self.message]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What submit or gate said. `what`: 'go', 'parked', 'full' or 'stale'; times in µs by Redis's clock.

    Full is a backlog beyond the task's bounds: it would wait for `wait` µs, and may come again after `over`.
    """

    what: str
    ticket: str = ""
    slot: int = 0
    now: int = 0
    id: str = ""
    calm: bool = False
    wait: int = 0
    over: int = 0


@dataclass(frozen=True, slots=True)
class Due:
    """A task taken out of the backlog, to be published."""

    id: str
    ticket: str
    slot: int
    message: bytes
    scope: str = ""

    @property
    def header(self) -> Ticket:
        """What goes with its message."""
        return Ticket(self.ticket, self.slot, self.scope, self.id)


class Turn(NamedTuple):
    """What Redis said of a body that is about to run.

    Attributes:
        what: 'go', 'hold' (ask again), 'wait' (not counted), 'parked' or 'stale'.
        wait: µs from now.
        slot: µs by Redis's clock; when it may begin.
        slack: µs that it may begin later than that without anything being lost.
    """

    what: str
    wait: int = 0
    slot: int = 0
    slack: int = 0


class Look(NamedTuple):
    """What a scheduler's look at a scope brought.

    Attributes:
        wait: µs until the next look is due.
        parked: tasks that still wait.
        due: tasks to publish, by slot.
        lease: µs until the first task in flight has lost its lease; -1 when none flies.
    """

    wait: int
    parked: int
    due: list[Due]
    lease: int
