"""What happens to a scope meanwhile: other limits, another clock, lost keys, tasks that are taken out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation import Simulation, entry, excess
from throttle import Limiter, TokenBucket
from throttle.backlog import Backlog
from throttle.testing import FakeClock

Make = Callable[..., Backlog]

#: Arithmetic over many tasks: one version of Redis will do.
once = pytest.mark.parametrize("any_process", ["system"], indirect=True)


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
        assert made.start("take", "first", first.ticket, first.slot, keys, (1,))[:2] == ("stale", 0)


def test_b27_raising_the_rate_lets_the_rest_out_at_the_new_one(backlog: Make, clock: FakeClock) -> None:
    for coded, raised, rest in (("1/s", "10/s", 10.2), ("1/h", "10/s", 10.2)):
        made = backlog(TokenBucket(coded), scope=f"raise {coded}")
        simulation = Simulation(made, clock)
        for n in range(101):
            simulation.submit(entry(n))
        simulation.run(0.5)
        made.set_rate(TokenBucket(raised))
        simulation.heed()
        before = clock()
        simulation.drained(60)
        assert (clock() - before) / 1e6 == pytest.approx(rest, abs=0.3)
        assert excess(simulation.begun[1:], 100_000, 1) == 0


@once
def test_b27_lowering_the_rate_never_bursts(backlog: Make, clock: FakeClock) -> None:
    """The bucket was empty under the old rate, so it is under the new one."""
    made = backlog(TokenBucket("1000/s", 1000))
    simulation = Simulation(made, clock)
    for n in range(1300):
        simulation.submit(entry(n))
    simulation.run(0.1)
    done = len(simulation.begun)
    assert done >= 1000
    made.set_rate(TokenBucket("10/s", 1000))
    simulation.heed()
    flying = made.flying()
    simulation.run(5)
    assert len(simulation.begun) - done <= 5 * 10 + flying + 1


def test_b27_the_burst_is_lowered_at_once(limiter: Limiter, clock: FakeClock) -> None:
    wide, narrow = TokenBucket("1000/s", 1000, name="n"), TokenBucket("1000/s", 10, name="n")
    assert limiter.acquire(wide)
    assert sum(bool(limiter.acquire(narrow)) for _ in range(20)) == 10
    assert limiter.peek(narrow).retry_after == 0.001


def test_b28_an_override_is_known_to_those_who_come_later(backlog: Make, clock: FakeClock) -> None:
    made = backlog(TokenBucket("1/h"))
    made.set_rate(TokenBucket("100/s", 5))
    later = backlog(TokenBucket("1/h"))  # a worker that starts declares the coded limits
    assert [later.submit(entry(n)).what for n in range(6)] == ["go"] * 5 + ["go"]
    later.reset_rate()
    assert made.submit(entry(7)).what == "parked"


@once
def test_b24_closed_parks_and_keeps(backlog: Make, clock: FakeClock) -> None:
    for key in (None, "{k}"):
        made = backlog(TokenBucket(0, key=key), scope=f"closed {key}")
        simulation = Simulation(made, clock)
        assert [simulation.submit(entry(n)) for n in range(3)] == ["parked"] * 3
        simulation.run(36_000)
        assert (simulation.begun, made.depth()) == ([], 3)
        assert simulation.looks < 36_000 / 15, "and it costs next to nothing"
        made.set_rate(TokenBucket("10/s"))
        simulation.heed()
        before = clock()
        assert simulation.drained(1).ids() == ["0", "1", "2"]
        assert clock() - before < 0.5e6


@pytest.mark.parametrize("part", range(11))
def test_b41_any_key_may_be_lost(part: int, backlog: Make, clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    """Evicted, or not replicated when the server failed over: no script fails, and those that are left go on."""
    made = backlog(TokenBucket("100/s", key="{k}"))
    simulation = Simulation(made, clock)
    for n in range(30):
        simulation.submit(entry(f"{n % 3}:{n}", f"k{n % 3}", keys=(f"k{n % 3}",)))
    simulation.run(0.05)
    made.store.client.delete(made.keys[part])
    simulation.run(100)
    name = made.keys[part].rsplit(":", 1)[1]
    assert excess([begun for begun in simulation.begun if begun.lane == "k1"], 10_000, 1) <= 1
    if name in ("line", "messages"):
        assert made.depth() == 0
        assert ("lost their message" in caplog.text) == (name == "messages")
    else:
        assert len(set(simulation.ids())) == 30


def test_b40_a_lost_bucket_is_a_full_one(backlog: Make, clock: FakeClock) -> None:
    made = backlog(TokenBucket("10/s", 5))
    simulation = Simulation(made, clock)
    for n in range(100):
        simulation.submit(entry(n))
    simulation.run(3)
    made.store.client.delete(made._buckets(("-",))[0])
    simulation.drained(30)
    assert excess(simulation.begun, 100_000, 5) <= 5


def test_b07_b27_a_burst_lowered_below_a_waiting_cost_does_not_block_the_lane(backlog: Make, clock: FakeClock) -> None:
    """It cannot be told to its sender any more: it takes a full bucket, and what it costs beyond comes after it."""
    for key, keys in ((None, ("-",)), ("{k}", ("a",))):
        made = backlog(TokenBucket("10/s", 10, key=key), scope=f"lowered {key}")
        simulation = Simulation(made, clock)
        for n in range(3):
            simulation.submit(entry(n, keys[0], keys=keys, cost=10))
        simulation.submit(entry("small", keys[0], keys=keys))
        simulation.run(0.1)
        assert simulation.ids() == ["0"]
        made.set_rate(TokenBucket("10/s", 2))
        simulation.heed()
        before = clock()
        simulation.drained(60)
        assert simulation.ids() == ["0", "1", "2", "small"]
        after = [(begun.at - before) / 1e6 for begun in simulation.begun[1:]]
        assert after == pytest.approx([0.1, 1.1, 2.0], abs=0.05)


def test_b72_a_task_that_expires_in_a_closed_scope_goes_out(backlog: Make, clock: FakeClock) -> None:
    """Else it would lie there for ever, and nobody hear of it."""
    for key, keys in ((None, ("-",)), ("{k}", ("a",))):
        made = backlog(TokenBucket(0, key=key), scope=f"expires {key}")
        simulation = Simulation(made, clock)
        gone: list[str] = []
        simulation.dropped = gone.append
        simulation.submit(entry(1, keys[0], keys=keys, expires=clock() + 3 * 10**6))
        simulation.submit(entry(2, keys[0], keys=keys))
        simulation.run(2.9)
        assert (gone, made.depth()) == ([], 2)
        simulation.run(30)
        assert (gone, made.depth()) == (["1"], 1)


@pytest.mark.parametrize("how", ["purge", "purge key", "forget"])
def test_a_lane_that_was_emptied_is_as_new(how: str, backlog: Make, clock: FakeClock) -> None:
    made = backlog(TokenBucket("1/min", 100, key="{k}"))
    client, keys = made.store.client, ("a",)
    first = made.submit(entry("first", "a", keys=keys, cost=50))
    made.start("take", "first", first.ticket, first.slot, keys, (50,))
    for n in range(3):
        assert made.submit(entry(n, "a", keys=keys, cost=60)).what == "parked"
    removed = made.forget("0", "1", "2") if how == "forget" else made.purge(*keys if how == "purge key" else ())
    assert removed == 3
    assert not client.exists(*(made.keys[part] for part in (2, 3, 4, 5, 6, 7, 8))), "no empty lane stays"
    assert made.submit(entry("small", "a", keys=keys)).what == "go", "nobody is before it"


@pytest.mark.parametrize(("before", "after", "soon"), [("1/h", "10/s", True), ("1000/s", "1/min", False)])
def test_b27_a_limit_that_was_closed_meanwhile(
    before: str, after: str, soon: bool, backlog: Make, clock: FakeClock
) -> None:
    """To pause and go on at another rate neither waits for the old one nor bursts."""
    made = backlog(TokenBucket(before, 50))
    simulation = Simulation(made, clock)
    for n in range(150):
        simulation.submit(entry(n))
    simulation.run(0.05)
    assert len(simulation.begun) >= 50
    for rate in (0, after):
        made.set_rate(TokenBucket(rate, 50))
        simulation.heed()
        simulation.run(0.2)
    done = len(simulation.begun)
    simulation.run(5)
    started = len(simulation.begun) - done
    assert started >= 45 if soon else started <= 1


def test_reset_lets_go_what_waits_for_the_old_count(backlog: Make, clock: FakeClock) -> None:
    made = backlog(TokenBucket("1/h", 2, key="{k}"))
    simulation = Simulation(made, clock)
    for n in range(4):
        simulation.submit(entry(n, "a", keys=("a",)))
    simulation.run(1)
    assert simulation.ids() == ["0", "1"]
    made.reset()
    simulation.heed()
    simulation.run(0.1)
    assert simulation.ids() == ["0", "1", "2", "3"]


def test_what_is_dropped_makes_room_in_flight_at_once(backlog: Make, clock: FakeClock) -> None:
    """Else a scope whose workers drop what has expired would stand still until the next look, 20 s later."""
    made = backlog(TokenBucket("100/s", 1000))
    simulation = Simulation(made, clock, late=lambda _: 10**9)  # they never come to their starts
    for n in range(80):
        simulation.submit(entry(n))
    simulation.run(1)
    assert (made.flying(), made.depth()) == (64, 16)
    made.forget(*(str(n) for n in range(16)))
    simulation.heed()
    simulation.run(0.1)
    assert (made.flying(), made.depth()) == (64, 0)


def test_to_close_and_open_again_changes_no_release_time(backlog: Make, clock: FakeClock) -> None:
    made = backlog(TokenBucket("1/min", 5))
    for n in range(7):
        made.submit(entry(n))
    before = made.store.client.zrange(made.keys[9], 0, -1, withscores=True)
    made.set_rate(TokenBucket(0, 5))
    made.reset_rate()
    assert made.store.client.zrange(made.keys[9], 0, -1, withscores=True) == before
