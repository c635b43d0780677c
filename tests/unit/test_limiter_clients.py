"""How a limiter reaches Redis: URLs and clients of all kinds, connections shared and few, one command a decision."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio as aioredis
from redis import connection as sync
from redis import sentinel
from redis.asyncio import connection as awaited
from redis.asyncio import sentinel as async_sentinel

from tests.fleet import ROOT
from tests.services import RedisServer, free_port
from throttle import AsyncLimiter, FixedWindow, Limiter, StoreUnavailable, ThrottleError, TokenBucket
from throttle.loops import _ours
from throttle.testing import EPOCH
from throttle.timely import Timely, within

LIMIT = TokenBucket("1/h", 1000)

URLS = {
    # URL: (kind of connection, some of its options)
    "redis://localhost": ("Connection", {"host": "localhost"}),
    "redis://:secret@example.net:7000/4": ("Connection", {"host": "example.net", "port": 7000, "db": 4}),
    "redis://user:p%40ss@[::1]:6380/0": ("Connection", {"host": "::1", "username": "user", "password": "p@ss"}),
    "rediss://example.net:6380/1?ssl_cert_reqs=CERT_NONE": ("SSLConnection", {"ssl_cert_reqs": "none", "db": 1}),
    "rediss://example.net?ssl_ca_certs=/ca.pem": ("SSLConnection", {"ssl_ca_certs": "/ca.pem"}),
    "unix:///run/redis.sock?db=2": ("UnixDomainSocketConnection", {"path": "/run/redis.sock", "db": 2}),
    "redis+socket:///run/redis.sock?virtual_host=3": ("UnixDomainSocketConnection", {"db": 3}),
    "valkey://localhost:6379/1": ("Connection", {"host": "localhost", "db": 1}),
    "valkeys://localhost": ("SSLConnection", {"host": "localhost"}),
    "redis://localhost?db=3&decode_responses=True": ("Connection", {"db": 3, "decode_responses": False}),
}  # fmt: skip


@pytest.mark.parametrize("url", URLS)
def test_b46_a_url_makes_the_right_client(url: str) -> None:
    kind, options = URLS[url]
    pool = Limiter(url)._store.client.connection_pool
    assert issubclass(pool.connection_class, (Timely, getattr(sync, kind)))
    assert issubclass(pool.connection_class, getattr(sync, kind))
    assert {name: pool.connection_kwargs.get(name) for name in options} == options
    assert (pool.connection_kwargs["socket_timeout"], pool.connection_kwargs["socket_connect_timeout"]) == (0.25, 0.25)


@pytest.mark.parametrize("url", URLS)
def test_b46_also_awaited(url: str) -> None:
    kind, options = URLS[url]
    pool = _ours(aioredis.Redis.from_url(AsyncLimiter(url)._reach._source)).connection_pool  # type: ignore[arg-type]
    assert issubclass(pool.connection_class, getattr(awaited, kind))
    assert {name: pool.connection_kwargs.get(name) for name in options} == options


@pytest.mark.parametrize("url", ["http://localhost", "localhost:6379", "redis//x", "redis://u:pa ss:w@x:y", "amqp://x"])
def test_b46_what_is_no_url_of_redis_is_said_at_once(url: str) -> None:
    for kind in (Limiter, AsyncLimiter):
        with pytest.raises(ThrottleError) as caught:
            kind(url)
        assert "pa ss" not in str(caught.value)


def test_b46_sentinels() -> None:
    manager = sentinel.Sentinel([("localhost", 1)])
    for ssl in (False, True):
        theirs = manager.master_for("main", ssl=ssl, db=5, password="p")
        pool: Any = within(theirs, 0.25).connection_pool
        assert type(pool) is sentinel.SentinelConnectionPool
        assert (pool.service_name, pool.sentinel_manager, pool.is_master) == ("main", manager, True)
        assert issubclass(pool.connection_class, theirs.connection_pool.connection_class)
        assert (pool.connection_kwargs["db"], pool.connection_kwargs["password"]) == (5, "p")
        assert pool.connection_kwargs["connection_pool"] is pool.proxy
    awaited_manager = async_sentinel.Sentinel([("localhost", 1)])
    pool = _ours(awaited_manager.master_for("main", db=5)).connection_pool
    assert (type(pool), pool.service_name) == (async_sentinel.SentinelConnectionPool, "main")


def test_b46_a_clients_options_are_kept_but_for_what_costs_time() -> None:
    theirs = redis.Redis(
        host="h", port=7, db=3, username="u", client_name="n", protocol=3, health_check_interval=9, ssl=True
    )
    pool: Any = within(theirs, 0.25).connection_pool
    kept = {"host": "h", "port": 7, "db": 3, "username": "u", "client_name": "n", "protocol": 3}
    assert {name: pool.connection_kwargs[name] for name in kept} == kept
    assert "health_check_interval" not in pool.connection_kwargs
    assert pool.connection_kwargs["retry"]._retries == 0
    small = redis.Redis(connection_pool=redis.BlockingConnectionPool(max_connections=3, timeout=9, socket_timeout=0.1))
    pool = within(small, 0.25).connection_pool
    assert (pool.max_connections, pool.timeout, pool.connection_kwargs["socket_timeout"]) == (3, 0.05, 0.1)
    assert theirs.connection_pool.connection_kwargs["health_check_interval"] == 9, "theirs is left as it was"


class Own(redis.Redis):
    pass


def test_b46_a_client_of_an_unknown_kind_is_used_as_it_is() -> None:
    client = Own()
    assert within(client, 0.25) is client
    assert Limiter(client)._store.client is client


def test_b49_a_hundred_limiters_share_their_connections(server: RedisServer) -> None:
    client = redis.Redis(port=server.port)
    for source in (server.url(), client):
        before = len(server.client().client_list())
        limiters = [Limiter(source, f"scope {n}") for n in range(100)]
        for limiter in limiters:
            assert limiter.acquire(LIMIT)
        assert len(server.client().client_list()) <= before + 2
    assert limiters[0]._store is not Limiter(client, timeout=1)._store, "another budget is another way"


def test_b49_limiters_that_are_gone_leave_no_connection(server: RedisServer) -> None:
    import gc

    server.client().ping()
    before = len(server.client().client_list())
    for n in range(20):
        assert Limiter(server.url(), timeout=1 + n).acquire(LIMIT)
    gc.collect()
    assert len(server.client().client_list()) <= before + 2


@pytest.mark.parametrize(
    "limits", [[LIMIT], [LIMIT, TokenBucket("1/h", 100), FixedWindow("100/h")]], ids=["one", "three"]
)
def test_b50_one_command_per_decision(limits: list[Any], server: RedisServer) -> None:
    limiter = Limiter(server.url(), "commands")
    limiter.acquire(*limits)
    before = {name: found["calls"] for name, found in server.client().info("commandstats").items()}  # type: ignore[union-attr]
    for key in range(50):
        limiter.acquire(*limits, key=key)
        limiter.peek(*limits, key=key)
    after = {name: found["calls"] for name, found in server.client().info("commandstats").items()}  # type: ignore[union-attr]
    sent = {name: calls - before.get(name, 0) for name, calls in after.items()}
    assert sent["cmdstat_evalsha"] == 100
    ours = {"cmdstat_get", "cmdstat_set", "cmdstat_time", "cmdstat_evalsha"}  # what scripts do, and this test's own
    assert {name for name, calls in sent.items() if calls} - ours <= {
        "cmdstat_info",
        "cmdstat_client|setinfo",
        "cmdstat_hello",
    }


def test_more_threads_than_connections_wait_for_each_other(server: RedisServer) -> None:
    pool = redis.ConnectionPool(port=server.port, max_connections=2)
    limiter, passed = Limiter(redis.Redis(connection_pool=pool), "crowd", timeout=10, on_store_error="closed"), []
    threads = [
        threading.Thread(target=lambda: passed.extend(limiter.acquire(LIMIT).allowed for _ in range(100)))
        for _ in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (passed.count(True), passed.count(False)) == (1000, 200)


def test_capacity_10_refill_5_a_second_by_threads_of_two_processes(server: RedisServer) -> None:
    """20 at once: 10; one second later 10 more: 5; what is refused is told to come in a second, as HTTP says it."""
    limit = TokenBucket("5/s", 10)

    def round_of(each: int, now: float) -> tuple[int, set[int]]:
        """Half the calls here and half in another process, each in a thread of its own."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            os.write(writer, ",".join(map(str, ask(each, now))).encode())
            os._exit(0)
        os.close(writer)
        own = ask(each, now)
        with os.fdopen(reader) as found:
            theirs = [int(one) for one in found.read().split(",")]
        os.waitpid(child, 0)
        return (own + theirs).count(0), set(own + theirs) - {0}

    def ask(calls: int, now: float) -> list[int]:
        """For each call: 0 if it passed, else what Retry-After says."""
        limiter, said = Limiter(server.url(), "capacity", timeout=5, now=lambda: round(now * 1e6)), []
        barrier = threading.Barrier(calls)

        def one() -> None:
            barrier.wait()
            said.append(math.ceil(limiter.acquire(limit).retry_after))

        threads = [threading.Thread(target=one) for _ in range(calls)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return said

    assert round_of(10, EPOCH) == (10, {1})
    assert round_of(5, EPOCH + 1) == (5, {1})


def test_b02_of_forty_calls_of_eight_processes_ten_pass(server: RedisServer) -> None:
    limiter, limit = Limiter(server.url(), "b02", timeout=10), TokenBucket("10/60s", 10)
    limiter.peek(limit)
    for trial in range(5):
        children = []
        for _ in range(8):
            child = os.fork()
            if child == 0:
                os._exit(sum(limiter.acquire(limit, key=trial).allowed for _ in range(5)))
            children.append(child)
        assert sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children) == 10


def test_b24_none_is_no_limit_and_zero_is_closed(server: RedisServer) -> None:
    limiter = Limiter("redis://localhost:1", on_store_error="closed")
    assert all(limiter.acquire(TokenBucket(None)) for _ in range(1000)), "nobody is asked"
    said = Limiter(server.url()).acquire(TokenBucket(0))
    assert (said.allowed, said.remaining, said.retry_after) == (False, 0, math.inf)


PROGRAM = """
from gevent import monkey; monkey.patch_all()
import sys, gevent
from throttle import Limiter, TokenBucket
limiter, limit = Limiter(sys.argv[1], "gevent", timeout=10), TokenBucket("1/h", 1000)
ran = [gevent.spawn(lambda: [limiter.acquire(limit).allowed for _ in range(20)]) for _ in range(60)]
gevent.joinall(ran)
print(sum(sum(one.value) for one in ran), limiter.unanswered)
"""


def test_b88_greenlets(server: RedisServer) -> None:
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM, server.url()], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert said.stdout.split() == ["1000", "0"]


def test_b88_children_inherit_a_limiter_with_all_that_it_remembers(server: RedisServer) -> None:
    limiter, small = Limiter(server.url(), "fork", timeout=10, on_store_error="local"), TokenBucket("1/h")
    assert limiter.acquire(LIMIT)
    assert limiter.acquire(small)
    assert not limiter.acquire(small)
    children = []
    for _ in range(8):
        child = os.fork()
        if child == 0:
            try:
                refused = not any(limiter.acquire(small) for _ in range(50))
                os._exit(0 if refused and all(limiter.acquire(LIMIT) for _ in range(100)) else 1)
            except BaseException:
                os._exit(2)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 8
    assert limiter.peek(LIMIT).remaining == 199


KINDS: dict[str, Callable[[int], redis.Redis]] = {
    "RESP2": lambda port: redis.Redis(port=port, protocol=2), "RESP3": lambda port: redis.Redis(port=port, protocol=3),
    "decoding": lambda port: redis.Redis(port=port, decode_responses=True),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_quick_look_before_each_command_sees_what_the_long_one_sees(kind: str, server: RedisServer) -> None:
    """A connection that the server closed, or that has an answer too much, is made anew."""
    limiter = Limiter(KINDS[kind](server.port), "looks", on_store_error="closed", timeout=5)
    assert limiter.acquire(LIMIT).remaining == 999
    pool = limiter._store.client.connection_pool
    connection: Any = limiter._store._pooled._take()  # type: ignore[union-attr]
    assert connection._watch is not None
    connection.send_command("PING")
    server.client().ping()
    pool.release(connection)
    assert limiter.acquire(LIMIT).remaining == 998
    me = server.client()
    for one in me.client_list():
        if int(one["id"]) != me.client_id():
            me.client_kill_filter(_id=one["id"])
    assert limiter.acquire(LIMIT).remaining == 997


def test_a_limiter_that_does_not_ask_tells_why_another_was_not_answered() -> None:
    """They share a breaker; the cause (a certificate, a password, a port) is told by each."""
    url = f"redis://127.0.0.1:{free_port()}"
    limiters = [Limiter(url, name, on_store_error="closed") for name in ("one", "two")]
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="refused"):
            limiters[0].acquire(TokenBucket("1/s"))
    with pytest.raises(StoreUnavailable, match=r"not answered lately.*refused"):
        limiters[1].acquire(TokenBucket("1/s"))
