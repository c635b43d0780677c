"""The backlog as a whole: nothing lost, in order, and at the pace, which is kept to and used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from tests.services import RedisServer
from tests.simulation import Simulation, entry, excess
from throttle import Limiter, TokenBucket
from throttle.backlog import Backlog
from throttle.entry import Entry
from throttle.store import Store
from throttle.testing import FakeClock

Make = Callable[..., Backlog]

#: Arithmetic over many tasks: one version of Redis will do.
once = pytest.mark.parametrize("any_process", ["system"], indirect=True)


def test_b13_initial_units_are_those_of_first_use(backlog: Make, clock: FakeClock) -> None:
    simulation = Simulation(backlog(TokenBucket("1/s", 5, initial=0)), clock)
    start = clock()
    for n in range(4):
        assert simulation.submit(entry(n)) == "parked"
    simulation.drained(60)
    assert [(begun.at - start) / 1e6 for begun in simulation.begun] == [1, 2, 3, 4]


def test_a_task_parked_again_comes_back_when_its_bucket_allows(backlog: Make, clock: FakeClock) -> None:
    """Requests took the budget half a minute ago: the task goes round once more, and not by its own slot twice."""
    limit = TokenBucket("1/min", name="api")
    made = backlog(limit, scope="shared")
    assert Limiter(made.store, "shared").acquire(limit)
    clock.advance(30)
    simulation = Simulation(made, clock)
    assert simulation.submit(entry(1)) == "go"
    start = clock()
    simulation.drained(120)
    assert simulation.begun[0].at - start == pytest.approx(30e6, abs=10)
    assert simulation.reparked == 1
    assert simulation.looks < 20


def test_a_lost_copy_costs_no_slot(backlog: Make, clock: FakeClock) -> None:
    """At one per hour, a scheduler that dies costs the five seconds of its claim and not an hour."""
    made = backlog(TokenBucket("1/h"))
    simulation = Simulation(made, clock, late=lambda _: 60 * 10**6)
    assert simulation.submit(entry(1)) == "go"
    clock.advance(31)
    assert made.recover() == 1
    simulation.late = lambda _: 0
    before = clock()
    simulation.drained(20)
    assert simulation.begun[0].at - before < 50_000


def test_one_budget_for_requests_and_tasks(backlog: Make) -> None:
    for name in ("api", "per tenant", "a|b", "%41"):
        limit = TokenBucket("1/min", name=name, key="{tenant}")
        made = backlog(limit, scope="shared")
        known = made.store.namer.identity("t")
        assert made.start("take", "1", "", 0, (known,), (1,))[:2] == ("go", 0)
        assert not Limiter(made.store, "shared").acquire(TokenBucket("1/min", name=name), key="t")


def test_a_client_that_decodes_replies_serves_as_well(server: RedisServer) -> None:
    """Parked messages are bytes of any kind, whatever the user's own client does with replies."""
    clock = FakeClock()
    scope = Backlog(Store(server.client(decode_responses=True), now=clock), "decoding", [TokenBucket("100/s")])
    said = [scope.submit(Entry(str(n), "-", ("-",), (1,), b"\xff\x00\n%d" % n)).what for n in range(5)]
    assert (said[0], said[-1]) == ("go", "parked")
    clock.advance(0.04)
    assert scope.release().due[-1].message == b"\xff\x00\n4"


@once
def test_b91_first_in_first_out_and_no_newcomer_overtakes(backlog: Make, clock: FakeClock) -> None:
    simulation = Simulation(backlog(TokenBucket("100/s", 10)), clock)
    for n in range(200):
        simulation.submit(entry(n))
    for n in range(200, 400):
        simulation.at(n / 200, simulation.submit, entry(n))
    simulation.drained(10)
    assert simulation.ids() == [str(n) for n in range(400)]
    assert excess(simulation.begun, 10_000, 10) == 0


@once
def test_b15_the_whole_rate_is_used_while_tasks_wait(backlog: Make, clock: FakeClock) -> None:
    """Twice the rate comes in for 20 s; and each 10 s let out at least 99 % of what the limit allows."""
    simulation = Simulation(backlog(TokenBucket("10/s")), clock)
    start = clock()
    for n in range(400):
        simulation.at(n * 0.05, simulation.submit, entry(n))
    simulation.run(20)
    simulation.drained(60)
    times = [(begun.at - start) / 1e6 for begun in simulation.begun]
    for window in range(0, 28, 2):
        assert sum(window <= at < window + 10 for at in times) >= 99
    assert excess(simulation.begun, 100_000, 1) == 0
    assert times[-1] == pytest.approx(39.9, abs=0.1)


@once
def test_b11_each_is_let_out_at_its_own_slot_and_asks_twice_at_most(backlog: Make, clock: FakeClock) -> None:
    simulation = Simulation(backlog(TokenBucket("100/60s", 100)), clock)
    start = clock()
    for n in range(600):
        simulation.submit(entry(n))
    simulation.drained(400)
    seconds = Counter(int((begun.at - start) / 1e6) for begun in simulation.begun[100:])
    assert max(seconds.values()) <= 3
    assert max(seconds) == pytest.approx(300, abs=1)
    assert max(simulation.asked.values()) <= 2


@once
@pytest.mark.parametrize("late", [0, 3_000, 40_000])
@pytest.mark.parametrize("every", [1, 7])
@pytest.mark.parametrize(("rate", "burst"), [("10/s", 1), ("50/s", 5), ("1000/s", 1), ("1/min", 2)])
def test_rule_1_holds_and_is_used_though_tasks_come_late(
    rate: str, burst: int, every: int, late: int, backlog: Make, clock: FakeClock
) -> None:
    """A hop longer than release looks ahead costs its length once, and 1 % of the rate at most."""
    limit = TokenBucket(rate, burst)
    simulation = Simulation(backlog(limit), clock, late=lambda task: late if int(task) % every == 0 else 0)
    start, count = clock(), 300
    for n in range(count):
        simulation.submit(entry(n))
    simulation.drained(count * limit.interval / 1e6 + 10)
    assert sorted(simulation.ids(), key=int) == [str(n) for n in range(count)]
    assert excess(simulation.begun, limit.interval, burst) == 0
    ideal = (count - burst) * limit.interval
    assert simulation.begun[-1].at - start <= ideal * 1.01 + late + 12_000
    if late < 20_000 and limit.interval > late:
        assert sum(simulation.waits) / count < 3_000, "they wait in pool slots"


@once
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("rate", "burst"), [("20/s", 1), ("20/s", 4), ("200/s", 1), ("1000/s", 10), ("6/min", 2)])
def test_rule_1_holds_though_pool_processes_stand_still(
    rate: str, burst: int, seed: int, backlog: Make, clock: FakeClock
) -> None:
    """One wake-up in ten comes late, by up to four intervals; each costs its lateness at most, never the bound."""
    limit, dice, lost = TokenBucket(rate, burst), Random(seed), [0]

    def stall() -> int:
        late = dice.randrange(4 * limit.interval) if dice.random() < 0.1 else 0
        lost[0] += late
        return late

    simulation = Simulation(backlog(limit), clock, stall=stall)
    start, count = clock(), 200
    for n in range(count):
        simulation.submit(entry(n))
    simulation.drained(3 * count * limit.interval / 1e6 + 10).run(10 * limit.interval / 1e6)
    assert sorted(simulation.ids(), key=int) == [str(n) for n in range(count)]
    assert excess(simulation.begun, limit.interval, burst) == 0
    assert simulation.begun[-1].at - start <= (count - burst) * limit.interval * 1.01 + lost[0] + 12_000


def test_b36_one_scope_is_one_count(backlog: Make, clock: FakeClock) -> None:
    """Whatever the arguments, and for all tasks of the scope: five per second together."""
    mine, yours = backlog(TokenBucket("5/s", 5), scope="shared"), backlog(TokenBucket("5/s", 5), scope="shared")
    said = [made.submit(entry(f"{n}{made is mine}")).what for n in range(10) for made in (mine, yours)]
    assert said.count("go") == 5
    assert mine.depth() == yours.depth() == 15
    assert backlog(TokenBucket("5/s", 5), scope="other").submit(entry(1)).what == "go"


def test_b90_a_key_with_a_long_backlog_does_not_hold_up_another(backlog: Make, clock: FakeClock) -> None:
    simulation = Simulation(backlog(TokenBucket("10/s", key="{k}")), clock)
    for n in range(1000):
        simulation.submit(entry(f"a{n}", "a", keys=("a",)))
    simulation.run(1)
    assert simulation.submit(entry("b", "b", keys=("b",))) == "go"
    simulation.run(0.1)
    assert "b" in simulation.ids()


@once
def test_b90_a_common_limit_is_shared_fairly(backlog: Make, clock: FakeClock) -> None:
    """20 keys with 10 to 2,000 tasks each: whoever still waits gets its equal share of the common limit."""
    simulation = Simulation(backlog(TokenBucket("200/s", key="{k}"), TokenBucket("100/s")), clock)
    for lane in range(20):
        for n in range(10 * (lane + 1) ** 2 // 2 + 10):
            simulation.submit(entry(f"{lane}.{n}", f"l{lane}", keys=(f"l{lane}", "-")))
    simulation.run(10)
    counts = [sum(begun.lane == f"l{lane}" for begun in simulation.begun) for lane in range(20)]
    busy = [count for lane, count in enumerate(counts) if 10 * (lane + 1) ** 2 // 2 + 10 > 70]
    assert sum(counts) >= 990
    assert min(counts) >= 10
    assert sum(busy) ** 2 / (len(busy) * sum(count**2 for count in busy)) >= 0.99, "Jain's index"
    assert max(busy) - min(busy) <= 3


def test_b92_the_most_urgent_goes_next(backlog: Make, clock: FakeClock) -> None:
    simulation = Simulation(backlog(TokenBucket("10/s")), clock)
    for n in range(100):
        simulation.submit(entry(n, rank=9))
    simulation.submit(entry("urgent", rank=0))
    simulation.submit(entry("soon", rank=5))
    simulation.drained(60)
    assert simulation.ids()[:3] == ["0", "urgent", "soon"]
    assert simulation.ids()[3:] == [str(n) for n in range(1, 100)]


def test_an_urgent_task_does_not_wait_for_the_slot_of_a_costly_one(backlog: Make, clock: FakeClock) -> None:
    simulation = Simulation(backlog(TokenBucket("1/s", 100, key="{k}")), clock)
    for n in range(2):
        simulation.submit(entry(n, "a", keys=("a",), cost=100, rank=5))
    simulation.run(3)
    simulation.submit(entry("urgent", "a", keys=("a",), rank=0))
    simulation.run(0.1)
    assert simulation.ids() == ["0", "urgent"]


def test_costs_are_units_and_not_tasks(backlog: Make, clock: FakeClock) -> None:
    simulation = Simulation(backlog(TokenBucket("10/s", 5)), clock)
    for n in range(40):
        simulation.submit(entry(n, cost=1 + n % 5))
    simulation.drained(60)
    assert simulation.ids() == [str(n) for n in range(40)]
    assert excess(simulation.begun, 100_000, 5) == 0


@pytest.mark.parametrize("eta", [5_000, 24_999, 25_000, 25_001, 10**6])
def test_b21_an_eta_is_kept_to_the_microsecond(eta: int, backlog: Make, clock: FakeClock) -> None:
    simulation = Simulation(backlog(TokenBucket("1000/s", 100)), clock)
    due = clock() + eta
    simulation.submit(entry(1, eta=due))
    simulation.drained(5)
    assert 0 <= simulation.begun[0].at - due <= 10_000


def test_b72_an_expired_task_goes_out_uncharged(backlog: Make, clock: FakeClock) -> None:
    """So that a worker tells of it; and the slot is the next one's."""
    made = backlog(TokenBucket("1/min"))
    first = made.submit(entry("first"))
    assert made.start("take", "first", first.ticket, first.slot, ("-",), (1,))[:2] == ("go", 0)
    made.submit(entry("old", expires=clock() + 10**6))
    made.submit(entry("next"))
    clock.advance(60)
    look = made.release()
    assert [task.id for task in look.due] == ["old", "next"]
    assert made.forget("old") == 1
    assert made.start("take", "next", look.due[1].ticket, look.due[1].slot, ("-",), (1,))[:2] == ("go", 0)


def test_the_message_is_never_touched(backlog: Make, clock: FakeClock) -> None:
    bodies = [bytes(range(256)), b"", b"\n\n\n\n\n\n\n\n\n", b"%s|{}", b"x" * 10**6]
    made = backlog(TokenBucket("100/s"))
    made.submit(entry("first", cost=1))
    made.submit(entry("second"))
    made.submit(entry("third"))
    made.submit(entry("fourth"))
    for n, body in enumerate(bodies):
        made.submit(replace(entry(n, eta=clock() + n % 2 * 50_000), message=body))
    seen = {}
    for _ in range(20):
        clock.advance(0.02)
        seen |= {task.id: task.message for task in made.release().due}
    assert {str(n): body for n, body in enumerate(bodies)}.items() <= seen.items()


def test_tasks_in_flight_are_bounded(backlog: Make, clock: FakeClock) -> None:
    """Stopped workers do not let the backlog pile up in the broker."""
    made = backlog(TokenBucket("100/s", 500))
    said = [made.submit(entry(n)).what for n in range(200)]
    assert said.count("go") == made.flying() == made.window == 64
    clock.advance(10)
    assert made.release().due == []
    taken = entry(0)
    assert made.forget(taken.id) == 1
    assert [task.id for task in made.release().due] == ["64"]


def test_rule_2_nobody_overtakes_who_waits_for_the_common_limit(backlog: Make, clock: FakeClock) -> None:
    simulation = Simulation(backlog(TokenBucket("100/s", key="{k}"), TokenBucket("1/s")), clock)
    said = [simulation.submit(entry(lane, lane, keys=(lane, "-"))) for lane in "abc"]
    assert said == ["go", "parked", "parked"]
    simulation.run(0.1)
    clock.advance(5)  # its slot has come, and no scheduler has looked yet
    assert simulation.submit(entry("d", "d", keys=("d", "-"))) == "parked"
    assert simulation.drained(10).ids() == ["a", "b", "c", "d"]


def test_what_has_expired_does_not_wait_for_its_eta(backlog: Make, clock: FakeClock) -> None:
    """The clock stepped back to before its ETA, after its expiry: the scheduler would look without pause till then."""
    made, now = backlog(TokenBucket("10/s", key="{k}")), clock()
    made.submit(entry("x", "a", keys=("a",), eta=now + 100 * 10**6, expires=now + 10 * 10**6))
    clock.advance(100)
    (due,) = made.release().due
    clock.advance(-50)
    made.recover([due.id])
    look = made.release()
    assert [task.id for task in look.due] == ["x"]
