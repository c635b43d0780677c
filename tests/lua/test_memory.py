"""What lies in Redis goes by itself, not before it may, and is small; B16, B34, rules 8, 9 and 13."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.services import RedisServer
from tests.simulation import entry
from throttle import Limiter, TokenBucket
from throttle.backlog import Backlog
from throttle.store import Store
from throttle.testing import EPOCH, FakeClock

Make = Callable[..., Backlog]


def milliseconds_left(limiter: Limiter, limit: TokenBucket, server: RedisServer) -> int:
    """By the test's clock, which is ahead of the server's."""
    pipe = server.client().pipeline(transaction=True)
    (seconds, micros), left = pipe.time().pttl(limiter._scope.keys([limit], None)[0]).execute()
    return int(left) - (round(EPOCH * 1000) - (seconds * 1000 + micros // 1000))


def test_b16_a_debt_is_kept_for_as_long_as_it_lasts(limiter: Limiter, any_server: RedisServer) -> None:
    limit = TokenBucket("10/3h", 10)
    limiter.acquire(limit, cost=10)
    assert 10_800_000 <= milliseconds_left(limiter, limit, any_server) <= 10_800_003


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), interval=st.integers(1, 10**10), burst=st.integers(1, 1000), initial=st.booleans())
def test_b16_a_bucket_lives_until_it_is_full(
    data: st.DataObject, interval: int, burst: int, initial: bool, limiter: Limiter, any_server: RedisServer
) -> None:
    limit = TokenBucket((1, interval / 1e6), burst, initial=0 if initial else None, name=str(interval))
    limiter.reset(limit)
    limiter.acquire(limit, cost=data.draw(st.integers(1, burst)))
    lacks = limiter.peek(limit, cost=0).reset_after * 1000
    kept = milliseconds_left(limiter, limit, any_server)
    assert kept >= lacks - 1
    assert kept <= lacks + 3 + 86_400_000 * initial


def test_b34_full_buckets_are_gone(any_server: RedisServer) -> None:
    """By the server's own clock."""
    limiter, limit = Limiter(Store(any_server.client()), "gone"), TokenBucket("1000/s", 5)
    for n in range(500):
        limiter.acquire(limit, key=n)
    for _ in range(200):
        if not any_server.client().dbsize():
            break
        any_server.client().time()
    else:
        any_server.client().execute_command("WAIT", 0, 50)
    assert all(any_server.client().pttl(key) != -1 for key in any_server.client().scan_iter())


def test_b34_an_idle_bucket_takes_less_than_200_bytes(limiter: Limiter, any_server: RedisServer) -> None:
    limit = TokenBucket("1/d")
    for n in range(1000):
        limiter.acquire(limit, key=f"customer-{n}")
    sizes = [any_server.client().memory_usage(key) for key in any_server.client().scan_iter(count=2000)]
    assert len(sizes) == 1000
    assert sum(sizes) / len(sizes) <= 200


def test_b34_after_ten_thousand_operations_only_parked_tasks_are_for_ever(backlog: Make, clock: FakeClock) -> None:
    chance = random.Random(34)
    made = backlog(TokenBucket("50/s", 5, key="{k}"), TokenBucket("200/s", 10))
    limiter, client = Limiter(made.store, "test"), made.store.client
    flying, done = [], 0
    while done < 10_000:
        key, n = f"k{chance.randrange(50)}", chance.random()
        if n < 0.35:
            limiter.acquire(TokenBucket("5/s", 10), key=key, cost=chance.randrange(4))
        elif n < 0.6:
            keys = (key, "-")
            eta = clock() + chance.randrange(10**6) if chance.random() < 0.2 else 0
            made.submit(entry(f"{done}", key, keys=keys, eta=eta))
        elif n < 0.7:
            flying += made.release(batch=10).due
        elif n < 0.85 and flying:
            task = flying.pop(chance.randrange(len(flying)))
            made.start("take", task.id, task.ticket, task.slot, (key, "-"), (1, 1))
        elif n < 0.9:
            made.recover()
        elif n < 0.95:
            made.forget(str(chance.randrange(done + 1)))
        else:
            clock.advance(chance.random() * 3 - 1)
        done += 1
    parked = {made.keys[i].encode() for i in (2, 3, 4, 5, 6, 7, 8)}
    for_ever = {key for key in client.scan_iter(count=1000) if client.pttl(key) == -1}
    assert for_ever <= parked
    made.purge()
    made.forget(*(id.decode() for id in client.hkeys(made.keys[3])))
    made.release()
    assert [key for key in client.scan_iter(count=1000) if client.pttl(key) == -1] == []


def test_rule_13_all_sixteen_digits_survive(backlog: Make, clock: FakeClock, any_server: RedisServer) -> None:
    """Every number that is a moment is stored to the microsecond: an odd one, well beyond 2**51."""
    clock.tick(1_234_567)
    assert clock() % 10 == 7
    limiter = Limiter(Store(any_server.client(), now=clock), "digits")
    limit = TokenBucket((1, 0.000_003), 1)
    limiter.acquire(limit)
    value = any_server.client().get(limiter._scope.keys([limit], None)[0])
    assert value.split()[:2] == [str(clock() + 3).encode(), str(clock()).encode()]

    made = backlog(TokenBucket((1, 0.100_003)))
    verdict = made.submit(entry("a", expires=clock() + 10**9 + 1))
    assert (verdict.slot, verdict.now, verdict.ticket) == (clock(), clock(), str(clock()))
    second = made.submit(entry("b", eta=clock() + 10**9 + 3))
    assert second.slot == clock() + 10**9 + 3
    _, meta, _, messages, _, _, delayed, flight, tickets, releases, _ = made.keys
    client = made.store.client
    assert client.zscore(delayed, "b") == clock() + 10**9 + 3
    assert client.zscore(flight, "a") == clock() + 30_000_000
    assert client.zscore(releases, "1|-") == clock() + 100_003
    assert client.hget(tickets, "a") == f"{clock()} 1".encode()
    assert client.hget(messages, "a").split(b"\n")[2:4] == [str(clock()).encode(), str(clock() + 10**9 + 1).encode()]
    assert client.hget(meta, "seq") == str(clock() + 1).encode()


def test_sequence_numbers_grow_even_if_the_counter_is_lost(backlog: Make, clock: FakeClock) -> None:
    made = backlog(TokenBucket("1000/s", 100))
    seen = []
    for n in range(50):
        seen.append(int(made.submit(entry(n)).ticket))
        if n == 20:
            clock.advance(-100)
        if n == 40:
            clock.advance(200)
            made.store.client.delete(made.keys[1])
    assert seen == sorted(set(seen))


@pytest.mark.parametrize("when", ["declared", "used"])
def test_a_scope_that_is_left_alone_goes(when: str, backlog: Make, clock: FakeClock, any_server: RedisServer) -> None:
    made = backlog(TokenBucket("10/s"), TokenBucket("10/min", key="{k}"))
    if when == "used":
        task = made.submit(entry("a", "k", keys=("-", "k")))
        made.start("take", "a", task.ticket, task.slot, ("-", "k"), (1, 1))
    for key in any_server.client().scan_iter():
        assert any_server.client().pttl(key) > 0, key
