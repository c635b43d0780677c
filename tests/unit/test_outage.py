"""Without Redis: what each policy answers, says and counts, with a Redis that is switched off and on."""

from __future__ import annotations

import logging
import math
from typing import Any

import fakeredis
import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from throttle import (
    FixedWindow,
    LeakyBucket,
    Limiter,
    Quota,
    SlidingLog,
    SlidingWindow,
    StoreUnavailable,
    TokenBucket,
)
from throttle.breaker import Breaker
from throttle.errors import ThrottleError
from throttle.local import KEYS, Local
from throttle.reach import PAUSES, Reach
from throttle.store import Store
from throttle.testing import FakeClock, excess

LIMIT = TokenBucket("10/s", 10)


class Switch(redis.Redis):
    """A Redis that can be off, and counts who asks."""

    def __init__(self) -> None:
        self.fake, self.error, self.asked = fakeredis.FakeRedis(), None, 0  # type: ignore[var-annotated]

    def execute_command(self, *args: Any, **options: Any) -> Any:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.fake.execute_command(*args, **options)


class World:
    """A limiter whose Redis and clock the test has in hand."""

    def __init__(self, clock: FakeClock, **options: Any) -> None:
        self.redis, self.clock, self.slept = Switch(), clock, list[float]()
        self.limiter = Limiter(Store(self.redis, now=clock), **options)
        seconds = lambda: clock() / 1e6  # noqa: E731
        self.limiter._reach = Reach(self.limiter._store, 0.25, Breaker(clock=seconds), self.slept.append)
        self.limiter._ask_script = self.limiter._reach.ask

    def off(self, error: Exception | None = None) -> None:
        self.redis.error = error or redis.ConnectionError("refused")
        self.redis.asked = 0

    def on(self) -> None:
        self.redis.error = None


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_open_lets_pass_and_says_so_once_a_minute(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    world = World(clock)
    world.off()
    said = [world.limiter.acquire(LIMIT) for _ in range(1000)]
    assert all(one.allowed and one.policies == () for one in said)
    assert world.limiter.unanswered == 1000
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert caplog.messages[0].startswith("scope default: Redis does not answer, so NOTHING IS LIMITED")
    clock.advance(60)
    world.limiter.acquire(LIMIT)
    assert "1001 decisions" in caplog.messages[1]


def test_closed_raises(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    world = World(clock, on_store_error="closed")
    world.off()
    for _ in range(100):
        with pytest.raises(StoreUnavailable):
            world.limiter.acquire(LIMIT)
    for ask in (world.limiter.peek, world.limiter.wait, world.limiter.refund):
        with pytest.raises(StoreUnavailable):
            ask(LIMIT)
    assert len(caplog.records) == 1


def test_once_open_the_breaker_asks_once_a_second_and_closes_at_the_first_answer(clock: FakeClock) -> None:
    world = World(clock)
    world.off()
    for _ in range(50):
        world.limiter.acquire(LIMIT)
    tries = 1 + len(PAUSES)
    assert world.redis.asked == 3 * tries, "three questions, each with its further tries"
    assert world.slept == [*PAUSES] * 3
    for _ in range(50):
        clock.advance(0.1)
        world.limiter.acquire(LIMIT)
    assert 3 * tries < world.redis.asked <= 3 * tries + 6, "a probe tries once"
    world.on()
    clock.advance(1)
    assert world.limiter.acquire(LIMIT).policies == (LIMIT,)
    assert [world.limiter.acquire(LIMIT).remaining for _ in range(3)] == [8, 7, 6]


@pytest.mark.parametrize(
    "error",
    [redis.ReadOnlyError("READONLY You can't write"), redis.ResponseError("Error running script: -READONLY You"),
     redis.exceptions.BusyLoadingError("loading"), redis.exceptions.MasterDownError("x"),
     redis.exceptions.ClusterDownError("x"), redis.ResponseError("MASTERDOWN x, on @user_script:1")],
)  # fmt: skip
def test_b38_a_server_that_cannot_serve_is_tried_again_over_a_new_connection(error: Any, clock: FakeClock) -> None:
    world = World(clock, on_store_error="closed")
    assert world.limiter.acquire(LIMIT)
    dropped: list[bool] = []

    class Pool:
        def disconnect(self, inuse_connections: bool = True) -> None:
            dropped.append(inuse_connections)
            world.on()

    world.redis.connection_pool = Pool()  # type: ignore[assignment]
    world.off(error)
    assert world.limiter.acquire(LIMIT).remaining == 8
    assert dropped == [False], "those that others are using are theirs"


def test_b43_the_trouble_of_one_key_is_no_outage(clock: FakeClock) -> None:
    world = World(clock, on_store_error="closed")
    world.redis.fake.lpush(world.limiter._scope.keys([LIMIT], "a")[0], "no bucket")
    for _ in range(5):
        with pytest.raises(StoreUnavailable, match="WRONGTYPE"):
            world.limiter.acquire(LIMIT, key="a")
    assert world.slept == [], "the same again would not help"
    assert world.limiter.acquire(LIMIT, key="b").remaining == 9


def test_reset_never_only_seems_to_be_done(clock: FakeClock) -> None:
    world = World(clock)
    world.off()
    with pytest.raises(StoreUnavailable):
        world.limiter.reset(LIMIT)
    world.limiter.refund(LIMIT)
    assert world.limiter.unanswered == 1


def test_a_denial_holds_while_redis_is_off(clock: FakeClock) -> None:
    world = World(clock)
    limit = TokenBucket("1/min")
    world.limiter.acquire(limit)
    world.limiter.acquire(limit)
    world.off()
    assert not world.limiter.acquire(limit)
    clock.advance(1)
    assert world.limiter.acquire(limit)


def test_shadow_is_open_whatever_it_is_told(clock: FakeClock) -> None:
    world = World(clock, mode="shadow", on_store_error="closed")
    world.off()
    assert world.limiter.acquire(LIMIT)
    assert (world.limiter.unanswered, world.limiter.shadowed) == (1, 0)


def test_local_counts_for_this_process(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    world = World(clock, on_store_error="local")
    assert world.limiter.acquire(LIMIT)
    world.off()
    assert [world.limiter.acquire(LIMIT).allowed for _ in range(12)] == [True] * 10 + [False] * 2
    assert world.limiter.acquire(LIMIT).retry_after == 0.1
    assert "counts for itself" in caplog.text
    world.limiter.refund(LIMIT, cost=2)
    assert world.limiter.peek(LIMIT).remaining == 2
    world.on()
    clock.advance(1)
    assert world.limiter.acquire(LIMIT).remaining == 9


def test_local_is_a_share_of_as_many_as_were_last_known(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(clock, on_store_error="local")
    store = Store(world.redis.fake, now=clock)
    for n in range(4):
        monkeypatch.setattr("throttle.alive._PROCESS", f"process {n}")
        mine = Limiter(store, on_store_error="local")
        mine.acquire(LIMIT)
        assert mine._answers.outage.local.processes == n + 1  # type: ignore[union-attr]
    monkeypatch.setattr("throttle.alive._PROCESS", "mine")
    world.limiter.acquire(LIMIT)
    world.off()
    assert [world.limiter.acquire(LIMIT).allowed for _ in range(3)] == [True, True, False]
    assert world.limiter.acquire(LIMIT).retry_after == 0.5
    world.on()
    clock.advance(31)
    world.limiter.acquire(LIMIT)
    world.off()
    assert sum(world.limiter.acquire(LIMIT).allowed for _ in range(12)) == 10, "the others are silent, so gone"


def test_a_process_says_once_in_ten_seconds_that_it_is_there(clock: FakeClock) -> None:
    world = World(clock, on_store_error="local", denials=0)
    world.limiter.acquire(LIMIT)
    world.redis.asked = 0
    for _ in range(1000):
        clock.advance(0.1)
        world.limiter.acquire(LIMIT)
    assert 1000 < world.redis.asked <= 1000 + 10
    key = f"{world.limiter._store.namer.scope('default')}alive"
    assert world.redis.fake.zcard(key) == 1
    assert world.redis.fake.pttl(key) > 0
    plain = World(clock, denials=0)
    plain.limiter.acquire(LIMIT)
    assert not plain.redis.fake.exists(key), "only those need it who count for themselves"


# -- the limiter of one process ---------------------------------------------------------------------------


def ask(local: Local, cost: int = 1, key: object = None, *limits: Any) -> Any:
    from throttle.keys import Namer
    from throttle.question import Scope

    question = Scope(Namer(), "s").question("take", limits or (LIMIT,), key, cost)
    assert question is not None
    return local.decide(question)


bursts, shares = st.integers(1, 20), st.integers(1, 8)


@settings(max_examples=100, deadline=None)
@given(
    burst=bursts, processes=shares, steps=st.lists(st.tuples(st.integers(0, 500_000), st.integers(1, 3)), max_size=60)
)
def test_all_shares_together_keep_to_the_limit(burst: int, processes: int, steps: Any) -> None:
    """Each of n processes as greedy as can be: burst + rate·t, or one unit each where the burst is less than n."""
    clock, limit, passed = FakeClock(), TokenBucket("10/s", burst), []
    locals_ = [Local(clock) for _ in range(processes)]
    for local in locals_:
        local.processes = processes
    for micros, times in steps:
        clock.tick(micros)
        for local in locals_:
            passed += [clock() / 1e6 for _ in range(times) if ask(local, 1, None, limit).allowed]
    assert excess(passed, TokenBucket("10/s", max(burst, processes)), 1e-6) == 0


@pytest.mark.parametrize(
    "limit",
    [TokenBucket("10/s", 5), LeakyBucket("10/s", 5), FixedWindow("5/s"), SlidingWindow("5/s"), SlidingLog("5/s"),
     Quota(5, "hour")],
    ids=str,
)  # fmt: skip
def test_every_kind_has_a_share(limit: Any) -> None:
    local = Local(FakeClock())
    assert [ask(local, 1, None, limit).allowed for _ in range(7)] == [True] * 5 + [False] * 2
    said = ask(local, 5, "b", limit)
    assert (said.allowed, said.remaining, said.limit) == (True, 0, 5)
    assert not ask(local, 1, "b", limit)
    assert ask(local, 1, "b", type(limit)(0)).retry_after == math.inf


def test_all_or_nothing_and_exact_waits() -> None:
    clock = FakeClock()
    local, few, many = Local(clock), TokenBucket("1/s", 1), TokenBucket("10/s", 10)
    assert ask(local, 1, None, many, few)
    for _ in range(5):
        said = ask(local, 1, None, many, few)
        assert (said.allowed, said.retry_after, said.policies) == (False, 1, (few, many))
    clock.tick(999_999)
    assert ask(local, 1, None, many, few).retry_after == 0.000001
    clock.tick()
    assert ask(local, 1, None, many, few)


def test_a_line_is_shared_too() -> None:
    local = Local(FakeClock())
    line = LeakyBucket("1/s", 1, 2)
    assert [ask(local, 1, None, line).delay for _ in range(3)] == [0, 1, 2]
    assert ask(local, 1, None, line).retry_after == 1
    local.processes = 2
    assert [ask(local, 1, "b", line).delay for _ in range(2)] == [0, 2]


def test_it_remembers_only_so_many_keys() -> None:
    local = Local(FakeClock())
    for key in range(KEYS + 100):
        ask(local, 1, key)
    assert len(local._tats) == KEYS


def test_the_policies_are_these() -> None:
    with pytest.raises(ThrottleError, match="'open', 'closed', 'local'"):
        Limiter("redis://localhost", on_store_error="park")
