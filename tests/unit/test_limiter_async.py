"""`AsyncLimiter`: the same answers, awaited; loops that come and go, calls that are cancelled, no threads. B89."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import fakeredis
import pytest
import redis
import redis.asyncio as aioredis

from tests.services import RedisServer
from throttle import (
    AsyncLimiter,
    CostExceedsLimit,
    Decision,
    FixedWindow,
    LeakyBucket,
    Limiter,
    Quota,
    StoreUnavailable,
    Throttled,
    ThrottleError,
    TokenBucket,
)
from throttle.breaker import Breaker
from throttle.loops import AsyncReach
from throttle.testing import FakeClock, fake_async_limiter, fake_limiter

LIMIT = TokenBucket("1/h", 1000)
SMALL = TokenBucket("10/s", 2)


def clients(server: RedisServer) -> dict[str, Callable[[], Any]]:
    port = server.port
    return {
        "url": server.url,
        "plain": lambda: aioredis.Redis(port=port),
        "decoding": lambda: aioredis.Redis(port=port, decode_responses=True),
        "RESP3": lambda: aioredis.Redis(port=port, protocol=3),
        "RESP3 decoding": lambda: aioredis.Redis(port=port, protocol=3, decode_responses=True),
        "single": lambda: aioredis.Redis(port=port, single_connection_client=True),
        "unix": lambda: f"unix://{server.folder}/sock",
        "factory": lambda: lambda: aioredis.Redis(port=port),
        "pool of one": lambda: aioredis.Redis(connection_pool=aioredis.ConnectionPool(port=port, max_connections=1)),
        "blocking": lambda: aioredis.Redis(connection_pool=aioredis.BlockingConnectionPool(1, port=port)),
        "fakeredis": fakeredis.FakeAsyncRedis,
        "fakeredis decoding": lambda: fakeredis.FakeAsyncRedis(decode_responses=True),
    }  # fmt: skip


NAMES = ["url", "plain", "decoding", "RESP3", "RESP3 decoding", "single", "unix", "factory", "pool of one", "blocking",
         "fakeredis", "fakeredis decoding"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_answers_are_those_of_a_limiter_whatever_the_client(name: str, server: RedisServer) -> None:
    async def main(clock: FakeClock, source: Any) -> list[Any]:
        async with AsyncLimiter(source, "same", now=clock) as limiter:
            said: list[Any] = [await limiter.acquire(SMALL, key="a") for _ in range(3)]
            said += [await limiter.acquire(SMALL, FixedWindow("5/s"), LeakyBucket("1/s", depth=2), key="b")]
            said += [await limiter.acquire(Quota(2, "day", tz="Asia/Tokyo"), cost=2) for _ in range(2)]
            said += [await limiter.peek(SMALL, key="a")]
            await limiter.refund(SMALL, key="a")
            said += [await limiter.acquire(SMALL, key="a")]
            await limiter.reset(SMALL, key="a")
            said += [await limiter.acquire(SMALL, key="a", cost=2), await limiter.acquire(TokenBucket(0))]
            said += [await limiter.acquire(TokenBucket(None)), await limiter.acquire()]
            return said

    def plain(clock: FakeClock) -> list[Any]:
        limiter = fake_limiter(clock, "same")
        said: list[Any] = [limiter.acquire(SMALL, key="a") for _ in range(3)]
        said += [limiter.acquire(SMALL, FixedWindow("5/s"), LeakyBucket("1/s", depth=2), key="b")]
        said += [limiter.acquire(Quota(2, "day", tz="Asia/Tokyo"), cost=2) for _ in range(2)]
        said += [limiter.peek(SMALL, key="a")]
        limiter.refund(SMALL, key="a")
        said += [limiter.acquire(SMALL, key="a")]
        limiter.reset(SMALL, key="a")
        said += [limiter.acquire(SMALL, key="a", cost=2), limiter.acquire(TokenBucket(0))]
        return [*said, limiter.acquire(TokenBucket(None)), limiter.acquire()]

    assert asyncio.run(main(FakeClock(), clients(server)[name]())) == plain(FakeClock())


def test_b89_one_limiter_in_two_loops_after_each_other(server: RedisServer) -> None:
    for source in (server.url(), aioredis.Redis(port=server.port), lambda: aioredis.Redis(port=server.port)):
        limiter, key = AsyncLimiter(source, "loops"), str(source)  # type: ignore[arg-type]

        async def main(limiter: AsyncLimiter = limiter, key: str = key) -> int:
            said = [await limiter.acquire(LIMIT, key=key) for _ in range(3)]
            await limiter.aclose()
            said.append(await limiter.acquire(LIMIT, key=key))
            return said[-1].remaining

        assert [asyncio.run(main()) for _ in range(3)] == [996, 992, 988]


def test_b89_loops_in_threads_at_once(server: RedisServer) -> None:
    limiter, passed = AsyncLimiter(server.url(), "threads", timeout=10), []

    async def main() -> None:
        passed.extend(await asyncio.gather(*(limiter.acquire(LIMIT) for _ in range(200))))
        await limiter.aclose()

    threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.allowed for one in passed].count(True) == 1000
    assert len(passed) == 1200


def test_b89_no_threads_and_nothing_left_open(server: RedisServer) -> None:
    async def main() -> None:
        for n in range(1000):
            limiter = AsyncLimiter(server.url(), f"scope {n}")
            if n % 50 == 0:
                await limiter.acquire(LIMIT)
            await limiter.aclose()

    before, connected = threading.active_count(), len(server.client().client_list())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())
        gc.collect()
    assert threading.active_count() == before
    assert len(server.client().client_list()) <= connected + 1


def test_aclose_leaves_the_users_own_client_alone(server: RedisServer) -> None:
    async def main() -> None:
        client = aioredis.Redis(port=server.port)
        await client.set("mine", 1)
        limiter = AsyncLimiter(client, "theirs")
        await limiter.acquire(LIMIT)
        await limiter.aclose()
        assert await client.get("mine") == b"1"
        await client.aclose()

    asyncio.run(main())


def test_a_cancelled_call_leaves_no_answer_behind(server: RedisServer) -> None:
    """Cancelled at any moment; every answer that comes is the one to its own question."""

    async def main() -> None:
        pool = aioredis.ConnectionPool(port=server.port, max_connections=2)
        limiter = AsyncLimiter(aioredis.Redis(connection_pool=pool), "cancelled", timeout=5, denials=0)
        limits = [TokenBucket("1/h", 10**6 + n, name=f"n{n}") for n in range(2)]
        await limiter.acquire(limits[0])
        cancelled = 0
        for n in range(400):
            task = asyncio.ensure_future(limiter.acquire(limits[0], cost=7))
            for _ in range(n % 12):
                await asyncio.sleep(0)
            if n % 3 == 0:
                await asyncio.sleep(n % 7 * 20e-6)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                cancelled += 1
            said = await limiter.acquire(limits[1], cost=1)
            assert said.remaining == 10**6 + 1 - (n + 1)
        assert cancelled > 100
        await limiter.aclose()

    asyncio.run(main())


def test_aclose_waits_for_what_is_under_way(own_server: RedisServer) -> None:
    async def main() -> int:
        limiter, admin = AsyncLimiter(own_server.url(), "closing", timeout=1), own_server.client()
        for warm in (False, True):
            admin.execute_command("CLIENT", "PAUSE", 50, "ALL")
            asked = [asyncio.ensure_future(limiter.acquire(LIMIT)) for _ in range(100)]
            await asyncio.sleep(0.005 if warm else 0)
            await limiter.aclose()
            assert all(said.policies for said in await asyncio.gather(*asked))
        return int(admin.info("clients")["connected_clients"])

    assert asyncio.run(main()) == 1


def test_limiters_that_are_dropped_leave_no_connection(own_server: RedisServer) -> None:
    """Nobody should make one for each request; it is no leak all the same."""

    async def main() -> int:
        for _ in range(20):
            assert (await AsyncLimiter(own_server.url(), "dropped").acquire(LIMIT)).policies
        await asyncio.sleep(0.3)  # each looks at the clock once more
        gc.collect()
        await asyncio.sleep(0.05)
        return int(own_server.client().info("clients")["connected_clients"])

    assert asyncio.run(main()) == 1


def test_questions_of_one_lost_round_trip_are_one_failure(own_server: RedisServer) -> None:
    async def main() -> None:
        async with AsyncLimiter(own_server.url(), "stall", timeout=0.1, denials=0) as limiter:
            await limiter.acquire(LIMIT)
            own_server.client().execute_command("CLIENT", "PAUSE", 130, "ALL")
            lost = await asyncio.gather(*(limiter.acquire(LIMIT) for _ in range(20)))
            assert not any(said.policies for said in lost)
            await asyncio.sleep(0.05)
            assert (await limiter.acquire(LIMIT)).policies, "no second without limits for one stall"

    asyncio.run(main())


@pytest.mark.skipif(not hasattr(asyncio, "eager_task_factory"), reason="before Python 3.12")
def test_tasks_that_begin_at_once(own_server: RedisServer) -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        limiter = AsyncLimiter(f"unix://{own_server.folder}/none", "eager", on_store_error="closed")
        with pytest.raises(StoreUnavailable):
            await limiter.acquire(LIMIT)
        await limiter.aclose()
        async with AsyncLimiter(own_server.url(), "eager") as limiter:
            assert (await limiter.acquire(LIMIT)).policies

    asyncio.run(asyncio.wait_for(main(), 5))


@pytest.mark.parametrize("reply", [None, b"OK", "OK", [], b"1 0", b"9 0 0 0", b""])
@pytest.mark.parametrize("limits", [[LIMIT], [FixedWindow("1/s")], [LIMIT, SMALL]])
def test_what_is_no_answer_of_ours_is_none(reply: Any, limits: list[Any]) -> None:
    """A proxy, a pooler or another server may speak; the policy says what then."""

    async def answered(*_: Any) -> Any:
        return reply

    for way, kind in (("open", AsyncLimiter), ("closed", AsyncLimiter)):
        limiter = kind("redis://localhost", on_store_error=way)
        limiter._reach.ask = answered  # type: ignore[method-assign]
        if way == "open":
            assert asyncio.run(limiter.acquire(*limits)).policies == ()
        else:
            with pytest.raises(StoreUnavailable, match="no Redis"):
                asyncio.run(limiter.acquire(*limits))
    waiting = Limiter("redis://localhost", on_store_error="closed", lease=10)
    waiting._ask_script = lambda *_: reply
    with pytest.raises(StoreUnavailable, match="no Redis"):
        waiting.acquire(*limits)


def test_b89_loops_of_many_threads_that_come_and_go(server: RedisServer) -> None:
    limiter, failed = AsyncLimiter(server.url(), "threads", on_store_error="closed", timeout=5), []

    async def ask() -> None:
        await limiter.acquire(LIMIT)
        await limiter.aclose()

    def work() -> None:
        try:
            for _ in range(40):
                asyncio.run(ask())
        except Exception as error:
            failed.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert failed == []


def test_b37_a_forgotten_script_comes_with_the_same_call(server: RedisServer) -> None:
    async def main() -> None:
        async with AsyncLimiter(server.url(), "forgotten") as limiter:
            for n in range(1, 4):
                server.client().script_flush()
                assert (await limiter.acquire(LIMIT)).remaining == 1000 - n

    asyncio.run(main())


def test_b02_of_forty_at_once_exactly_ten_pass(server: RedisServer) -> None:
    async def main() -> None:
        async with AsyncLimiter(server.url(), "race", timeout=5) as limiter:
            for key in range(20):
                said = await asyncio.gather(*(limiter.acquire(TokenBucket("10/60s", 10), key=key) for _ in range(40)))
                assert [one.allowed for one in said].count(True) == 10

    asyncio.run(main())


def test_b50_one_command_per_decision(server: RedisServer) -> None:
    async def main() -> None:
        async with AsyncLimiter(server.url(), "commands") as limiter:
            for limits in ([LIMIT], [LIMIT, TokenBucket("1/h", 50), FixedWindow("100/h")]):
                await limiter.acquire(*limits)
                before = asked(server)
                for _ in range(10):
                    await limiter.acquire(*limits)
                assert asked(server) - before == 10

    asyncio.run(main())


def asked(server: RedisServer) -> int:
    """Scripts called."""
    return int(server.client().info("commandstats")["cmdstat_evalsha"]["calls"])  # type: ignore[index]


def test_a_refusal_is_asked_for_once_a_second(server: RedisServer) -> None:
    async def main() -> None:
        async with AsyncLimiter(server.url(), "denied", now=clock) as limiter:
            assert [(await limiter.acquire(limit)).allowed for _ in range(2)] == [True, False]
            before = asked(server)
            for tenth in range(1, 10):
                clock.advance(0.1)
                assert (await limiter.acquire(limit)).retry_after == pytest.approx(60 - tenth / 10)
            assert asked(server) == before
            clock.advance(0.1)
            assert (await limiter.acquire(limit)).retry_after == 59
            assert asked(server) == before + 1

    clock, limit = FakeClock(), TokenBucket("1/min")
    asyncio.run(main())


class Off:
    """An asyncio client that cannot reach Redis."""

    asked = 0

    async def evalsha(self, *args: Any) -> Any:
        self.asked += 1
        raise redis.ConnectionError("refused")

    execute_command = evalsha


def limiter_off(clock: FakeClock, **options: Any) -> tuple[AsyncLimiter, Off]:
    client = Off()
    limiter = AsyncLimiter(lambda: client, now=clock, **options)  # type: ignore[arg-type, return-value]
    limiter._reach.breaker = Breaker(clock=lambda: clock() / 1e6)

    async def sleep(seconds: float) -> None:
        pass

    limiter._reach._sleep = sleep  # type: ignore[assignment]
    return limiter, client


@pytest.mark.parametrize("way", ["open", "closed", "local"])
def test_b43_without_redis(way: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        clock = FakeClock()
        limiter, client = limiter_off(clock, on_store_error=way)
        answers: list[Any] = []
        for _ in range(100):
            try:
                answers.append((await limiter.acquire(SMALL)).allowed)
            except StoreUnavailable:
                answers.append("closed")
        assert answers == {"open": [True] * 100, "closed": ["closed"] * 100, "local": [True] * 2 + [False] * 98}[way]
        assert (limiter.unanswered, client.asked, len(caplog.records)) == (100, 12, 1)
        clock.advance(1)
        with pytest.raises(StoreUnavailable):
            await limiter.reset(SMALL)
        assert client.asked == 13
        if way != "closed":
            await limiter.refund(SMALL)

    asyncio.run(main())


def test_wait_decorator_and_slot() -> None:
    async def main() -> None:
        clock = FakeClock()
        limiter = fake_async_limiter(clock)
        began = clock()
        assert [(await limiter.wait(SMALL)).allowed for _ in range(5)] == [True] * 5
        assert clock() - began == 300_000
        with pytest.raises(Throttled) as caught:
            await limiter.wait(SMALL, max_wait=0.05)
        assert caught.value.retry_after == 0.1

        @limiter.limit("2/min", key="{user}")
        async def call(user: str) -> str:
            return user

        assert [await call("a"), await call("b"), await call(user="a")] == ["a", "b", "a"]
        with pytest.raises(Throttled):
            await call("a")
        line = LeakyBucket("1/s", depth=1)
        async with limiter.slot(line) as said:
            assert said == Decision(True, 2, 1, 0, 1, (line,))
        began = clock()
        async with limiter.slot(line):
            assert clock() - began == 1_000_000
        with pytest.raises(CostExceedsLimit):
            await limiter.acquire(SMALL, cost=3)
        with pytest.raises(TypeError, match="is not async"):
            limiter.limit("1/s")(lambda: None)

    asyncio.run(main())


def test_shadow() -> None:
    async def main() -> None:
        limiter = AsyncLimiter(fakeredis.FakeAsyncRedis(), mode="shadow")
        assert all([await limiter.acquire(SMALL) for _ in range(50)])
        assert 45 <= limiter.shadowed <= 48

    asyncio.run(main())


@pytest.mark.parametrize("wrong", [redis.Redis(), 42, None])
def test_what_is_no_asyncio_client_is_refused(wrong: Any) -> None:
    with pytest.raises(ThrottleError, match=r"no redis\.asyncio\.Redis"):
        AsyncLimiter(wrong)
    with pytest.raises(ThrottleError):
        AsyncReach("http://localhost")


def test_b44_a_slow_server_costs_the_budget_and_no_more(own_server: RedisServer) -> None:
    async def main() -> list[float]:
        took = []
        async with AsyncLimiter(aioredis.Redis(port=own_server.port), "slow") as limiter:
            await limiter.acquire(LIMIT)
            own_server.client().execute_command("CLIENT", "PAUSE", 3000, "ALL")
            for _ in range(20):
                began = time.monotonic()
                assert (await limiter.acquire(LIMIT)).policies == ()
                took.append(time.monotonic() - began)
        return took

    took = asyncio.run(main())
    assert max(took) <= 0.3
    assert sum(took) <= 1.5, "the breaker is open"


def test_each_of_many_at_once_hears_its_own_answer(server: RedisServer) -> None:
    """They share a round trip; what is left tells whose answer it is."""
    limit = TokenBucket("1/h", 100)
    for n in range(50):
        Limiter(server.url(), "own").acquire(limit, key=n, cost=n)

    async def ask() -> list[int]:
        async with AsyncLimiter(server.url(), "own") as limiter:
            return [said.remaining for said in await asyncio.gather(*(limiter.peek(limit, key=n) for n in range(50)))]

    assert asyncio.run(ask()) == [100 - n for n in range(50)]
