"""The connection: made late, once per process, never shared across a fork; B88, B44, B49."""

from __future__ import annotations

import os
import threading
import time
from hashlib import sha1
from typing import Any

import pytest
import redis

from tests.services import RedisServer
from throttle import Limiter, StoreUnavailable, ThrottleError, TokenBucket
from throttle.scripts import expanded, script, source
from throttle.store import Store

LIMIT = TokenBucket("1/h", 1000)


def test_nothing_is_connected_until_it_is_used() -> None:
    store = Store("redis://127.0.0.1:1")
    assert store._client is None
    with pytest.raises(StoreUnavailable):
        store.command("PING")


def test_b88_children_do_not_share_the_parents_connection(server: RedisServer) -> None:
    limiter = Limiter(server.url(), "fork", timeout=10)
    assert limiter.acquire(LIMIT).remaining == 999
    children = []
    for _ in range(8):
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if all(limiter.acquire(LIMIT) for _ in range(100)) else 1)
            except BaseException:
                os._exit(2)
        children.append(child)
    own = [bool(limiter.acquire(LIMIT)) for _ in range(100)]
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 8
    assert all(own)
    assert limiter.peek(LIMIT).remaining == 1000 - 1 - 900


def test_b88_threads_may_share_a_limiter(server: RedisServer) -> None:
    limiter, passed, before = Limiter(server.url(), "threads", timeout=10), [], threading.active_count()
    threads = [
        threading.Thread(target=lambda: passed.extend(bool(limiter.acquire(LIMIT)) for _ in range(100)))
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (passed.count(True), passed.count(False)) == (1000, 600)
    assert threading.active_count() == before, "no threads of our own"


def test_b49_one_limiter_is_one_connection(server: RedisServer) -> None:
    limiter = Limiter(server.url(), "one", timeout=10)
    limiter.acquire(LIMIT)
    before = len(server.client().client_list())
    for n in range(100):
        limiter.acquire(TokenBucket("1/s", name=f"n{n}"), key=n)
    assert len(server.client().client_list()) <= before + 1


def test_a_client_that_decodes_serves_as_well(server: RedisServer) -> None:
    """Replies are the same, and parked messages stay bytes."""
    client = redis.Redis(port=server.port, decode_responses=True)
    limiter = Limiter(client, "decoded")
    assert limiter.acquire(LIMIT).remaining == 999
    store = Store(client)
    store.command("SET", "bytes", b"\xff\x00")
    assert store.command("GET", "bytes") == b"\xff\x00"
    assert client.get_connection_kwargs()["decode_responses"], "theirs is left as it was"


def test_a_factory_is_called_once_per_process(server: RedisServer) -> None:
    made = []

    def factory() -> Any:
        made.append(redis.Redis(port=server.port))
        return made[-1]

    limiter = Limiter(factory, "factory")
    for _ in range(5):
        limiter.acquire(LIMIT)
    assert len(made) == 1


def test_after_close_it_connects_anew(server: RedisServer) -> None:
    store = Store(server.url())
    assert store.command("PING")
    first = store.client
    store.close()
    assert store.command("PING")
    assert store.client is not first


def test_b44_a_slow_server_costs_the_budget_and_no_more(own_server: RedisServer) -> None:
    limiter = Limiter(own_server.url(), "slow", timeout=0.1, on_store_error="closed")
    assert limiter.acquire(LIMIT)
    own_server.client().execute_command("CLIENT", "PAUSE", 1500, "ALL")
    took = []
    for _ in range(5):
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            limiter.acquire(LIMIT)
        took.append(time.monotonic() - began)
    assert max(took) <= 0.2, "retries would multiply it, and take twice"


@pytest.mark.parametrize("source", [42, None, object()])
def test_what_is_no_redis_is_refused(source: Any) -> None:
    with pytest.raises(ThrottleError):
        Store(source)


def test_a_script_is_known_by_the_hash_of_its_expanded_text() -> None:
    made = script("acquire")
    assert made is script("acquire")
    assert made.text == expanded("acquire")
    assert made.sha == sha1(made.text.encode()).hexdigest()
    assert "local function gcra_slot(" in made.text, "included"
    assert "local function gcra_calm(" in source("lib/gcra")
    assert "local function gcra_calm(" not in made.text, "not called, so not kept"
    with pytest.raises(FileNotFoundError):
        script("no-such-script")
