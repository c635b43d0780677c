"""The short way to Redis keeps what the client promises: its pool, its retries, its options, whoever looks on."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import fakeredis
import pytest
import redis
from redis.backoff import NoBackoff
from redis.cache import CacheConfig
from redis.retry import Retry
from redis.sentinel import SentinelConnectionPool

from tests.services import RedisServer
from throttle import Limiter, StoreUnavailable, TokenBucket
from throttle.keys import Namer
from throttle.scripts import script
from throttle.store import Store
from throttle.wire import Wire, wire

LIMIT = TokenBucket("1/h", 1000)
OTHER = TokenBucket("1/h", 500, name="other")
ONCE = Retry(NoBackoff(), 1)


def clients(server: RedisServer) -> dict[str, Callable[[], redis.Redis]]:
    return {
        "plain": server.client,
        "decoding": lambda: server.client(decode_responses=True),
        "RESP3": lambda: server.client(protocol=3),
        "RESP3 decoding": lambda: server.client(protocol=3, decode_responses=True),
        "single": lambda: server.client(single_connection_client=True),
        "health checks": lambda: server.client(health_check_interval=1),
        "unix": lambda: redis.Redis(unix_socket_path=f"{server.folder}/sock"),
        "pool of one": lambda: redis.Redis(connection_pool=redis.ConnectionPool(port=server.port, max_connections=1)),
        "blocking pool of one": lambda: redis.Redis(
            connection_pool=redis.BlockingConnectionPool(port=server.port, max_connections=1, timeout=5)
        ),
    }


NAMES = ["plain", "decoding", "RESP3", "RESP3 decoding", "single", "health checks", "unix", "pool of one",
         "blocking pool of one"]  # fmt: skip


@pytest.fixture(params=NAMES)
def client(request: pytest.FixtureRequest, server: RedisServer) -> Iterator[redis.Redis]:
    made = clients(server)[request.param]()
    yield made
    made.close()


def remaining(limiter: Limiter) -> list[int]:
    return [limiter.acquire(LIMIT).remaining, limiter.acquire(OTHER, LIMIT).remaining]


def test_every_kind_of_client_has_a_wire(client: redis.Redis) -> None:
    assert isinstance(wire(client), Wire)


def test_answers_are_the_same_on_every_client(client: redis.Redis) -> None:
    limiter = Limiter(client, "same")
    assert remaining(limiter) == [999, 499]
    assert remaining(limiter) == [997, 498]
    said = limiter.peek(LIMIT)
    assert (said.allowed, said.limit, said.remaining, said.policies) == (True, 1000, 996, (LIMIT,))


def test_a_forgotten_script_comes_with_the_same_call(client: redis.Redis, server: RedisServer) -> None:
    limiter = Limiter(client, "forgotten")
    assert remaining(limiter) == [999, 499]
    server.client().script_flush()
    assert remaining(limiter) == [997, 498]


def test_a_connection_that_was_killed_between_calls_is_made_anew(client: redis.Redis, server: RedisServer) -> None:
    limiter = Limiter(client, "killed")
    for n in range(3):
        assert remaining(limiter) == [999 - 2 * n, 499 - n]
        kill(server)


def kill(server: RedisServer) -> None:
    other = server.client()
    me = other.client_id()
    for one in other.client_list():
        if int(one["id"]) != me:
            other.client_kill_filter(_id=one["id"])


def test_the_pool_has_all_its_connections_back(server: RedisServer) -> None:
    """Also when calls fail: one connection serves all that follow."""
    pool = redis.ConnectionPool(port=server.port, max_connections=1)
    limiter = Limiter(redis.Redis(connection_pool=pool), "pool", on_store_error="closed")
    limiter.acquire(LIMIT)
    server.client().set(script_bucket(limiter), "nonsense")
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            limiter.acquire(LIMIT)
    kill(server)
    limiter.reset(LIMIT)
    assert limiter.acquire(LIMIT)
    assert all_there(limiter, 1)


def all_there(limiter: Limiter, size: int) -> bool:
    """Whether the pool that the limiter made, of the client's class and size, has all its connections to give."""
    pool = limiter._store.client.connection_pool
    assert pool.max_connections == size
    held = [pool.get_connection() for _ in range(size)]
    for connection in held:
        pool.release(connection)
    return True


def script_bucket(limiter: Limiter) -> str:
    return limiter._scope.keys([LIMIT], None)[0]


def test_threads_share_a_pool_and_none_keeps_a_connection(server: RedisServer) -> None:
    pool = redis.BlockingConnectionPool(port=server.port, max_connections=3, timeout=20)
    limiter, passed = Limiter(redis.Redis(connection_pool=pool), "threads"), []
    threads = [
        threading.Thread(target=lambda: passed.extend(bool(limiter.acquire(LIMIT)) for _ in range(150)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (passed.count(True), passed.count(False)) == (1000, 200)
    assert all_there(limiter, 3)


def test_threads_share_a_single_connection(server: RedisServer) -> None:
    limiter, passed = Limiter(server.client(single_connection_client=True), "single"), []
    threads = [
        threading.Thread(target=lambda: passed.extend(bool(limiter.acquire(LIMIT)) for _ in range(150)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (passed.count(True), passed.count(False)) == (1000, 200)


class Counting(redis.Connection):
    """Loses the reply to every EVALSHA, which Redis has run."""

    sent = 0

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        super().send_packed_command(command, check_health)
        if b"EVALSHA" in b"".join(command):
            type(self).sent += 1
            super().read_response()
            self.disconnect()
            raise redis.ConnectionError("lost")


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_it_tries_as_often_as_the_client_would(retries: int, server: RedisServer, monkeypatch: Any) -> None:
    """What was lost was taken; each further try takes again."""
    monkeypatch.setattr("throttle.wire.CONNECTIONS", (Counting,))
    monkeypatch.setattr(Counting, "sent", 0)
    server.client().script_load(script("acquire").text)
    pool = redis.ConnectionPool(
        connection_class=Counting, port=server.port, max_connections=1, retry=Retry(NoBackoff(), retries)
    )
    client = redis.Redis(connection_pool=pool)
    with pytest.raises(StoreUnavailable, match="lost"):
        Store(client).ask("acquire", ["b"], "peek - 1 1 0 0 1")
    ours, Counting.sent = Counting.sent, 0
    with pytest.raises(redis.ConnectionError):
        client.evalsha(script("acquire").sha, 1, "b", "peek - 1 1 0 0 1")
    assert ours == Counting.sent == retries + 1


def test_a_prefix_beyond_ascii_is_packed_by_bytes(server: RedisServer) -> None:
    limiter = Limiter(server.client(), "prefix", namer=Namer("größe"))
    assert remaining(limiter) == [999, 499]
    assert all(key.startswith("größe:{prefix}:".encode()) for key in server.client().scan_iter())


def test_a_message_of_any_bytes_is_packed_as_it_is() -> None:
    made = script("lead")
    packed = made.packed(["größe"], [b"\xff\r\n\x00", 12, 0.5, ""])
    assert packed == b"".join(
        redis.Connection().pack_command("EVALSHA", made.sha, 1, "größe", b"\xff\r\n\x00", 12, 0.5, "")
    )
    for keys in (["key"], ["a", "bc"], ["k"] * 12):
        assert made.packed(keys, ["text"]) == made.packed_text(keys, "text")


class Own(redis.Redis):
    pass


class OwnPool(redis.ConnectionPool):
    pass


class OwnConnection(redis.Connection):
    pass


UNKNOWN: dict[str, Callable[[int], Any]] = {
    "fakeredis": lambda port: fakeredis.FakeRedis(),
    "class": lambda port: Own(port=port),
    "pool": lambda port: redis.Redis(connection_pool=OwnPool(port=port)),
    "connection": lambda port: redis.Redis(connection_pool=redis.ConnectionPool(OwnConnection, port=port)),
    "cache": lambda port: redis.Redis(port=port, protocol=3, cache_config=CacheConfig()),
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_a_client_of_another_kind_is_asked_itself(kind: str, server: RedisServer) -> None:
    client = UNKNOWN[kind](server.port)
    assert wire(client) is None
    if kind != "cache":  # that asks for Redis 7.4
        assert remaining(Limiter(client, "unknown")) == [999, 499]


def test_a_client_that_is_traced_is_asked_itself(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As OpenTelemetry (a wrapper) and Sentry (a function of its own) do it."""
    seen: list[Any] = []
    real = redis.Redis.execute_command

    def traced(self: Any, *args: Any, **options: Any) -> Any:
        seen.append(args[0])
        return real(self, *args, **options)

    for execute in (traced, functools.wraps(real)(traced)):
        monkeypatch.setattr(redis.Redis, "execute_command", execute)
        seen.clear()
        assert wire(server.client()) is None
        assert Limiter(server.client(), "traced").acquire(LIMIT)
        assert "EVALSHA" in seen


def test_a_sentinels_pool_has_a_wire(own_server: RedisServer) -> None:
    class Manager:
        def discover_master(self, name: str) -> tuple[str, int]:
            return "127.0.0.1", own_server.port

    client = redis.Redis(connection_pool=SentinelConnectionPool("main", Manager(), retry=ONCE))
    assert isinstance(wire(client), Wire)
    limiter = Limiter(client, "sentinel")
    assert remaining(limiter) == [999, 499]
    kill(own_server)
    assert remaining(limiter) == [997, 498]


def test_a_store_that_is_closed_leaves_its_wire(server: RedisServer) -> None:
    store = Store(server.url())
    limiter = Limiter(store, "closed")
    assert limiter.acquire(LIMIT).remaining == 999
    first = store._pooled
    store.close()
    assert limiter.acquire(LIMIT).remaining == 998
    assert store._pooled is not first
