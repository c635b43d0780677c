"""The backlog of one scope: tasks accepted and not yet started. Each method is one atomic script."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import uuid4

from throttle.declared import Declared
from throttle.entry import Due, Entry, Look, Turn, Verdict
from throttle.errors import ThrottleError
from throttle.limits import TokenBucket, lane_of
from throttle.store import Store

logger = logging.getLogger(__name__)

AHEAD = 25_000  #: µs before its slot that a task leaves for the broker: 10 × a broker hop
LEASE = 30_000_000  #: µs that a released task may take to start or be renewed; doubles with each attempt
LONGEST_LEASE = 3600_000_000
CLAIM = 5_000_000  #: µs between taking a task out and confirming that the broker has it
NEAR = 2_000  #: µs: a start this close is counted as begun, saving a round trip
FAR = 50_000  #: µs: a start this far away gives the pool slot back
REST = 20_000_000  #: µs after which a scope is looked at although nothing is due: for leases of what submit let through


class Backlog(Declared):
    """One scope's backlog, in which tasks wait under its limits."""

    @classmethod
    def tagged(cls, store: Store, tag: str) -> Backlog:
        """The backlog of a scope of which only the name in Redis is known; it can look and end, not declare."""
        backlog = cls(store, "", ())
        backlog.tag, backlog.keys = tag, store.namer.tagged(tag)
        return backlog

    # -- the way of a task -----------------------------------------------------------------------------

    def submit(self, entry: Entry) -> Verdict:
        """A producer is about to publish: 'go' (publish now), 'parked' or 'full'."""
        copy = f"@{uuid4().hex}"  # so that a question sent again, its reply lost, is known to be the same
        args = [*entry.args(), AHEAD, LEASE, *self._bell(), copy, *entry.bounds]
        return self._verdict(self._declared("submit", args, self._buckets(entry.keys) if self._counted else ()))

    def gate(self, entry: Entry, ticket: str = "", *, again: bool = False, copy: tuple[int, str] = (0, "")) -> Verdict:
        """A worker holds the message: 'go' (to the pool), 'parked' or 'stale' (acknowledge it).

        Args:
            entry: the task.
            ticket: which release the message is; '' if it carries none.
            again: the broker, or a producer that was in doubt, may have given it to us before.
            copy: which try of the task it is, and what tells this delivery from another.
        """
        told = "#{}@{}".format(*copy)
        args = [*entry.args(), AHEAD, LEASE, *self._bell(), ticket, int(again), FAR, told, *entry.bounds]
        return self._verdict(self._declared("gate", args, self._buckets(entry.keys)))

    def credit(self, keys: Sequence[str], units: Sequence[int], span: float) -> bool:
        """Take starts ahead, to be used within `span` seconds; only while the lane is calm."""
        args = [int(span * 1e6), ",".join(keys), ",".join(map(str, units))]
        return bool(self._declared("credit", args, self._buckets(keys)))

    def park(self, entry: Entry, *, redelivered: bool = False) -> Verdict:
        """Put a message into the backlog, its turn or not: 'parked', or 'stale' if it was there."""
        args = [*entry.args(), AHEAD, LEASE, *self._bell(), int(redelivered)]
        return self._verdict(self._declared("park", args))

    def start(
        self, mode: str, id: str, ticket: str, slot: int, keys: Sequence[str], costs: Sequence[int], longest: int = 0
    ) -> Turn:
        """A body is about to run: 'take' a slot, 'begin' after a hold, 'late' for what was allowed, or 'done'."""
        args: list[Any] = [mode, id, ticket, slot, NEAR, FAR, AHEAD, *self._bell()]
        args += [",".join(keys), ",".join(map(str, costs)), longest]
        what, *told = self._declared("start", args, self._buckets(keys))
        return Turn(_text(what), *told)

    def release(
        self, batch: int = 100, published: Sequence[Due] = (), *, recover: bool = True, final: bool = False
    ) -> Look:
        """Take out what is due, in one round trip with settling the last batch and recovering lost ones.

        Args:
            batch: most tasks to take.
            published: what the broker has got since the last call.
            recover: whether to look for leases that ran out.
            final: published is done (a smoother), instead of under way to a start.

        """
        now = self.store.now()
        calls: list[tuple[str, list[Any]]] = []
        pairs = [item for due in published for item in (due.id, due.ticket)]
        if pairs and final:
            calls.append(("forget", [now, "done", *self._bell(), *pairs]))
        elif pairs:
            calls.append(("confirm", [now, LEASE, LONGEST_LEASE, *pairs]))
        calls += [("recover", [now, batch])] if recover else []
        calls += [("release", [now, AHEAD, batch, CLAIM, REST])]
        reply = self._pipeline(calls)[-1]
        if reply[2]:
            logger.error("scope %s: %d parked tasks have lost their message; was Redis evicting?", self.scope, reply[2])
        flat = reply[4:]
        due = [
            Due(_text(flat[i]), _text(flat[i + 1]), int(flat[i + 2]), flat[i + 3], self.tag)
            for i in range(0, len(flat), 4)
        ]
        return Look(reply[0], reply[1], sorted(due, key=lambda task: task.slot), reply[3])

    def confirm(self, tasks: Iterable[tuple[str, str]]) -> int:
        """Renew the leases of (id, ticket) pairs still under way."""
        pairs = [item for pair in tasks for item in pair]
        return int(self._call("confirm", [LEASE, LONGEST_LEASE, *pairs])) if pairs else 0

    def recover(self, ids: Sequence[str] = (), batch: int = 1000) -> int:
        """Put named tasks in flight, or those whose lease ran out, back at the head of their lanes."""
        return int(self._call("recover", [batch, *ids]))

    def forget(self, *tasks: str | tuple[str, str], done: bool = False) -> int:
        """These tasks will not run, or are `done` with; returns how many were there.

        Args:
            tasks: ids, or (id, ticket): then only if that ticket is the current one.
            done: they have left for good.
        """
        pairs = [item for task in tasks for item in ((task, "") if isinstance(task, str) else task)]
        return int(self._call("forget", ["done" if done else "never", *self._bell(), *pairs])) if pairs else 0

    # -- looking ---------------------------------------------------------------------------------------

    def depth(self, *key: object) -> int:
        """Tasks that wait, for their turn or their ETA (not those released and not yet started).

        Args:
            key: of one lane: a value for each limit that has a key, in their order.
        """
        ask, (_, _, line, messages, _, _, delayed, *_) = self.store.command, self.keys
        if not key:
            return int(ask("ZCARD", line)) + int(ask("ZCARD", delayed))
        lane = self.lane(key)
        ahead = ask("ZRANGE", delayed, 0, -1)
        entries = ask("HMGET", messages, *ahead) if ahead else []
        begins = f"{lane}\n".encode()
        delayed_here = sum(1 for entry in entries if entry and bytes(entry).startswith(begins))
        return int(ask("ZLEXCOUNT", line, f"[{lane}|", f"({lane}}}")) + delayed_here

    def estimate(self, lane: str, keys: Sequence[str], costs: Sequence[int], rank: int = 0) -> tuple[float, int]:
        """Seconds until a task that came now would start (infinite while closed), and tasks that go before it."""
        args = [lane, rank, ",".join(keys), ",".join(map(str, costs))]
        wait, ahead = self._declared("estimate", args, self._buckets(keys) if self._counted else ())
        return (wait / 1e6 if wait >= 0 else math.inf), ahead

    def lane(self, key: Sequence[object]) -> str:
        """The lane of these keys.

        Raises:
            ThrottleError: not as many as the scope has limits with a key.
        """
        keyed = [limit for limit in self.limits if limit.key is not None]
        if len(key) != len(keyed):
            raise ThrottleError(f"scope {self.scope!r} has {len(keyed)} limits with a key, {len(key)} were given")
        return lane_of([self.store.namer.identity(one) for one in key], self.store.namer.identity)

    def counters(self) -> dict[str, int]:
        """Counts since the scope was first used: parked, granted, released, started, reparked, recovered."""
        raw = self.store.command("HGETALL", self.keys[1])
        names = ("parked", "granted", "released", "started", "reparked", "recovered")
        found = {_text(name): value for name, value in raw.items()}
        return {name: int(found.get(name, 0)) for name in names}

    def flying(self) -> int:
        """Tasks released and not yet started."""
        return int(self.store.command("ZCARD", self.keys[7]))

    def set_rate(self, rate: TokenBucket, index: int = 1) -> None:
        """Override one limit's rate and burst, fleet-wide and at once, until `reset_rate`."""
        self._declared("rate", [index, rate.interval, rate.burst, *self._bell()])

    def reset_rate(self, index: int = 1) -> None:
        """Back to the coded rate."""
        self._declared("rate", [index, "", "", *self._bell()])

    def reset(self) -> None:
        """Forget what was charged: all buckets are as new. Parked tasks stay."""
        buckets = list(self.store.client.scan_iter(match=_glob(self._bucket) + "*", count=1000))
        if buckets:
            self.store.command("DEL", *buckets)
        self._call("reset", self._bell())

    def purge(self, *key: object) -> int:
        """Throw away what waits, of one lane (see `depth`) or all; returns how many there were."""
        return int(self._call("purge", [self.lane(key) if key else ""], timed=False))

    def _verdict(self, reply: Sequence[Any]) -> Verdict:
        what = _text(reply[0])
        if what == "go":
            return Verdict(what, _text(reply[1]), int(reply[2]), int(reply[3]), _text(reply[4]), bool(reply[5]))
        if what == "parked":
            return Verdict(what, "", int(reply[1]), int(reply[2]), _text(reply[3]))
        if what == "full":
            return Verdict(what, wait=int(reply[1]), over=int(reply[2]))
        return Verdict(what)


def _text(value: bytes | str | int) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _glob(text: str) -> str:
    """`text` for MATCH, taken literally."""
    return "".join("\\" + c if c in "*?[]\\" else c for c in text)
