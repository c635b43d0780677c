"""The whole life of a backlog against the model: any order of any steps, any death, any clock."""

from __future__ import annotations

import os
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from tests.model.scope import Scope
from tests.model.world import DELAYED, FLYING, PARKED, Copy
from tests.services import RedisServer
from throttle import TokenBucket
from throttle.backlog import AHEAD
from throttle.calm import SPAN as CALM

EXAMPLES = int(os.environ.get("THROTTLE_MODEL_EXAMPLES", "300"))
STEPS = 100
LANES = ["a", "b", "c"]
SPAN = round(CALM * 1e6)


class Life(Scope):
    """All that can happen."""

    # -- tasks come ---------------------------------------------------------------------------------------

    @rule(
        lane=st.sampled_from(LANES),
        cost=st.sampled_from([1, 1, 1, 0, 2, 3]),
        rank=st.sampled_from([5, 5, 5, 0, 9]),
        eta=st.sampled_from([0, 0, 0, 0, 10_000, AHEAD, AHEAD + 1, 10**6, 3600 * 10**6]),
        expires=st.sampled_from([0, 0, 0, 1, 10**6]),
        by_name=st.booleans(),
    )
    def submit(self, lane: str, cost: int, rank: int, eta: int, expires: int, by_name: bool) -> None:
        """A producer publishes, or a worker gets the message of a producer that knows nothing of us."""
        entry = self._entry(lane, cost, rank, eta, expires)
        before = self.world.of(PARKED), len(self.world.of(FLYING))
        verdict = self.backlog.gate(entry) if by_name else self.backlog.submit(entry)
        assert verdict.id == entry.id
        self._entered(entry, verdict, *before)

    @precondition(lambda self: self.world.of(PARKED, DELAYED, FLYING))
    @rule(data=st.data())
    def redelivered_without_ticket(self, data: Any) -> None:
        """The worker that parked it, or let it through, died before it could acknowledge."""
        task = data.draw(st.sampled_from(self.world.of(PARKED, DELAYED, FLYING)))
        assert self.backlog.gate(task.entry, again=True).what == "stale"

    # -- the scheduler ------------------------------------------------------------------------------------

    @rule(
        batch=st.sampled_from([1, 2, 5, 100]),
        dies=st.sampled_from(["no", "no", "no", "before publishing", "midway", "after publishing"]),
    )
    def release(self, batch: int, dies: str) -> None:
        look = self._look(batch)
        due = look.due
        assert look.parked == len(self.world.of(PARKED, DELAYED))
        assert len(self.world.of(FLYING)) <= self.backlog.window
        assert look.wait >= 0
        assert (look.lease < 0) == (not self.world.of(FLYING))
        if 1 < batch > len(due) and len(self.world.of(FLYING)) < self.backlog.window:
            self._nothing_is_due()
        published = {"before publishing": [], "midway": due[: len(due) // 2]}.get(dies, due)
        for task in published:
            self.world.copies.append(Copy(self.world.tasks[task.id].entry, task.ticket, task.slot))
        if dies == "no":
            assert self.backlog.confirm((task.id, task.ticket) for task in due) == len(due)

    @precondition(lambda self: self.world.of(FLYING))
    @rule(data=st.data(), named=st.booleans())
    def recover(self, data: Any, named: bool) -> None:
        """Leases that ran out, or tasks whose publish failed."""
        flying = [task.entry.id for task in self.world.of(FLYING)]
        if named:
            ids = data.draw(st.lists(st.sampled_from(flying), unique=True, min_size=1))
            assert self.backlog.recover(ids) == len(ids)
        else:
            ids = [id.decode() for id in self.client.zrangebyscore(self.flight_key, "-inf", self.clock())]
            assert self.backlog.recover() == len(ids)
        for id in ids:
            self.world.put_back(id)

    @precondition(lambda self: self.world.copies)
    @rule(data=st.data())
    def confirm(self, data: Any) -> None:
        copies = data.draw(st.lists(st.sampled_from(self.world.copies), max_size=4))
        current = [copy for copy in copies if self.world.is_current(copy)]
        assert self.backlog.confirm((copy.entry.id, copy.ticket) for copy in copies) == len(current)
        for copy in current:
            assert self.client.zscore(self.flight_key, copy.entry.id) > self.clock()

    # -- the broker ---------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.copies)
    @rule(data=st.data())
    def lose_a_copy(self, data: Any) -> None:
        self.world.copies.remove(data.draw(st.sampled_from(self.world.copies)))

    @precondition(lambda self: self.world.copies)
    @rule(data=st.data())
    def deliver_twice(self, data: Any) -> None:
        """Its worker seems dead, or the broker's visibility timeout is over."""
        copy = data.draw(st.sampled_from(self.world.copies))
        self.world.copies.append(Copy(copy.entry, copy.ticket, copy.slot, redelivered=True))

    # -- the worker ---------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.copies)
    @rule(data=st.data())
    def gate(self, data: Any) -> None:
        """A message that is late or comes again is asked about."""
        copy = data.draw(st.sampled_from(self.world.copies))
        world, id = self.world, copy.entry.id
        current, stale = world.is_current(copy), world.is_stale(copy)
        before = world.of(PARKED), len(world.of(FLYING))
        verdict = self.backlog.gate(copy.entry, copy.ticket, again=copy.redelivered)
        if current:
            self._decided(copy.entry)
        if stale:
            assert verdict.what == "stale"
            world.copies.remove(copy)
        elif current and copy.redelivered:
            assert verdict.what == "stale"
            world.copies.remove(copy)
            world.put_back(id)
        elif current and verdict.what == "parked":
            world.copies.remove(copy)
            world.put_back(id)
        elif current:
            assert (verdict.what, verdict.ticket, verdict.id) == ("go", copy.ticket, id)
            copy.slot = verdict.slot
        else:  # it had started: its worker died in the body, and the broker gives the task another life
            world.copies.remove(copy)
            self._entered(copy.entry, verdict, *before)

    @precondition(lambda self: any(not copy.redelivered for copy in self.world.copies))
    @rule(data=st.data())
    def start(self, data: Any) -> None:
        """A pool process is about to run the body."""
        copy = data.draw(st.sampled_from([copy for copy in self.world.copies if not copy.redelivered]))
        self._start(copy)

    @precondition(lambda self: self.world.holds)
    @rule(data=st.data())
    def begin(self, data: Any) -> None:
        """A start that was taken ahead of its slot begins."""
        self._begin(data.draw(st.sampled_from(self.world.holds)))

    @precondition(lambda self: self.world.holds)
    @rule(data=st.data())
    def die_holding(self, data: Any) -> None:
        self.world.holds.remove(data.draw(st.sampled_from(self.world.holds)))

    # -- starts taken ahead -------------------------------------------------------------------------------

    @rule(lane=st.sampled_from(LANES), units=st.integers(1, 16))
    def credit(self, lane: str, units: int) -> None:
        """A worker of a calm lane takes starts for tasks that nobody asked about."""
        entry = self._entry(lane, 1, 5, 0, 0)
        if not self.world.of(PARKED):
            self._decided(entry)
        if self.backlog.credit(entry.keys, [units] * len(entry.keys), SPAN / 1e6):
            assert not self.world.of(PARKED)
            until = self.world.true + SPAN
            self.world.credits += [Copy(entry, "", 0, begins=until) for _ in range(units)]

    @precondition(lambda self: self.world.credits)
    @rule(many=st.booleans())
    def use_credit(self, many: bool) -> None:
        """At any time within its span, and many at once if it comes to that."""
        usable = [copy for copy in self.world.credits if copy.begins >= self.world.true]
        for copy in usable if many else usable[:1]:
            self.world.credits.remove(copy)
            copy.begins = self.world.true
            self.world.charge(copy)

    # -- time, operators, and what servers do ---------------------------------------------------------------

    @rule(micros=st.sampled_from([1, 5_000, 25_000, 100_000, 10**6, 10**7, 35 * 10**6, 3600 * 10**6]))
    def advance(self, micros: int) -> None:
        self._advance(micros)

    @rule(micros=st.sampled_from([1, 40_000, 10**6, 60 * 10**6, 3600 * 10**6]))
    def clock_steps_back(self, micros: int) -> None:
        self.clock.tick(-micros)

    @precondition(lambda self: self.world.of(PARKED, DELAYED, FLYING))
    @rule(data=st.data())
    def forget(self, data: Any) -> None:
        ids = data.draw(st.lists(st.sampled_from(self.world.of(PARKED, DELAYED, FLYING)), max_size=3, min_size=1))
        gone = {task.entry.id for task in ids}
        assert self.backlog.forget(*gone, "unknown") == len(gone)
        for id in gone:
            self.world.end(id, started=False)

    @rule(lane=st.sampled_from([None, *LANES]))
    @precondition(lambda self: len(self.world.of(PARKED, DELAYED)) > 3)
    def purge(self, lane: str | None) -> None:
        keys = () if lane is None or all(limit.key is None for limit in self.world.limits) else (lane,)
        gone = [task for task in self.world.of(PARKED, DELAYED) if not keys or task.entry.lane == lane]
        assert self.backlog.depth(*keys) == len(gone)
        assert self.backlog.purge(*keys) == len(gone)
        for task in gone:
            self.world.end(task.entry.id, started=False)

    @precondition(lambda self: isinstance(self.world.limits[0], TokenBucket))
    @rule(rate=st.sampled_from(["1/s", "100/s", 0, None]), burst=st.sampled_from([0, 0, 1, 2, 50]))
    def set_rate(self, rate: object, burst: int) -> None:
        """Bursts change, too, below what a waiting task costs. `None`: back to the coded rate."""
        limit = self.world.limits[0]
        self.world.take_leave()
        if rate is None:
            self.backlog.reset_rate()
        else:
            self.backlog.set_rate(TokenBucket(rate, burst or limit.burst))

    @rule(what=st.sampled_from(["limits", "releases", "bucket"]), lane=st.sampled_from(LANES))
    def redis_loses(self, what: str, lane: str) -> None:
        """Evicted, or not yet replicated when the server failed over."""
        self.world.take_leave()
        if what == "limits":
            self.client.delete(self.backlog.keys[0])
        elif what == "releases":
            self.client.delete(self.releases_key)
        else:
            for i, limit in enumerate(self.world.limits):
                key = "-" if limit.key is None else lane
                self.client.delete(f"{self.backlog._bucket}{self.backlog.names[i]}|{key}")
                self.world.lose(i, key)


@pytest.mark.timeout(900)  # a failure is made smaller first, which takes minutes
def test_life(server: RedisServer) -> None:
    Life.server = server
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, print_blob=True,
            report_multiple_bugs=False, suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
    assert Life.steps >= min(20_000, 60 * EXAMPLES)
