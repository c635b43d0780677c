"""The backlog as a whole: nothing lost, in order, at the pace, with whatever happens to the limits meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation import Simulation, entry
from throttle import Limiter, TokenBucket
from throttle.backlog import Backlog
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
