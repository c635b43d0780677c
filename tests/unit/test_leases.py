"""Leases: fewer questions for a busy key, and never more than one lease beyond the bound for each process. B50."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.services import RedisServer
from throttle import AsyncLimiter, FixedWindow, LeakyBucket, Limiter, Quota, SlidingLog, ThrottleError, TokenBucket
from throttle.leases import HOT, KEYS, ROOM, SPAN
from throttle.testing import FakeClock, excess, fake_store

LEASE = 10


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


BUSY = TokenBucket("1000/s", 1000)


def limiters(clock: FakeClock, count: int, **options: Any) -> list[Limiter]:
    """As many processes: they share nothing but Redis."""
    store = fake_store(clock)
    return [Limiter(store, "leased", lease=LEASE, **options) for _ in range(count)]


def counted(limiter: Limiter) -> list[str]:
    """The questions that Redis is asked from now on."""
    asked: list[str] = []
    ask: Callable[..., Any] = limiter._ask_script

    def counting(name: str, keys: Any, text: str) -> Any:
        asked.append(text)
        return ask(name, keys, text)

    limiter._ask_script = counting
    return asked


steps = st.lists(st.tuples(st.integers(0, 7), st.integers(1, 40), st.sampled_from([0, 1, 50, 900, 9000])), max_size=60)


@settings(max_examples=60, deadline=None)
@given(steps, st.sampled_from([TokenBucket("1000/s", 300), TokenBucket("100/s", 150), LeakyBucket("20/s", 120)]))
def test_b50_with_leases_of_10_in_8_processes_80_pass_beyond_the_bound_at_most(steps: Any, limit: TokenBucket) -> None:
    clock = FakeClock()
    passed: list[float] = []
    processes = limiters(clock, 8)
    for process, times, pause in steps:
        passed += [clock() / 1e6 for _ in range(times) if processes[process].acquire(limit)]
        clock.advance(pause / 1000)
    assert not excess(passed, TokenBucket(limit.rate, limit.burst + 8 * LEASE))


def test_a_busy_key_asks_once_a_lease(clock: FakeClock) -> None:
    (limiter,) = limiters(clock, 1)
    asked = counted(limiter)
    for _ in range(1000):
        assert limiter.acquire(BUSY, key="busy")
        clock.advance(0.001)
    assert len(asked) <= 1000 / LEASE + 2


def test_what_is_left_is_told_as_if_each_had_asked(clock: FakeClock) -> None:
    (limiter,) = limiters(clock, 1)
    for n in range(50):
        said = limiter.acquire(BUSY)
        assert (said.limit, said.remaining, said.retry_after, said.policies) == (1000, 999 - n, 0.0, (BUSY,))


def test_a_calm_key_asks_for_itself(clock: FakeClock) -> None:
    (limiter,) = limiters(clock, 1)
    asked = counted(limiter)
    for _ in range(20):
        assert limiter.acquire(BUSY)
        clock.advance(1.01 * HOT)
    assert len(asked) == 20
    assert all(text.endswith(" 1000 1000 0 0 1") for text in asked)


def test_near_the_limit_each_asks_for_itself_and_no_unit_is_lost(clock: FakeClock) -> None:
    (limiter,) = limiters(clock, 1)
    limit = TokenBucket("1/h", 2 * ROOM * LEASE)
    asked = counted(limiter)
    passed = sum(bool(limiter.acquire(limit)) for _ in range(3 * ROOM * LEASE))
    assert passed == limit.burst
    assert all(text.endswith(" 0 0 1") for text in asked[-ROOM * LEASE :]), "none for a lease"


def test_what_is_not_used_in_time_is_lost(clock: FakeClock) -> None:
    (limiter,) = limiters(clock, 1)
    limit = TokenBucket("1/h", 1000)
    for _ in range(2):  # the second takes a lease
        limiter.acquire(limit)
    clock.advance(SPAN)
    assert limiter.acquire(limit).remaining == 1000 - 1 - LEASE - 1


@pytest.mark.parametrize("limit", [FixedWindow("1000/s"), SlidingLog("1000/s"), Quota(1000, "day", tz="UTC"),
                                   LeakyBucket("1000/s", 1000, depth=5)])  # fmt: skip
def test_only_units_of_buckets_are_lent(limit: Any, clock: FakeClock) -> None:
    (limiter,) = limiters(clock, 1)
    asked = counted(limiter)
    for _ in range(30):
        limiter.acquire(limit)
        limiter.acquire(BUSY, limit, key="several")
    assert len(asked) == 60


def test_several_buckets_are_lent_together(clock: FakeClock) -> None:
    (limiter,) = limiters(clock, 1)
    asked = counted(limiter)
    small = TokenBucket("1/h", 400, name="small")
    passed = sum(bool(limiter.acquire(BUSY, small.of("all"), key="k")) for _ in range(500))
    assert passed == 400
    assert len(asked) < 300


def test_cost_and_limit_are_part_of_what_was_taken(clock: FakeClock) -> None:
    (limiter,) = limiters(clock, 1)
    limit = TokenBucket("1/h", 1000)
    for _ in range(3):
        limiter.acquire(limit, cost=2)
    assert limiter.acquire(limit, cost=1).remaining == 1000 - 2 - LEASE - 1
    assert limiter.acquire(limit, key="other").remaining == 999
    assert limiter.acquire(TokenBucket("2/h", 1000)).remaining == 999


def test_a_bucket_is_in_one_lease_at_a_time(clock: FakeClock) -> None:
    """Twenty routes, each with a limit of its own and one for all."""
    (limiter,) = limiters(clock, 1)
    everything = TokenBucket("1/h", 10_000, name="all")
    routes = [TokenBucket("1/h", 10_000, name=f"route{n}") for n in range(20)]
    passed = sum(bool(limiter.acquire(everything, route)) for route in routes for _ in range(3))
    taken = 10_000 - Limiter(limiter._store, "leased", lease=0).peek(everything).remaining
    assert passed <= taken < passed + LEASE
    asked = counted(limiter)
    clock.advance(SPAN)
    for _ in range(40):
        limiter.acquire(everything, routes[0])
    assert len(asked) < 10, "and the next may have one"


def test_a_lease_is_so_many_units_and_not_questions(clock: FakeClock) -> None:
    for cost in (3, 6):
        (limiter,) = limiters(clock, 1)
        for _ in range(4):
            limiter.acquire(BUSY, key=cost, cost=cost)
        taken = 1000 - limiter.peek(BUSY, key=cost).remaining
        assert 4 * cost <= taken < 4 * cost + LEASE


def test_a_lease_that_is_crowded_out_while_it_is_asked_for_is_one_all_the_same(clock: FakeClock) -> None:
    (limiter,) = limiters(clock, 1)
    ask, crowds = limiter._ask_script, iter([True])

    def crowded(name: str, keys: Any, text: str) -> Any:
        if text.endswith(f" {LEASE}") and next(crowds, False):
            for n in range(KEYS + 1):
                limiter.acquire(BUSY, key=n)
        return ask(name, keys, text)

    limiter._ask_script = crowded
    for _ in range(2):
        limiter.acquire(BUSY)
    asked = counted(limiter)
    for _ in range(5 * LEASE):
        limiter.acquire(BUSY)
    assert len(asked) <= 6


def test_what_was_taken_ahead_of_a_reset_is_not_used_after_it(clock: FakeClock) -> None:
    (limiter,) = limiters(clock, 1)
    for _ in range(3):
        limiter.acquire(BUSY)
    limiter.reset(BUSY)
    clock.advance(2 * HOT)
    assert limiter.acquire(BUSY).remaining == 999
    assert limiter.acquire(BUSY).remaining == 998
    limiter.refund(BUSY, cost=5)
    assert limiter.acquire(BUSY).remaining >= 990


def test_a_fork_inherits_nothing(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    (limiter,) = limiters(clock, 1)
    for _ in range(3):
        limiter.acquire(BUSY)
    asked = counted(limiter)
    leases: Any = limiter._leases
    leases._lock.acquire()  # by a thread that the child does not have
    monkeypatch.setattr("throttle.leases.os.getpid", lambda: -1)
    limiter.refund(BUSY, cost=0)
    asked.clear()
    for _ in range(2 + LEASE):
        assert limiter.acquire(BUSY)
    assert len(asked) == 3, "its own: one, a lease, and the next one's first"


@pytest.mark.parametrize("wrong", [-1, True, 1.5, "10", 1001, None])
def test_what_is_no_lease(wrong: Any) -> None:
    with pytest.raises(ThrottleError, match="lease"):
        Limiter("redis://localhost", lease=wrong)


def test_without_redis_nothing_is_lent(clock: FakeClock) -> None:
    limiter = Limiter("redis://127.0.0.1:1", lease=LEASE, timeout=0.01)
    said = [limiter.acquire(BUSY) for _ in range(40)]
    assert all(one.allowed and one.policies == () for one in said)
    assert limiter.unanswered == 40


# -- on a real server ----------------------------------------------------------------------------------------


def test_b50_threads_of_one_process_share_a_lease(server: RedisServer) -> None:
    limiter, limit = Limiter(server.url(), "leased-threads", lease=LEASE), TokenBucket("1/h", 2000)
    passed: list[bool] = []

    def ask() -> None:
        passed.extend(bool(limiter.acquire(limit)) for _ in range(400))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 2000 - 2 * LEASE <= sum(passed) <= 2000


def test_b50_questions_of_one_loop_share_a_lease_and_a_cancelled_one_keeps_none_from_it(server: RedisServer) -> None:
    async def main() -> int:
        limit = TokenBucket("1/h", 2000)
        async with AsyncLimiter(server.url(), "leased-loop", lease=LEASE) as limiter:
            for n in range(40):
                task = asyncio.ensure_future(limiter.acquire(limit))
                for _ in range(n % 5):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            before = (await limiter.peek(limit)).remaining
            leases: Any = limiter._leases
            assert not any(lease.filling for lease in leases._held.values())
            before -= sum(map(bool, [await limiter.acquire(limit) for _ in range(12)]))  # the 2nd and 12th take one
            said = await asyncio.gather(*(limiter.acquire(limit) for _ in range(2500)))
            assert before - LEASE <= sum(map(bool, said)) <= before + LEASE
            commands = server.client().info("commandstats")["cmdstat_evalsha"]["calls"]
            await asyncio.gather(*(limiter.acquire(BUSY) for _ in range(3)))
            for _ in range(300):
                await limiter.acquire(BUSY)
            return int(server.client().info("commandstats")["cmdstat_evalsha"]["calls"]) - int(commands)

    assert asyncio.run(main()) <= 3 + 300 / LEASE + 3
