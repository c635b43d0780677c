"""How long a task would wait, and backlogs that take no more: B69, B109."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.simulation import Simulation, entry
from throttle import TokenBucket
from throttle.backlog import Backlog
from throttle.testing import FakeClock

Make = Callable[..., Backlog]
ALL = ("-", ("-",), (1,))


def state(made: Backlog) -> dict[bytes, object]:
    client = made.store.client
    return {key: client.dump(key) for key in client.keys("*")}


def test_b109_an_estimate_counts_those_that_wait_and_changes_nothing(backlog: Make, clock: FakeClock) -> None:
    made = backlog(TokenBucket("1/s"))
    assert made.estimate(*ALL) == (0, 0)
    simulation = Simulation(made, clock)
    for n in range(101):
        simulation.submit(entry(n))
    before = state(made)
    assert made.estimate(*ALL) == (101, 100)
    assert state(made) == before
    simulation.run(50)
    assert made.estimate(*ALL)[0] == pytest.approx(51, abs=1)


def test_an_estimate_is_when_it_starts(backlog: Make, clock: FakeClock) -> None:
    """Of own and common limits, whichever holds it; behind its own key's tasks, not behind another's."""
    made = backlog(TokenBucket("1/s", key="{k}"), TokenBucket("10/s", 5))
    simulation = Simulation(made, clock)
    for n in range(30):
        simulation.submit(entry(f"a{n}", "a", keys=("a", "-")))
    for lane in ("a", "b"):
        told, _ = made.estimate(lane, (lane, "-"), (1, 1))
        simulation.submit(entry(f"{lane}!", lane, keys=(lane, "-")))
        asked = clock()
        simulation.run(60, lambda lane=lane: f"{lane}!" in simulation.ids())
        began = next(begun.at for begun in simulation.begun if begun.id == f"{lane}!")
        assert told == pytest.approx((began - asked) / 1e6, abs=1 if lane == "a" else 3)


def test_more_urgent_tasks_wait_behind_fewer(backlog: Make) -> None:
    made = backlog(TokenBucket("1/s"))
    for n in range(20):
        made.submit(entry(n, rank=9 if n % 2 else 0))
    assert [made.estimate(*ALL, rank)[1] for rank in (0, 5, 9)] == [9, 9, 19]


def test_of_a_closed_limit_nobody_knows(backlog: Make) -> None:
    made = backlog(TokenBucket(0))
    made.submit(entry(1))
    assert made.estimate(*ALL) == (math.inf, 1)


def test_b69_a_task_that_would_wait_too_long_is_not_taken(backlog: Make, clock: FakeClock) -> None:
    made = backlog(TokenBucket("1/s"))
    simulation = Simulation(made, clock)
    verdicts = [made.submit(entry(n, bounds=(10_000_000, 0))) for n in range(100)]
    assert [verdict.what for verdict in verdicts] == ["go"] + ["parked"] * 10 + ["full"] * 89
    assert (verdicts[11].wait, verdicts[11].over) == (11_000_000, 1_000_000)
    assert made.depth() == 10
    for n in range(11):
        simulation._entries[str(n)] = entry(n)
    simulation.run(1.0)
    assert made.submit(entry("again", bounds=(10_000_000, 0))).what == "parked"
    assert made.gate(entry("other", bounds=(10_000_000, 0))).what == "full"
    assert made.submit(entry("patient")).what == "parked"


def test_b69_a_backlog_of_so_many_takes_no_more(backlog: Make) -> None:
    made = backlog(TokenBucket("2/s"))
    bounded = replace(entry(0), bounds=(0, 5))
    said = [made.submit(replace(bounded, id=str(n))) for n in range(8)]
    assert [verdict.what for verdict in said] == ["go"] + ["parked"] * 5 + ["full"] * 2
    assert said[-1].over == 500_000, "until one has gone"
    assert not made.store.client.hexists(made.keys[3], "7")


def test_a_closed_limit_does_not_refuse_for_its_wait(backlog: Make) -> None:
    """An operator's pause is no reason to fail: it ends when he says."""
    made = backlog(TokenBucket(0))
    assert [made.submit(entry(n, bounds=(1_000_000, 3))).what for n in range(5)] == ["parked"] * 3 + ["full"] * 2
