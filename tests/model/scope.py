"""One scope in Redis and its model side by side; what any step may use, and what holds after each."""

from __future__ import annotations

import itertools
from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant
from redis.exceptions import ResponseError

from tests.model.world import DELAYED, FLYING, OVER, PARKED, Copy, World
from tests.services import RedisServer
from throttle import SlidingLog, TokenBucket
from throttle.backlog import AHEAD, REST, Backlog
from throttle.entry import Entry, Look, Turn
from throttle.store import Store
from throttle.testing import FakeClock

POLICIES = [
    (TokenBucket("10/s"),),
    (TokenBucket("10/s", 3),),
    (TokenBucket("1000/s", 2, key="{k}"),),
    (TokenBucket("20/s", 2, key="{k}"), TokenBucket("30/s", 3)),
    (TokenBucket("2/s", 2, initial=0), TokenBucket("1/min", 3, key="{k}")),
    (TokenBucket("1/h", 3),),
    (TokenBucket("1000/s", 200), TokenBucket("500/s", 100, key="{k}")),
    (SlidingLog("3/s"),),
    (SlidingLog("10/min", key="{k}"), TokenBucket("20/s", 3)),
]
scopes = itertools.count()


class SmallBacklog(Backlog):
    """A backlog whose bound on tasks in flight is met often."""

    small = 3

    @property
    def window(self) -> int:
        return self.small


class Scope(RuleBasedStateMachine):
    """Rules are in `test_life`."""

    server: RedisServer
    steps = 0

    @initialize(limits=st.sampled_from(POLICIES), window=st.sampled_from([1, 3, 64]))
    def declare(self, limits: tuple[TokenBucket, ...], window: int) -> None:
        self.clock = FakeClock()
        self.client = self.server.client()
        self.backlog = SmallBacklog(Store(self.client, now=self.clock), f"s{next(scopes)}", limits)
        self.backlog.small = window
        self.backlog.declare(replace=True)
        self.world = World(limits)
        self.ids = itertools.count(1)
        (
            self.line_key, self.messages_key, self.ready_key, self.waiting_key, self.delayed_key, self.flight_key,
            self.tickets_key, self.releases_key,
        ) = self.backlog.keys[2:10]  # fmt: skip

    # -- what rules use ---------------------------------------------------------------------------------

    def _entry(self, lane: str, cost: int, rank: int, eta: int, expires: int, id: str = "") -> Entry:
        limits = self.world.limits
        keys = tuple("-" if limit.key is None else lane for limit in limits)
        wide = all(limit.key is None for limit in limits)
        now = self.clock()
        return Entry(
            id or f"t{next(self.ids)}", "-" if wide else lane, keys,
            (min(cost, *(limit.burst for limit in limits), 9),) * len(keys),
            b"body\n\x00\xff", rank, now + expires if expires else 0, now + eta if eta else 0,
        )  # fmt: skip

    def _entered(self, entry: Entry, verdict: Any, parked: list[Any], flying: int) -> None:
        later = entry.eta > self.clock() + AHEAD
        if verdict.what == "go":
            assert not later
            assert not any(task.entry.lane == entry.lane for task in parked), "overtakes its lane"
            assert not parked or all(limit.key is not None for limit in self.world.limits), "overtakes the backlog"
            assert flying < self.backlog.window
            assert max(entry.eta, self.clock()) <= verdict.slot <= self.clock() + AHEAD
            self.world.accept(entry, PARKED)
            self.world.fly(entry.id, verdict.ticket)
            self.world.copies.append(Copy(entry, verdict.ticket, verdict.slot))
        else:
            assert verdict.what == "parked"
            self.world.accept(entry, DELAYED if later else PARKED)

    def _look(self, batch: int = 100) -> Look:
        """Released are, of each lane, the first by priority and then first come; none starts before its ETA."""
        self.world.come_due(self.clock() + AHEAD, batch)
        try:
            reply = self.backlog.release(batch, recover=False)
        except ResponseError:  # undeclared, since Redis has lost the limits
            self.backlog.declare(replace=False)
            reply = self.backlog.release(batch, recover=False)
        due = {task.id: task for task in reply.due}
        for lane in {self.world.tasks[id].entry.lane for id in due}:
            mine = [id for id in due if self.world.tasks[id].entry.lane == lane]
            assert set(mine) == set(self.world.line(lane)[: len(mine)]), "not the first in line"
        for id, task in due.items():
            entry = self.world.tasks[id].entry
            assert task.message == entry.message
            expired = 0 < entry.expires < self.clock()
            assert max(0 if expired else entry.eta, self.clock()) <= task.slot <= self.clock() + AHEAD
            self.world.fly(id, task.ticket)
        return reply

    def _nothing_is_due(self) -> None:
        """No head of a lane could go now, unless the look ended at one that a common bucket holds."""
        tats = {name.decode(): tat for name, tat in self.client.zrange(self.releases_key, 0, -1, withscores=True)}
        limits, now, free = self.declared(), self.clock(), []
        for lane in self.world.lanes():
            entry = self.world.tasks[self.world.line(lane)[0]].entry
            held = [now + 0.0]
            for i, (interval, burst, wide) in enumerate(limits):
                bucket = f"{self.backlog.names[i]}|{entry.keys[i]}"
                tat = max(now, tats.get(bucket, 0))
                held.append(tats.get(bucket + "!", 0.0))
                held.append((tat + (min(entry.costs[i], burst) - burst) * interval) if interval else float("inf"))
                if wide and held[-1] > now + AHEAD:
                    return
            if max(*held, entry.eta) <= now + AHEAD or 0 < entry.expires < now:
                free.append(entry.id)
        assert not free, f"{free} are due"

    def declared(self) -> list[tuple[int, int, bool]]:
        """Interval, burst and whether common to all lanes, of each limit as it is now in Redis."""
        found = []
        for i, limit in enumerate(self.world.limits, 1):
            override = self.client.hget(self.backlog.keys[0], f"rate:{i}")
            interval, burst = map(int, override.split()) if override else (limit.interval, limit.burst)
            found.append((interval, burst, limit.key is None))
        return found

    def _start(self, copy: Copy) -> str:
        world, entry = self.world, copy.entry
        if 0 < entry.expires < self.clock():
            return self._drop(copy)
        current, stale = world.is_current(copy), world.is_stale(copy)
        turn = self.backlog.start("take", entry.id, copy.ticket, copy.slot, entry.keys, entry.costs)
        world.copies.remove(copy)
        assert (turn.what == "stale") == stale
        if stale:
            return turn.what
        assert current
        self._decided(entry)
        if turn.what == "parked":
            world.put_back(entry.id)
        else:
            assert turn.what in ("go", "hold")
            world.holds.append(copy)
            self._granted(copy, turn, "begin")
        return turn.what

    def _granted(self, copy: Copy, turn: Turn, then: str) -> None:
        copy.begins, copy.granted, copy.slack = self.world.true + turn.wait, turn.slot, turn.slack
        copy.step = "body" if turn.what == "go" else then
        if turn.what == "go" and not copy.gone:
            copy.gone = True
            self.world.run(copy)

    def _decided(self, entry: Entry) -> None:
        self.world.decide(entry, self.declared())

    def _drop(self, copy: Copy) -> str:
        """Celery drops what has expired, whichever copy of it."""
        self.world.copies.remove(copy)
        task = self.world.tasks[copy.entry.id]
        assert self.backlog.forget(copy.entry.id) == (task.phase != OVER)
        if task.phase != OVER:
            self.world.end(copy.entry.id, started=False)
        return "dropped"

    def _begin(self, copy: Copy) -> None:
        """Its next step: ask again, or begin if it is not too late for that."""
        world, entry = self.world, copy.entry
        self._advance(max(0, copy.begins - world.true))
        late = world.true > copy.begins + (copy.slack if copy.step == "body" else 0)
        if copy.step == "body" and not late:
            world.holds.remove(copy)
            world.charge(copy)
            return
        stale = (entry.id, copy.ticket) in world.stale
        if not stale:
            self._decided(entry)
        mode = "begin" if copy.step == "begin" else "late" if late else "done"
        turn = self.backlog.start(mode, entry.id, copy.ticket, copy.granted, entry.keys, entry.costs)
        assert (turn.what == "stale") == stale
        if turn.what in ("stale", "parked"):
            world.holds.remove(copy)
        if turn.what == "parked":
            assert copy.leave
            assert not copy.gone
            world.put_back(entry.id)
        elif turn.what != "stale":
            self._granted(copy, turn, "done")

    def _advance(self, micros: int) -> None:
        self.clock.tick(micros)
        self.world.true += micros

    # -- what holds after each step -------------------------------------------------------------------------

    @invariant()
    def redis_has_what_the_model_has(self) -> None:
        Scope.steps += 1
        if not hasattr(self, "world"):
            return
        pipe = self.client.pipeline(transaction=False)
        pipe.hkeys(self.messages_key).zrange(self.line_key, 0, -1).zrange(self.delayed_key, 0, -1)
        pipe.zrange(self.flight_key, 0, -1).hgetall(self.tickets_key)
        pipe.zrange(self.ready_key, 0, -1).zrange(self.waiting_key, 0, -1)
        messages, line, delayed, flight, tickets, ready, waiting = pipe.execute()
        world = self.world
        alive = world.of(PARKED, DELAYED, FLYING)
        assert {id.decode() for id in messages} == {task.entry.id for task in alive}, "lost, or kept for ever"
        assert {id.decode() for id in delayed} == {task.entry.id for task in world.of(DELAYED)}
        assert {id.decode() for id in flight} == {task.entry.id for task in world.of(FLYING)}
        places = [place.decode().split("|") for place in line]
        assert len(places) == len(world.of(PARKED))
        for lane in world.lanes():
            assert [id for one, _, id in places if one == lane] == world.line(lane)
            assert (lane.encode() in ready) != (lane.encode() in waiting), "a lane that nobody looks at"
        assert not set(ready) & set(waiting)
        for task in world.of(FLYING):
            assert tickets[task.entry.id.encode()].split()[0].decode() == task.ticket
        if not alive:
            self.all_expires()

    def all_expires(self) -> None:
        """Nothing waits: every key of the scope goes by itself."""
        for key in self.client.scan_iter(match=self.backlog.store.namer.scope(self.backlog.scope) + "*", count=10**6):
            if key.decode() != self.ready_key:  # an empty lane there goes with the next look
                assert self.client.pttl(key) > 0, f"{key} is for ever"

    # -- the end --------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Everything accepted and not forgotten starts, in the end, once, though copies were lost."""
        if not hasattr(self, "world"):
            return
        world = self.world
        self.backlog.reset_rate()
        world.holds.clear()
        world.credits.clear()
        for _ in range(400):
            if not world.of(PARKED, DELAYED, FLYING):
                break
            self.drain()
        assert not world.of(PARKED, DELAYED, FLYING), "stuck"
        self._look()
        assert not self.client.exists(self.ready_key, self.waiting_key, self.line_key, self.flight_key)
        self.all_expires()

    def drain(self) -> None:
        world = self.world
        for copy in [copy for copy in world.copies if not copy.redelivered]:
            self._start(copy)
        while world.holds:
            self._begin(world.holds[0])
        ids = [id.decode() for id in self.client.zrangebyscore(self.flight_key, "-inf", self.clock())]
        assert self.backlog.recover() == len(ids)
        for id in ids:
            world.put_back(id)
        look = self._look()
        for task in look.due:
            world.copies.append(Copy(world.tasks[task.id].entry, task.ticket, task.slot))
        if not look.due:
            self._advance(max(1, look.wait) if look.wait < REST else 60 * REST)
