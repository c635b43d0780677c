"""The request side: one table, exactness to the microsecond, and the reference model."""

from __future__ import annotations

import itertools
import math
from typing import Any

import fakeredis
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.redis_versions import version
from tests.reference import Level
from tests.services import RedisServer
from throttle import CostExceedsLimit, Decision, InvalidRate, Limiter, ThrottleError, TokenBucket
from throttle.limits import DAY
from throttle.store import Store
from throttle.testing import EPOCH, FakeClock

PROPERTY = settings(
    max_examples=60, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
fresh_scope = itertools.count()

TABLE = {
    # limit: [(seconds, cost, allowed, remaining, reset, retry)]
    TokenBucket("1/10s"): [  # B03: idling 600 s earns one unit, not two
        (0, 1, True, 0, 10, 0), (0, 1, False, 0, 10, 10), (600, 1, True, 0, 10, 0), (600, 1, False, 0, 10, 10),
        (609.999999, 1, False, 0, 0.000001, 0.000001), (610, 1, True, 0, 10, 0),
    ],
    TokenBucket("10/s"): [  # B05: fractions survive the reply
        (0, 1, True, 0, 0.1, 0), (0, 1, False, 0, 0.1, 0.1), (0.099999, 1, False, 0, 0.000001, 0.000001),
        (0.1, 1, True, 0, 0.1, 0), (0.15, 1, False, 0, 0.05, 0.05), (0.2, 0, True, 1, 0, 0),
    ],
    TokenBucket("5/10s", 5): [  # B08: a refusal changes nothing
        (0, 3, True, 2, 6, 0), *[(0, 5, False, 2, 6, 6)] * 100, (0, 2, True, 0, 10, 0), (2, 1, True, 0, 10, 0),
    ],
    TokenBucket("10/min", 10): [  # B97: the wait is for this cost
        (0, 10, True, 0, 60, 0), (0, 1, False, 0, 60, 6), (0, 5, False, 0, 60, 30), (30, 5, True, 0, 60, 0),
    ],
    TokenBucket("100/min"): [  # B12: no window, so no boundary that lets two windows through
        (59.9, 1, True, 0, 0.6, 0), (60.1, 1, False, 0, 0.4, 0.4), (60.5, 1, True, 0, 0.6, 0),
    ],
    TokenBucket("60/min", 60, initial=0): [  # B13: it starts empty and fills
        (0, 1, False, 0, 60, 1), (0.5, 1, False, 0, 59.5, 0.5), (1, 1, True, 0, 60, 0), (3, 2, True, 0, 60, 0),
    ],
    TokenBucket("1/s", 3, initial=1): [
        (0, 1, True, 0, 3, 0), (0, 1, False, 0, 3, 1), (10, 3, True, 0, 3, 0), (10, 1, False, 0, 3, 1),
    ],
    TokenBucket(0): [  # B24: closed
        (0, 1, False, 0, 0, math.inf), (1000, 1, False, 0, 0, math.inf),
    ],
    TokenBucket("1/366d"): [
        (0, 1, True, 0, 366 * 86400, 0), (366 * 86400 - 0.000001, 1, False, 0, 0.000001, 0.000001),
        (366 * 86400, 1, True, 0, 366 * 86400, 0),
    ],
    TokenBucket("1000000/s", 10**9): [  # B26: the far ends of the range
        (0, 10**6, True, 10**9 - 10**6, 1, 0), (0, 10**9, False, 10**9 - 10**6, 1, 1), (1, 10**9, True, 0, 1000, 0),
    ],
}  # fmt: skip


@pytest.mark.parametrize("limit", TABLE, ids=str)
@pytest.mark.parametrize("backend", ["redis", "fakeredis"])
def test_table(limit: TokenBucket, backend: str, any_server: RedisServer) -> None:
    clock = FakeClock()
    limiter = Limiter(any_server.client() if backend == "redis" else fakeredis.FakeRedis(), now=clock)
    for seconds, cost, *expected in TABLE[limit]:
        clock.advance(EPOCH + seconds - clock() / 1e6)
        said = limiter.acquire(limit, cost=cost)
        got = [said.allowed, said.remaining, said.reset_after, said.retry_after]
        assert got == pytest.approx(expected, abs=2e-7), f"at {seconds} s, cost {cost}"
        assert bool(said) is said.allowed
        assert (said.limit, said.policies) == (limit.burst, (limit,))


limits = st.builds(
    lambda interval, burst: TokenBucket((1, interval / 1e6), burst),
    st.one_of(st.integers(1, 1000), st.integers(1, 10**7), st.integers(1, 366 * 86400 * 10**6)),
    st.one_of(st.integers(1, 5), st.integers(1, 140)),
)


@PROPERTY
@given(data=st.data(), limit=limits, fake=st.booleans())
def test_every_answer_is_that_of_the_reference(data: Any, limit: TokenBucket, fake: bool, any_server: Any) -> None:
    """Any rate, burst, cost and history, the clock going back included, on Redis and on fakeredis."""
    clock = FakeClock()
    model = Level(limit.interval, limit.burst, limit.burst * limit.interval, clock())
    limiter = Limiter(
        fakeredis.FakeRedis() if fake else any_server.client(), f"s{next(fresh_scope)}", timeout=5, now=clock
    )
    gap = st.one_of(st.just(0), st.integers(-2 * limit.interval, 3 * limit.interval), st.just(-(10**9)))
    for _ in range(data.draw(st.integers(1, 12))):
        clock.tick(data.draw(gap))
        cost = data.draw(st.integers(0, limit.burst))
        how = data.draw(st.sampled_from(["acquire", "acquire", "acquire", "peek", "refund"]))
        if how == "refund":
            limiter.refund(limit, cost=cost)
            if cost and model.at(clock()) < limit.burst * limit.interval:
                model.give(clock(), cost)
            continue
        said = getattr(limiter, how)(limit, cost=cost)
        allowed, remaining, reset, wait = model.ask(clock(), cost, take=how == "acquire")
        assert (said.allowed, said.remaining, micros(said.reset_after), micros(said.retry_after)) == (
            allowed, remaining, reset, wait,
        )  # fmt: skip


changes = st.tuples(  # what another release, an operator, or a limit that starts empty would say
    st.sampled_from([0, 1, 3, 1000, 10**6, 366 * 86400 * 10**6]), st.sampled_from([1, 2, 7, 140]),
    st.sampled_from([0, 0, 0, 5000]), st.sampled_from([0, 0, DAY]),
)  # fmt: skip


@PROPERTY
@given(data=st.data(), said=st.lists(changes, min_size=1, max_size=3))
def test_one_limit_alone_is_answered_as_among_several(data: Any, said: Any, any_server: RedisServer) -> None:
    """Any history: replies, buckets and their ends are the same whichever of the two scripts is asked."""
    client, clock, name = any_server.client(), FakeClock(), f"s{next(fresh_scope)}"
    store = Store(client, now=clock)
    for _ in range(data.draw(st.integers(1, 12))):
        interval, burst, fresh, keep = data.draw(st.sampled_from(said))
        step = interval or 1000
        clock.tick(data.draw(st.one_of(st.just(0), st.integers(-2 * step, 3 * step), st.just(-(10**9)))))
        if data.draw(st.integers(0, 9)) == 0 and client.exists(name):  # a task of the same scope has started
            for key in (name, f"{name}+"):
                client.set(key, b" ".join(client.get(key).split()[:4]) + b" %d" % clock(), keepttl=True)
        cost, mode = data.draw(st.integers(0, 2 * burst)), data.draw(st.sampled_from(["take", "take", "peek"]))
        head, text = f"{mode} {clock()}", f"{interval} {burst} {fresh} {keep} {cost}"
        alone = store.ask("acquire", [name], f"{head} {text}")
        among = store.run_plain("acquire_all", [f"{name}+"], [f"{head} bucket {text}"])
        one, wait, _, reset = map(int, among.split())
        assert (one, alone) == (1, reset if wait == 0 else -1 - reset)
        assert client.get(name) == client.get(f"{name}+")
        if version(any_server) >= (7,):
            assert client.pexpiretime(name) == client.pexpiretime(f"{name}+")


@PROPERTY
@given(data=st.data(), said=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 2000)), min_size=1, max_size=3))
def test_one_fixed_window_alone_is_answered_as_among_several(data: Any, said: Any, any_server: RedisServer) -> None:
    """The same for windows, whose count and period change."""
    client, clock, name = any_server.client(), FakeClock(), f"s{next(fresh_scope)}"
    store = Store(client, now=clock)
    for _ in range(data.draw(st.integers(1, 12))):
        count, period = data.draw(st.sampled_from(said))
        clock.tick(data.draw(st.one_of(st.just(0), st.integers(-2 * period, 3 * period), st.just(-(10**9)))))
        cost, mode = data.draw(st.integers(0, 6)), data.draw(st.sampled_from(["take", "take", "peek"]))
        alone = store.ask("acquire_fixed", [name], f"{mode} {clock()} {count} {period} {cost}")
        among = store.run_plain("acquire_all", [f"{name}+"], [f"{mode} {clock()} fixed {count} {period} 0 0 {cost}"])
        assert list(map(int, alone.split())) == list(map(int, among.split()))
        assert client.get(name) == client.get(f"{name}+")
        if version(any_server) >= (7,):
            assert client.pexpiretime(name) == client.pexpiretime(f"{name}+")


@PROPERTY
@given(data=st.data(), policies=st.lists(limits, min_size=1, max_size=3, unique_by=str), fake=st.booleans())
def test_rule_6_the_wait_is_exact(data: Any, policies: list[TokenBucket], fake: bool, any_server: RedisServer) -> None:
    """Refused one microsecond before, granted at it, whatever was taken before and however many limits."""
    clock = FakeClock()
    limiter = Limiter(
        fakeredis.FakeRedis() if fake else any_server.client(), f"s{next(fresh_scope)}", timeout=5, now=clock
    )
    most = min(limit.burst for limit in policies)
    for _ in range(data.draw(st.integers(0, 5))):
        limiter.acquire(*policies, cost=data.draw(st.integers(0, most)))
        clock.tick(data.draw(st.integers(0, max(limit.interval for limit in policies))))
    cost = data.draw(st.integers(1, most))
    while limiter.acquire(*policies, cost=cost):
        pass
    wait = micros(limiter.peek(*policies, cost=cost).retry_after)
    assert wait > 0
    clock.tick(wait - 1)
    early = limiter.acquire(*policies, cost=cost)
    assert not early
    assert micros(early.retry_after) == 1
    clock.tick()
    assert limiter.acquire(*policies, cost=cost)


@PROPERTY
@given(data=st.data(), limit=limits)
def test_remaining_is_what_can_be_taken(data: Any, limit: TokenBucket, any_server: RedisServer) -> None:
    clock = FakeClock()
    limiter = Limiter(any_server.client(), f"s{next(fresh_scope)}", timeout=5, now=clock)
    limiter.acquire(limit, cost=data.draw(st.integers(0, limit.burst)))
    clock.tick(data.draw(st.integers(0, limit.interval * limit.burst)))
    left = limiter.peek(limit, cost=0).remaining
    if left < limit.burst:
        assert not limiter.peek(limit, cost=left + 1)
    assert limiter.acquire(limit, cost=left).remaining == 0


def micros(seconds: float) -> int:
    """Exactly what the script said: a double holds whole µs up to 285 years."""
    return round(seconds * 1e6)


def test_rule_5_a_refusal_changes_nothing(limiter: Limiter, any_server: RedisServer) -> None:
    wide, narrow = TokenBucket("10/s", 10), TokenBucket("2/min", 2)
    limiter.acquire(wide, narrow, cost=2)
    before = contents(any_server)
    for cost in (1, 2):
        assert not limiter.acquire(wide, narrow, cost=cost)
    assert contents(any_server) == before
    for cost in (0, 1, 2):
        limiter.peek(wide, narrow, cost=cost)
    limiter.acquire(wide, narrow, cost=0)
    assert contents(any_server) == before


def contents(server: RedisServer) -> dict[bytes, bytes | None]:
    client = server.client()
    return {key: client.dump(key) for key in client.scan_iter()}


def test_b09_all_or_nothing(limiter: Limiter, clock: FakeClock) -> None:
    ten, two = TokenBucket("10/s", 10), TokenBucket("2/60s", 2)
    answers = [limiter.acquire(ten, two) for _ in range(50)]
    assert [answer.allowed for answer in answers] == [True] * 2 + [False] * 48
    assert answers[-1].retry_after == 30
    assert answers[-1].policies == (two, ten)
    assert limiter.peek(ten).remaining == 8
    assert limiter.peek(ten, two, cost=2).retry_after == 60


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_deciding_limit_comes_first(order: tuple[int, int], limiter: Limiter) -> None:
    fast, slow = TokenBucket("10/s", 10, name="fast"), TokenBucket("5/min", 5, name="slow")
    pair = [(fast, slow)[i] for i in order]
    assert limiter.acquire(*pair).policies == (slow, fast)
    assert limiter.acquire(*pair, cost=4) == Decision(True, 5, 0, 0.0, 60.0, (slow, fast))
    assert limiter.acquire(*pair).policies == (slow, fast)


def test_b07_cost_beyond_capacity_fails_at_once(limiter: Limiter, any_server: RedisServer) -> None:
    with pytest.raises(CostExceedsLimit, match=r"cost 11 exceeds capacity 10 for key 'k'") as caught:
        limiter.acquire(TokenBucket("10/s", 10), key="k", cost=11)
    assert (caught.value.cost, caught.value.capacity, caught.value.key) == (11, 10, "k")
    assert contents(any_server) == {}
    assert limiter.peek(TokenBucket("10/s", 10), key="k").remaining == 10


@pytest.mark.parametrize("cost", [-1, 1.0, True, "1", None, 10**9 + 1])
def test_a_cost_is_a_whole_number(cost: Any, limiter: Limiter) -> None:
    with pytest.raises(InvalidRate, match="cost"):
        limiter.acquire(TokenBucket("10/s", 10), cost=cost)


def test_b13_spacing_is_strict_without_burst(limiter: Limiter, clock: FakeClock) -> None:
    limit, granted = TokenBucket("60/60s"), []
    while len(granted) < 10:
        said = limiter.acquire(limit)
        if said:
            granted.append(clock())
        clock.tick(micros(said.retry_after) or 1)
    assert {b - a for a, b in itertools.pairwise(granted)} == {1_000_000}


@pytest.mark.parametrize("rate", ["0.1/s", "1/s", "10/s", "333/s", "1000/s"])
def test_b10_a_client_that_obeys_gets_the_whole_rate(rate: str, limiter: Limiter, clock: FakeClock) -> None:
    limit, granted, start = TokenBucket(rate), 0, clock()
    while granted < 200:
        said = limiter.acquire(limit)
        granted += said.allowed
        clock.tick(micros(said.retry_after))
    assert (granted - 1) * 1e6 / (clock() - start) >= 0.99 * float(rate.partition("/")[0])


def test_b24_none_is_no_limit_and_asks_nobody(clock: FakeClock) -> None:
    def nobody() -> Any:
        raise AssertionError("Redis was asked")

    limiter = Limiter(nobody, now=clock)
    for _ in range(1000):
        assert limiter.acquire(TokenBucket(None)) == limiter.acquire() == Decision(True, 0, 0, 0.0, 0.0)


def test_b31_keys_count_apart(limiter: Limiter) -> None:
    limit = TokenBucket("1/min")
    keys = ["a b", "é", "日本", "x{y}z", "}{", "a:b", "a\nb", "\x00", "🙂" * 50, "", "-", "%", "%25", "~", "|", "a|b"]
    assert all(limiter.acquire(limit, key=key) for key in [None, *keys])
    assert not any(limiter.acquire(limit, key=key) for key in [None, *keys])


def test_a_limits_own_key_wins(limiter: Limiter) -> None:
    own, common = TokenBucket("1/min", key="tenant"), TokenBucket("2/min", 2)
    assert limiter.acquire(own, common, key="a")
    assert limiter.acquire(own, common, key="b").policies[0] == own
    assert limiter.peek(common, key="a").remaining == 1


def test_reset_forgets_what_was_taken(limiter: Limiter) -> None:
    limit = TokenBucket("1/min")
    assert limiter.acquire(limit, key="a")
    limiter.reset(limit, key="b")
    assert not limiter.acquire(limit, key="a")
    limiter.reset(limit, key="a")
    assert limiter.acquire(limit, key="a")


def test_refund_never_beyond_full(limiter: Limiter, clock: FakeClock) -> None:
    limit = TokenBucket("10/s", 10)
    limiter.acquire(limit, cost=4)
    limiter.refund(limit, cost=3)
    assert limiter.peek(limit).remaining == 9
    limiter.refund(limit, cost=9)
    assert limiter.peek(limit, cost=0) == Decision(True, 10, 10, 0.0, 0.0, (limit,))


def test_two_limits_of_one_name_in_one_question_are_refused(limiter: Limiter) -> None:
    """They would share one bucket, and each undo what the other took."""
    with pytest.raises(InvalidRate, match="name"):
        limiter.acquire(TokenBucket("10/s", name="a"), TokenBucket("5/min", name="a"))
    with pytest.raises(InvalidRate, match="name"):
        limiter.acquire(TokenBucket("10/s"), TokenBucket("10/s"))


def test_a_limit_of_tasks_asks_for_its_key(limiter: Limiter) -> None:
    """The very object that `@throttled` has: its key is made of a task's arguments there, and given here."""
    for key in ("{customer}", lambda customer: customer):
        limit = TokenBucket("1/min", key=key, name=f"n{callable(key)}")
        with pytest.raises(ThrottleError, match="needs a key"):
            limiter.acquire(limit)
        assert limiter.acquire(limit, key="a")
        assert limiter.acquire(limit, key="b")
        assert not limiter.acquire(limit, key="a")
