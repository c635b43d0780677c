"""Tasks under limits that count in windows: a log, and a quota of the calendar."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from tests.simulation import Begun, Simulation, entry
from throttle import InvalidRate, LeakyBucket, Quota, SlidingLog, ThrottleError, TokenBucket, throttled
from throttle.backlog import Backlog
from throttle.testing import FakeClock

Make = Callable[..., Backlog]
SECOND, HOUR = 10**6, 3600 * 10**6


def most(begun: list[Begun], period: int) -> int:
    """Most units in any window of that length, half open."""
    starts = sorted((start.at, start.cost) for start in begun)
    return max(sum(cost for at, cost in starts if first <= at < first + period) for first, _ in starts)


@pytest.mark.parametrize(
    ("rate", "count", "period"), [("10/min", 10, 60), ("3/s", 3, 1), ("1/5s", 1, 5), ("50/10s", 50, 10)]
)
def test_a_log_delays_tasks_until_its_window_has_room(
    rate: str, count: int, period: int, backlog: Make, clock: FakeClock
) -> None:
    """All of a window at once, the next as soon as those leave it; each comes before the limit about once."""
    simulation = Simulation(backlog(SlidingLog(rate)), clock)
    begin, total = clock(), 4 * count + 1
    for n in range(total):
        simulation.submit(entry(n))
    simulation.drained(8 * period + 5)
    assert sorted(simulation.ids(), key=int) == [str(n) for n in range(total)]
    assert most(simulation.begun, period * SECOND) <= count
    assert simulation.begun[-1].at - begin <= 4 * period * SECOND * 1.01 + 100_000
    assert simulation.reparked <= 3 * 5 + total / 10


@pytest.mark.parametrize("seed", range(3))
def test_a_log_holds_though_pool_processes_stand_still(seed: int, backlog: Make, clock: FakeClock) -> None:
    dice = Random(seed)
    simulation = Simulation(
        backlog(SlidingLog("5/s")), clock, stall=lambda: dice.randrange(700_000) if dice.random() < 0.15 else 0
    )
    for n in range(60):
        simulation.submit(entry(n, cost=dice.choice([1, 1, 2])))
    simulation.drained(120).run(5)
    assert len(simulation.begun) == 60
    assert most(simulation.begun, SECOND) <= 5


def test_a_log_beside_a_rate_and_by_key(backlog: Make, clock: FakeClock) -> None:
    made = backlog(SlidingLog("4/10s", key="{k}"), TokenBucket("2/s"))
    simulation = Simulation(made, clock)
    for n in range(12):
        for key in ("a", "b"):
            simulation.submit(entry(f"{key}{n}", key, keys=(key, "-")))
    simulation.drained(60)
    for key in ("a", "b"):
        mine = [start for start in simulation.begun if start.lane == key]
        assert len(mine) == 12
        assert most(mine, 10 * SECOND) <= 4
    assert most(simulation.begun, SECOND) <= 2


def test_a_quota_delays_tasks_until_its_period_turns(backlog: Make, clock: FakeClock) -> None:
    clock.tick(HOUR - clock() % HOUR - 600 * SECOND)  # ten minutes before the hour
    begin = clock()
    simulation = Simulation(backlog(Quota(5, "hour")), clock)
    for n in range(13):
        simulation.submit(entry(n))
    simulation.drained(3 * 3600)
    begun = sorted(simulation.begun, key=lambda start: start.at)
    assert [int(start.id) for start in begun] == list(range(13))
    assert [(start.at - begin + 3000 * SECOND) // HOUR for start in begun] == [0] * 5 + [1] * 5 + [2] * 3
    assert begun[5].at - begin - 600 * SECOND < 50_000, "at the turn of the hour"
    assert simulation.reparked <= 16


def test_a_quota_is_shared_with_requests(backlog: Make, clock: FakeClock) -> None:
    from throttle import Limiter

    quota = Quota(3, "day", name="plan")
    made = backlog(quota, scope="shared")
    requests = Limiter(made.store, "shared")
    assert requests.acquire(quota, cost=2)
    simulation = Simulation(made, clock)
    for n in range(2):
        simulation.submit(entry(n))
    simulation.run(60)
    assert len(simulation.begun) == 1
    assert not requests.acquire(quota)
    simulation.drained(2 * 86400)
    assert len(simulation.begun) == 2


@pytest.mark.parametrize("limit", [Quota(3, "day"), SlidingLog("3/day")])
def test_b69_what_would_wait_for_the_day_to_turn_fails(limit: object, backlog: Make) -> None:
    """At submit, once the count is used up; what a quota had let go by then fails when it would start."""
    made, longest = backlog(limit), 60 * SECOND

    def take(id: str, ticket: str = "") -> str:
        return made.start("take", id, ticket, 0, ("-",), (1,), longest).what

    said = [made.submit(entry(n, bounds=(longest, 0))) for n in range(5)]
    let_go = 5 if isinstance(limit, Quota) else 3
    assert [verdict.what for verdict in said] == ["go"] * let_go + ["full"] * (5 - let_go)
    ends = [take(str(n), verdict.ticket) for n, verdict in enumerate(said[:let_go])]
    assert ends == ["go"] * 3 + ["full"] * (let_go - 3)
    assert made.flying() == 0
    assert take("of nobody") == "full"
    assert made.submit(entry("no", bounds=(longest, 0))).what == "full"
    assert made.submit(entry("yes")).what == "parked"
    assert made.estimate("-", ("-",), (1,))[0] > 60


def test_borders_that_have_run_out_are_declared_anew(backlog: Make, clock: FakeClock) -> None:
    """64 hours later."""
    made = backlog(Quota(1, "hour"))
    simulation = Simulation(made, clock)
    simulation.submit(entry(1))
    simulation.run(1)
    clock.advance(100 * 3600)
    simulation.submit(entry(2))
    simulation.run(1)
    assert simulation.ids() == ["1", "2"]


def test_a_task_refuses_limits_for_requests() -> None:
    from throttle import FixedWindow, SlidingWindow

    for limit in (FixedWindow("1/s"), SlidingWindow("1/s")):
        with pytest.raises(InvalidRate, match="for tasks say SlidingLog"):
            throttled(limit)
    with pytest.raises(ThrottleError, match="inside SlidingLog"):
        throttled(SlidingLog("1/s"), burst=2)
    assert throttled(SlidingLog("1/s"), Quota(5, "day"), LeakyBucket("1/s"))


def test_a_slot_ahead_forgets_nothing_that_still_counts(backlog: Make, clock: FakeClock) -> None:
    """A start that its own bucket holds for 35 ms drops what will be too old then; who asks now must still see it."""
    made = backlog(SlidingLog("3/10s"), TokenBucket("20/s", key="{k}"))

    def take(key: str) -> str:
        return made.start("take", f"{key}{clock()}", "", 0, ("-", key), (1, 1)).what

    assert [take("a"), take("b")] == ["go", "go"]
    clock.tick(9_980_000)
    assert made.store.client.set(made._buckets(("-", "c"))[1], f"{clock() + 35_000} {clock()} 50000 1")
    assert take("c") == "hold"
    assert take("d") != "go", "the fourth in ten seconds"


def test_a_process_that_stood_still_moves_no_log(backlog: Make, clock: FakeClock) -> None:
    """It asks again near its turn: a start seconds ahead would look as if the clock had stepped back."""
    made = backlog(SlidingLog("1/5s"))
    slot = made.start("take", "a", "", 0, ("-",), (1,)).slot
    clock.advance(5)
    assert made.start("take", "b", "", 0, ("-",), (1,)).what == "go"
    clock.advance(1)
    assert made.start("late", "a", "", slot, ("-",), (1,)).what == "wait"
    clock.advance(3.9)
    assert made.start("take", "c", "", 0, ("-",), (1,)).what == "wait"


@pytest.mark.parametrize(
    ("low", "high"), [(Quota(3, "month"), Quota(9, "month")), (SlidingLog("3/day"), SlidingLog("9/day"))]
)
def test_b27_a_raised_count_lets_out_what_waits(low: object, high: object, backlog: Make, clock: FakeClock) -> None:
    simulation = Simulation(backlog(low), clock)
    for n in range(9):
        simulation.submit(entry(n))
    simulation.run(60)
    assert len(simulation.begun) == 3
    simulation.backlog = backlog(high)
    simulation.heed()
    simulation.run(120)
    assert len(simulation.begun) == 9


def test_a_pause_fails_nothing_that_is_in_flight(backlog: Make, clock: FakeClock) -> None:
    made = backlog(TokenBucket("100/s"), SlidingLog("1000/h"))
    both = {"keys": ("-", "-"), "bounds": (60 * SECOND, 0)}
    flying = made.submit(entry("x", **both))
    made.set_rate(TokenBucket(0))
    turn = made.start("take", "x", flying.ticket, flying.slot, ("-", "-"), (1, 1), 60 * SECOND)
    assert turn.what == "parked"


def test_an_estimate_knows_what_is_used_up(backlog: Make, clock: FakeClock) -> None:
    made = backlog(Quota(1, "day"))
    made.start("take", "x", "", 0, ("-",), (1,))
    assert made.estimate("-", ("-",), (1,))[0] > 60


def test_another_kind_of_limit_beside_the_old_one(backlog: Make, clock: FakeClock) -> None:
    """A rolling deploy: workers of both releases start tasks, and neither trips over the other's bucket."""
    old, new = backlog(TokenBucket("1/s")), backlog(SlidingLog("1/s"))
    for made in (old, new, old):
        clock.advance(2)
        assert made.start("take", f"t{clock()}", "", 0, ("-",), (1,)).what == "go"
    old.declare(replace=True)
    clock.advance(2)
    assert new.start("take", "last", "", 0, ("-",), (1,)).what == "go"
