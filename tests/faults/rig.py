"""A scope driven step by step in this process: real Redis, a clock the test sets, a broker that is a list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.services import RedisServer
from throttle import TokenBucket
from throttle.backlog import Backlog
from throttle.entry import Due, Entry
from throttle.envelope import Envelope
from throttle.scheduler import Scheduler, _Scope
from throttle.store import Store
from throttle.testing import FakeClock

HOUR = 3600.0


class Killed(BaseException):
    """The process ends here: nothing of ours runs after it, as after SIGKILL."""


class Broker:
    """Where released tasks go.

    Args:
        before, after: called with the number of messages published so far; may raise.
    """

    final = False

    def __init__(self, before: Callable[[int], None] | None = None, after: Callable[[int], None] | None = None) -> None:
        self.messages: list[tuple[Envelope, Due]] = []
        self.before, self.after = before, after
        self.tries = 0

    def publish(self, envelope: Envelope, task: Due) -> None:
        self.tries += 1
        if self.before:
            self.before(len(self.messages))
        self.messages.append((envelope, task))
        if self.after:
            self.after(len(self.messages))

    def close(self) -> None:
        pass


class Rig:
    """One scope, its schedulers and its downstream."""

    def __init__(self, server: RedisServer, limit: TokenBucket) -> None:
        self.server, self.limit, self.clock = server, limit, FakeClock()
        self.backlog = self.connect()
        self.starts: list[str] = []
        self.dropped: list[str] = []

    def connect(self) -> Backlog:
        """The scope, as another process sees it."""
        return Backlog(Store(self.server.url(), now=self.clock), "rig", [self.limit])

    def entry(self, id: str) -> Entry:
        envelope = Envelope(f"body of {id}".encode(), "application/json", "utf-8", {"id": id}, {}, "", "celery")
        return Entry(id, "-", ("-",), (1,), envelope.dump())

    def park(self, count: int) -> list[str]:
        """Park so many tasks behind a closed limit, then open it."""
        self.backlog.set_rate(TokenBucket(0))
        ids = [f"t{n:05d}" for n in range(count)]
        for id in ids:
            assert self.backlog.submit(self.entry(id)).what == "parked"
        self.backlog.reset_rate()
        return ids

    def scheduler(self, broker: Broker) -> Callable[[], Any]:
        """A scheduler of its own on the scope; each call is one look."""
        backlog = self.connect()
        serving = Scheduler(backlog.store, broker, lambda: [backlog])
        scope = _Scope(backlog)
        return lambda: serving._serve(scope)

    def work(self, broker: Broker) -> None:
        """A worker that starts all the broker has."""
        while broker.messages:
            _, task = broker.messages.pop(0)
            self.start(task.ticket, task.slot, task.id)

    def start(self, ticket: str, slot: int, id: str) -> str:
        """The last check before the body, and the body."""
        turn = self.backlog.start("take", id, ticket, slot, ("-",), (1,))
        while turn.what == "wait":
            self.clock.tick(turn.wait)
            turn = self.backlog.start("take", id, ticket, slot, ("-",), (1,))
        if turn.what == "hold":
            self.clock.tick(turn.wait)
            self.backlog.start("begin", id, ticket, turn.slot, ("-",), (1,))
        (self.dropped if turn.what in ("stale", "parked") else self.starts).append(id.partition("+")[0])
        return turn.what

    def settle(self, hours: float = 3.0) -> None:
        """A new scheduler and worker, until nothing is left or that much time has passed."""
        broker = Broker()
        look = self.scheduler(broker)
        end = self.clock() + hours * HOUR * 1e6
        while self.clock() < end and (self.backlog.depth() or self.backlog.flying()):
            look()
            self.work(broker)
            self.clock.advance(1.0)

    def left(self) -> int:
        """Tasks of which Redis still holds anything."""
        return int(self.backlog.store.client.hlen(self.backlog.keys[3]))


def due_of(backlog: Backlog, batch: int = 100) -> list[Due]:
    return backlog.release(batch)[2]
