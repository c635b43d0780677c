"""The backlog as a whole: nothing lost, in order, at the pace, with whatever happens to the limits meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.services import RedisServer
from tests.simulation import Simulation, entry
from throttle import Limiter, TokenBucket
from throttle.backlog import Backlog
from throttle.entry import Entry
from throttle.store import Store
from throttle.testing import FakeClock

Make = Callable[..., Backlog]


def test_b13_initial_units_are_those_of_first_use(backlog: Make, clock: FakeClock) -> None:
    simulation = Simulation(backlog(TokenBucket("1/s", 5, initial=0)), clock)
    start = clock()
    for n in range(4):
        assert simulation.submit(entry(n)) == "parked"
    simulation.drained(60)
    assert [(begun.at - start) / 1e6 for begun in simulation.begun] == [1, 2, 3, 4]


def test_a_task_parked_again_comes_back_when_its_bucket_allows(backlog: Make, clock: FakeClock) -> None:
    """Requests took the budget: the task goes round once more, not once each scheduler round."""
    limit = TokenBucket("1/min", name="api")
    made = backlog(limit, scope="shared")
    limiter = Limiter(made.store, "shared")
    assert limiter.acquire(limit)
    simulation = Simulation(made, clock)
    simulation.submit(entry(1))
    start = clock()
    simulation.drained(120)
    assert simulation.begun[0].at - start == pytest.approx(60e6, abs=10)
    assert simulation.reparked == 1
    assert simulation.looks < 20


def test_one_budget_for_requests_and_tasks(backlog: Make) -> None:
    for name in ("api", "per tenant", "a|b", "%41"):
        limit = TokenBucket("1/min", name=name, key="{tenant}")
        made = backlog(limit, scope="shared")
        known = made.store.namer.identity("t")
        assert made.start("take", "1", "", 0, (known,), (1,)) == ("go", 0)
        assert not Limiter(made.store, "shared").acquire(TokenBucket("1/min", name=name), key="t")


@pytest.mark.parametrize("step", [0.05, 0.5, 5, 60, 3600, 86400])
def test_b18_a_clock_that_steps_back_blocks_no_longer_than_one_interval(
    step: float, backlog: Make, clock: FakeClock
) -> None:
    """Also when no scheduler has looked since, as is usual while nothing waits."""
    made = backlog(TokenBucket("10/s"))
    simulation = Simulation(made, clock)
    simulation.run(15)
    assert simulation.submit(entry(1)) == "go"
    simulation.run(0.05)
    clock.advance(-step)
    simulation.step(-step)
    before = clock()
    simulation.submit(entry(2))
    simulation.drained(30)
    assert simulation.ids() == ["1", "2"]
    assert simulation.begun[1].at - before <= 110_000


def test_a_task_forgotten_in_flight_leaves_its_slot_to_the_next(backlog: Make, clock: FakeClock) -> None:
    """B72, B73: revoked or expired, it has spent nothing."""
    for limit, keys in ((TokenBucket("1/h"), ("-",)), (TokenBucket("1/h", key="{k}"), ("a",))):
        made = backlog(limit, scope=f"forget {limit.key}")
        simulation = Simulation(made, clock)
        first = made.submit(entry("first", keys[0], keys=keys))
        assert first.what == "go"
        assert simulation.submit(entry("second", keys[0], keys=keys)) == "parked"
        simulation.run(1)
        assert made.forget("first") == 1
        simulation.heed()
        before = clock()
        simulation.drained(10)
        assert simulation.begun[0].at - before < 50_000
        assert made.start("take", "first", first.ticket, first.slot, keys, (1,)) == ("stale", 0)


def test_a_client_that_decodes_replies_serves_as_well(server: RedisServer) -> None:
    """Parked messages are bytes of any kind, whatever the user's own client does with replies."""
    clock = FakeClock()
    scope = Backlog(Store(server.client(decode_responses=True), now=clock), "decoding", [TokenBucket("100/s")])
    said = [scope.submit(Entry(str(n), "-", ("-",), (1,), b"\xff\x00\n%d" % n)).what for n in range(5)]
    assert (said[0], said[-1]) == ("go", "parked")
    clock.advance(0.04)
    assert scope.release().due[-1].message == b"\xff\x00\n4"
