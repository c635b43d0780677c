"""Limits of requests on a Redis Cluster: keys, several limits in different slots, all that a limiter can. B39."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from typing import Any

import pytest
import redis
import redis.asyncio as aioredis
from redis.crc import key_slot
from redis.exceptions import ResponseError

from tests.cluster.conftest import Make, at_once
from tests.lua.test_acl import listed
from tests.services import RedisCluster
from throttle import (
    AsyncLimiter,
    FixedWindow,
    LeakyBucket,
    Limiter,
    Quota,
    SlidingLog,
    SlidingWindow,
    StoreUnavailable,
    Throttled,
    ThrottleError,
    TokenBucket,
)
from throttle.cluster_parts import slot_of
from throttle.keys import Namer
from throttle.limits import Limit
from throttle.scripts import script
from throttle.store import Store
from throttle.testing import FakeClock, fake_limiter

MIXED: list[Limit] = [
    TokenBucket("1/h", 8, name="bucket"), SlidingLog("9/h", name="log"), Quota(10, "day", name="quota"),
    FixedWindow("7/h", name="fixed"), SlidingWindow("9/h", name="sliding"), LeakyBucket("1/h", 3, depth=5, name="line"),
]  # fmt: skip


def keys_in(cluster: RedisCluster) -> list[bytes]:
    return sorted(key for node in cluster.masters for key in node.ask("KEYS", "*"))


# -- B39 -----------------------------------------------------------------------------------------------------


def test_b39_keys_of_a_thousand_limiters_occupy_more_than_300_slots(cluster: RedisCluster) -> None:
    client = cluster.client()
    limiters = [Limiter(client, f"scope {n}", on_store_error="closed", timeout=5) for n in range(1000)]
    assert all(limiter.acquire(MIXED[0], key="x") for limiter in limiters)
    found = {node.port: node.ask("KEYS", "*") for node in cluster.masters}
    assert all(len(keys) > 200 for keys in found.values()), "each node has its share"
    assert len({key_slot(key) for keys in found.values() for key in keys}) > 300


def test_b39_each_key_of_a_scope_has_a_slot_of_its_own(cluster: RedisCluster, make: Make) -> None:
    limiter = make(cluster, "one scope")
    for n in range(1000):
        assert limiter.acquire(MIXED[0], key=n)
    assert len({key_slot(key) for key in keys_in(cluster)}) > 900


def test_b39_no_script_is_given_keys_of_two_slots(cluster: RedisCluster, make: Make) -> None:
    """As the servers have heard it: what a cluster refuses was never asked."""
    for node in cluster.masters:
        node.ask("CONFIG", "RESETSTAT")
    limiter = make(cluster, "slots")
    limiter.acquire(*MIXED, key="a")
    limiter.peek(*MIXED, key="a")
    limiter.refund(*MIXED, key="a")
    limiter.reset(*MIXED, key="a")
    stats = {line.split(b":")[0] for node in cluster.masters for line in node.ask("INFO", "errorstats").splitlines()}
    assert not {b"errorstat_CROSSSLOT", b"errorstat_MOVED"} & stats


@pytest.mark.parametrize("key", ["é", "{a}", "}{", "x" * 200, "", "-", "a:b", 1, True])
def test_b39_whatever_a_key_is_called_it_is_one_of_its_own(key: Any, cluster: RedisCluster, make: Make) -> None:
    limiter = make(cluster, "odd {scope}", namer=Namer("préfix"))
    assert limiter.acquire(MIXED[0], key=key).remaining == 7
    assert limiter.acquire(MIXED[0], MIXED[1], key=key).policies
    assert limiter.acquire(MIXED[0], key="other").remaining == 7
    assert all(b"{" not in name and b"}" not in name for name in keys_in(cluster))


def test_without_spread_the_scopes_slot_has_all(cluster: RedisCluster, make: Make) -> None:
    """Where tasks have theirs, under the same names as on one server."""
    limiter, clock = make(cluster, "tasks and requests", spread=False), FakeClock()
    for n in range(20):
        assert limiter.acquire(*MIXED, key=n)
    keys = keys_in(cluster)
    assert len(keys) == 20 * len(MIXED)
    prefix = Namer().scope("tasks and requests").encode()
    assert all(key.startswith(prefix + b"b:") for key in keys)
    assert {key_slot(key) for key in keys} == {key_slot(Namer().backlog("tasks and requests")[0].encode())}
    near = make(cluster, "near", spread=False, now=clock)
    one = fake_limiter(clock, "near")
    for _ in range(9):
        assert near.acquire(*MIXED) == one.acquire(*MIXED)
    apart = make(cluster, "tasks and requests")
    assert apart.peek(MIXED[0], key=1).remaining == 8, "other buckets"


def test_without_spread_several_limits_are_one_script(cluster: RedisCluster, make: Make) -> None:
    limiter = make(cluster, "one", spread=False)
    limiter.acquire(*MIXED)
    for node in cluster.masters:
        node.ask("CONFIG", "RESETSTAT")
    for _ in range(5):
        limiter.acquire(*MIXED[:3])
    calls = [line for node in cluster.masters for line in node.ask("INFO", "commandstats").splitlines()]
    assert [line.split(b",")[0] for line in calls if b"evalsha" in line] == [b"cmdstat_evalsha:calls=5"]


# -- several limits in different slots -----------------------------------------------------------------------


def test_the_answers_are_those_of_one_server(cluster: RedisCluster, make: Make) -> None:
    draw, clock = random.Random(5), FakeClock()
    one, many = fake_limiter(clock, "same"), make(cluster, "same", now=clock, denials=0)
    for _ in range(150):
        how = draw.choice(["acquire", "acquire", "acquire", "peek", "refund", "reset"])
        limits, options = draw.sample(MIXED, draw.randint(1, 4)), {"key": draw.choice("ab")}
        if how != "reset":
            options["cost"] = draw.randint(0, 2)  # type: ignore[assignment]
        said = [getattr(limiter, how)(*limits, **options) for limiter in (one, many)]
        assert said[0] == said[1]
        clock.advance(draw.choice([0, 0.5, 600, 40_000]))


def test_by_the_clocks_of_the_nodes(cluster: RedisCluster, make: Make) -> None:
    limiter = make(cluster, "clocks")
    for n in range(7):
        said = limiter.acquire(*MIXED, key="k")
        assert said
        assert said.remaining == max(0, 6 - n)
    said = limiter.acquire(*MIXED, key="k")
    assert not said
    assert said.policies[0].label == "fixed"
    assert 0 < said.retry_after <= 3600
    assert limiter.peek(MIXED[0], key="k").remaining == 1
    assert limiter.peek(MIXED[2], key="k").remaining == 3


@pytest.mark.parametrize("count", [30, 31, 37])
def test_eight_threads_all_or_nothing(count: int, cluster: RedisCluster, make: Make) -> None:
    """One limit for all, and two of different kinds for some: as many pass as fit, and refusals leave no trace."""
    everyone = TokenBucket("1/h", count, name="everyone")
    some = [SlidingLog(f"{count // 3}/h", name="some"), FixedWindow("5/h", name="few")]
    limiters = [make(cluster, "crowd", denials=0) for _ in range(2)]

    def ask(n: int) -> list[tuple[int, int]]:
        draw, passed = random.Random(n), []
        for _ in range(25):
            who = draw.randint(0, 5)
            if limiters[n % 2].acquire(everyone, some[0].of(who % 2), some[1].of(who)):
                passed.append((who % 2, who))
        return passed

    passed = [one for said in at_once(8, ask) for one in said]
    limiter = limiters[0]
    assert limiter.peek(everyone).remaining in (count - len(passed), max(0, count - len(passed) - 1)), (
        "a ms may be lost"
    )
    for who in range(6):
        took = [one for one in passed if one[1] == who]
        assert limiter.peek(some[1].of(who)).remaining == 5 - len(took)
    for half in range(2):
        took = [one for one in passed if one[0] == half]
        assert limiter.peek(some[0].of(half)).remaining == count // 3 - len(took)
    full = len(passed) == count
    assert full or all(
        limiter.peek(some[0].of(who % 2)).remaining == 0 or limiter.peek(some[1].of(who)).remaining == 0
        for who in range(6)
    ), "who was refused was so for a reason that is still there"


def test_the_largest_wait_whatever_the_order(cluster: RedisCluster, make: Make) -> None:
    clock = FakeClock()
    limiter, waits = make(cluster, "waits", now=clock), [TokenBucket(f"1/{n}h", name=f"w{n}") for n in range(1, 7)]
    for limit in waits:
        assert limiter.acquire(limit)
    for n in range(10):
        random.Random(n).shuffle(waits)
        said = limiter.acquire(*waits)
        assert (said.retry_after, said.policies[0].label) == (6 * 3600, "w6")
        assert sorted(map(str, said.policies)) == sorted(map(str, waits))
    clock.advance(6 * 3600 - 1e-6)
    assert not limiter.acquire(*waits)
    clock.advance(1e-6)
    assert limiter.acquire(*waits)


# -- all that a limiter can ----------------------------------------------------------------------------------


def test_wait_slot_and_decorator(cluster: RedisCluster) -> None:
    clock = FakeClock()
    limiter = Limiter(cluster.client(), "waits", now=clock, on_store_error="closed", timeout=5)
    limiter._sleep = clock.advance
    pair = TokenBucket("1/s", 2, name="p"), LeakyBucket("1/s", 1, depth=1, name="q")
    began = clock()
    for _ in range(5):
        assert limiter.wait(*pair)
    assert clock() - began == 4 * 10**6

    @limiter.limit(TokenBucket("1/min"), TokenBucket("1/min", 5, name="other"), key="{who}")
    def call(who: str) -> str:
        return who

    assert call("a") == "a"
    with pytest.raises(Throttled):
        call("a")
    with limiter.slot(*pair, key="x") as said:
        assert said


def test_refusals_are_remembered_until_something_is_given_back(cluster: RedisCluster, make: Make) -> None:
    limiter, pair = make(cluster, "denials"), (TokenBucket("1/h", 2, name="a"), FixedWindow("1/h", name="b"))
    assert limiter.acquire(*pair)
    first = limiter.acquire(*pair)
    for node in cluster.masters:
        node.ask("CONFIG", "RESETSTAT")
    for _ in range(20):
        said = limiter.acquire(*pair)
        assert not said
        assert first.retry_after - 1 < said.retry_after < first.retry_after
    assert not any(b"cmdstat_evalsha" in node.ask("INFO", "commandstats") for node in cluster.masters)
    limiter.refund(*pair)
    assert limiter.acquire(*pair)
    assert not limiter.acquire(*pair)
    limiter.reset(*pair)
    assert limiter.acquire(*pair).policies
    assert limiter.peek(pair[0]).remaining == 1


def test_reset_forgets_buckets_of_all_slots(cluster: RedisCluster, make: Make) -> None:
    limiter = make(cluster, "reset")
    assert limiter.acquire(*MIXED, key="a", cost=3)
    assert limiter.acquire(MIXED[0], key="b")
    limiter.reset(*MIXED, key="a")
    assert [limiter.peek(limit, key="a").remaining for limit in MIXED] == [limit.capacity for limit in MIXED]
    assert limiter.peek(MIXED[0], key="b").remaining == 7


def test_shadow_counts_on_keys_apart(cluster: RedisCluster, make: Make) -> None:
    shadow, real = make(cluster, "shadow", mode="shadow"), make(cluster, "shadow")
    pair = TokenBucket("1/h", 2, name="a"), FixedWindow("5/h", name="b")
    assert all(shadow.acquire(*pair) for _ in range(10))
    assert shadow.shadowed == 8
    assert real.peek(*pair).remaining == 2
    assert all(b":s:" in key for key in keys_in(cluster))


def test_processes_are_counted_for_the_time_without_redis(cluster: RedisCluster, make: Make) -> None:
    for n in range(3):
        limiter = make(cluster, "alive", on_store_error="local")
        assert limiter.acquire(*MIXED[:2], key=n)
    assert limiter._answers.outage.local.processes == 1, "they are one process"
    assert Namer().scope("alive").encode() + b"alive" in keys_in(cluster)


def test_a_script_that_nodes_have_forgotten(cluster: RedisCluster, make: Make) -> None:
    limiter = make(cluster, "forgotten")
    for n in range(6):
        for node in cluster.masters:
            node.ask("SCRIPT", "FLUSH")
        assert limiter.acquire(MIXED[0], key=n).remaining == 7
        assert limiter.acquire(*MIXED, key=n).policies
        limiter.refund(*MIXED, key=n)
        assert limiter.acquire(MIXED[3], key=n).remaining == 6


def test_leases(cluster: RedisCluster, make: Make) -> None:
    limit = TokenBucket("1/h", 100)
    limiter = make(cluster, "leases", lease=5)
    assert sum(bool(limiter.acquire(limit)) for _ in range(200)) <= 100


# -- clients -------------------------------------------------------------------------------------------------


def test_factories_and_clients_that_decode(cluster: RedisCluster) -> None:
    port = cluster.nodes[1].port
    kinds: list[Any] = [
        lambda: redis.RedisCluster(host="127.0.0.1", port=port),
        redis.RedisCluster(host="127.0.0.1", port=port, decode_responses=True),
        redis.RedisCluster(host="127.0.0.1", port=port, protocol=3),
        redis.RedisCluster.from_url(f"redis://127.0.0.1:{port}"),
    ]
    for n, kind in enumerate(kinds):
        limiter = Limiter(kind, "kinds", on_store_error="closed", timeout=5)
        assert limiter.acquire(*MIXED, key=n)
        assert limiter.acquire(MIXED[0], key=n).remaining == 6


def test_awaited_factories_and_clients(cluster: RedisCluster) -> None:
    port = cluster.nodes[1].port
    kinds: list[Any] = [
        lambda: aioredis.RedisCluster(host="127.0.0.1", port=port),
        aioredis.RedisCluster(host="127.0.0.1", port=port, decode_responses=True),
        aioredis.RedisCluster(host="127.0.0.1", port=port, protocol=3),
        aioredis.RedisCluster.from_url(f"redis://127.0.0.1:{port}"),
    ]

    async def main(kind: Any, key: int) -> int:
        async with AsyncLimiter(kind, "awaited kinds", on_store_error="closed", timeout=5) as limiter:
            assert await limiter.acquire(*MIXED, key=key)
            await asyncio.gather(*(limiter.peek(*MIXED, key=n) for n in range(100)))
            return (await limiter.acquire(MIXED[0], key=key)).remaining

    for n, kind in enumerate(kinds):
        assert [asyncio.run(main(kind, n)) for _ in range(2)] == [6, 4], "in one loop after another"


def test_a_pool_of_one_learns_where_slots_are_while_questions_share_its_connection(cluster: RedisCluster) -> None:
    async def main() -> None:
        client = aioredis.RedisCluster(host="127.0.0.1", port=cluster.nodes[1].port, max_connections=1)
        async with AsyncLimiter(client, "one", on_store_error="closed", timeout=5) as limiter:
            await limiter.acquire(*MIXED)
            reach: Any = limiter._reach
            reach.client._slots.doubted = True  # as after a slot that has moved
            for _ in range(200):
                await asyncio.gather(*(limiter.peek(*MIXED, key=n) for n in range(10)))
                if not reach.client._slots.doubted:
                    return
            raise AssertionError("not learnt")

    asyncio.run(main())


def test_a_forked_child_goes_on(cluster: RedisCluster) -> None:
    limiter = Limiter(cluster.client(), "fork", on_store_error="closed", timeout=5)
    assert limiter.acquire(*MIXED)
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os._exit(0 if limiter.acquire(*MIXED) and limiter.peek(MIXED[3]).remaining == 5 else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert limiter.acquire(MIXED[3]).remaining == 4


def test_a_clients_options_are_taken(cluster: RedisCluster) -> None:
    for node in cluster.masters:
        node.ask("ACL", "SETUSER", "limits", "reset", "on", ">secret", "~throttle:*", "+@all")
    greeted: list[Any] = []
    client = redis.RedisCluster(
        host="127.0.0.1", port=cluster.nodes[0].port, username="limits", password="secret", client_name="theirs",
        redis_connect_func=greeted.append,
    )  # fmt: skip
    theirs = len(greeted)
    limiter = Limiter(client, "options", on_store_error="closed", timeout=5)
    assert limiter.acquire(*MIXED)
    lines = [line for node in cluster.masters for line in node.ask("CLIENT", "LIST").splitlines()]
    ours = [line for line in lines if b"name=theirs" in line and b"cmd=eval" in line]
    assert len(ours) == 3
    assert all(b"user=limits" in line for line in ours)
    assert len(greeted) >= theirs + 3


def test_b48_the_commands_listed_are_enough(cluster: RedisCluster) -> None:
    """For the limiter; redis-py's own cluster client asks for COMMAND too, when it connects itself."""
    commands = [f"+{command.lower()}" for command in listed()]
    for node in cluster.masters:
        node.ask(
            "ACL", "SETUSER", "few", "reset", "on", ">x", "~throttle:*", "+@connection", "+cluster|slots", *commands
        )
    slot = slot_of(f"throttle:acl:b:{MIXED[0].label}|k")
    source = cluster.node_of(slot)
    target = next(node for node in cluster.masters if node is not source)

    async def main() -> None:
        client = aioredis.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port, username="few", password="x")
        async with AsyncLimiter(client, "acl", on_store_error="closed", timeout=5) as limiter:
            for moving in (False, True):
                if moving:
                    cluster.begin_move(slot, target)
                assert await limiter.acquire(*MIXED, key="k")
                await limiter.refund(*MIXED, key="k")
                await limiter.reset(*MIXED, key="k")
        cluster.end_move(slot, target)

    asyncio.run(main())


def test_tasks_cannot_have_a_cluster_yet(cluster: RedisCluster) -> None:
    with pytest.raises(ThrottleError, match="tasks cannot be limited on Redis Cluster yet"):
        Store(cluster.client())
    with pytest.raises(ThrottleError, match="tasks cannot be limited on Redis Cluster yet"):
        Store(cluster.client).command("PING")


def test_one_node_taken_for_a_server_says_what_to_do(cluster: RedisCluster) -> None:
    scope = next(f"s{n}" for n in range(99) if cluster.node_of(slot_of(Namer().scope(f"s{n}"))) != cluster.nodes[0])
    limiter = Limiter(cluster.nodes[0].url(), scope, on_store_error="closed", timeout=5)
    with pytest.raises(StoreUnavailable, match=r"make the limiter from a redis\.RedisCluster"):
        limiter.acquire(MIXED[0])


def test_keys_of_two_slots_are_refused_by_this_cluster(cluster: RedisCluster) -> None:
    """So the tests above do prove something."""
    with pytest.raises(ResponseError, match="same slot"):
        cluster.nodes[0].ask("EVAL", script("acquire_all").text, 2, "a", "b", "x")
