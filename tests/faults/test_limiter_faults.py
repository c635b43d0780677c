"""Limiters while Redis is stopped, slow, demoted, restarted: real servers, real time, generous bounds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.services import RedisServer, redis_server
from throttle import AsyncLimiter, Limiter, StoreUnavailable, TokenBucket

LIMIT = TokenBucket("1000000/s", 10**6)
BUDGET = 0.25
SLACK = 0.05  # s; what B44 allows beside the budget


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.monotonic()
    try:
        said = call()
    except StoreUnavailable as error:
        said = error
    return time.monotonic() - began, said


def until(true: Callable[[], bool], seconds: float) -> float:
    """How long it took to become true; fails after so many seconds."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds
        time.sleep(0.005)
    return time.monotonic() - began


# -- B43: stopped ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["open", "closed", "local"])
def test_b43_each_policy_does_what_it_says_and_returns_by_itself(
    way: str, own_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    limiter = Limiter(own_server.url(), f"stopped-{way}", on_store_error=way)
    limit = TokenBucket("1/h", 50)
    assert limiter.acquire(limit).remaining == 49
    own_server.stop()
    took, said = zip(*(timed(lambda: limiter.acquire(limit)) for _ in range(1000)), strict=True)
    assert max(took) <= BUDGET + SLACK
    assert sorted(took)[900] < 0.001, "the breaker is open"
    if way == "open":
        assert all(one.allowed and not one.policies for one in said)
    if way == "closed":
        assert all(isinstance(one, StoreUnavailable) for one in said)
    if way == "local":
        assert [one.allowed for one in said] == [True] * 50 + [False] * 950
    assert len([record for record in caplog.records if record.name.startswith("throttle")]) <= 5
    assert limiter.unanswered == 1000
    own_server.start()

    def asked() -> bool:
        return limiter.unanswered == before

    def normal() -> bool:
        nonlocal before
        before = limiter.unanswered
        with contextlib.suppress(StoreUnavailable):
            limiter.acquire(limit)
        return asked()

    before = 0
    assert until(normal, 4) <= 2


def test_b37_a_server_that_restarts_fails_only_while_it_is_down(own_server: RedisServer) -> None:
    limiter, errors, stop = Limiter(own_server.url(), "restarts", on_store_error="closed", denials=0), [], False

    def ask() -> None:
        while not stop:
            try:
                limiter.acquire(LIMIT)
            except StoreUnavailable:
                errors.append(time.monotonic())
                time.sleep(0.005)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    down = time.monotonic()
    own_server.stop()
    time.sleep(0.5)
    own_server.start()
    up = time.monotonic()
    time.sleep(2.2)
    stop = True
    for thread in threads:
        thread.join()
    assert errors
    assert down <= min(errors)
    assert max(errors) <= up + 2


# -- B44: slow ---------------------------------------------------------------------------------------------


def sources(server: RedisServer) -> dict[str, Callable[[], Any]]:
    return {
        "url": server.url,
        "client that waits for ever and retries": lambda: redis.Redis(port=server.port, socket_timeout=None),
        "blocking pool": lambda: redis.Redis(connection_pool=redis.BlockingConnectionPool(port=server.port)),
        "single": lambda: redis.Redis(port=server.port, single_connection_client=True),
    }  # fmt: skip


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("name", ["url", "client that waits for ever and retries", "blocking pool", "single"])
def test_b44_a_pause_of_three_seconds_costs_a_decision_no_more_than_its_budget(
    name: str, warm: bool, own_server: RedisServer
) -> None:
    limiter = Limiter(sources(own_server)[name](), "slow")
    if warm:
        assert limiter.acquire(LIMIT).policies
    own_server.client().execute_command("CLIENT", "PAUSE", 3000, "ALL")
    took, said = zip(*(timed(lambda: limiter.acquire(LIMIT)) for _ in range(20)), strict=True)
    assert max(took) <= BUDGET + SLACK
    assert all(said)
    assert sum(took) <= 4 * (BUDGET + SLACK), "three failures, and at most one probe"


def test_b44_a_server_that_stands_still(own_server: RedisServer) -> None:
    assert own_server.process is not None
    os.kill(own_server.process.pid, signal.SIGSTOP)
    try:
        limiter = Limiter(own_server.url(), "still", on_store_error="closed")
        for _ in range(5):
            took, said = timed(lambda: limiter.acquire(LIMIT))
            assert isinstance(said, StoreUnavailable)
            assert took <= BUDGET + SLACK
    finally:
        os.kill(own_server.process.pid, signal.SIGCONT)


@pytest.fixture
def far() -> Iterator[int]:
    """A server each of whose answers takes 0.12 s, so that none is too late and all together are."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while connection.recv(65536):
                time.sleep(0.12)
                connection.sendall(b"+OK\r\n")

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listener.getsockname()[1]
    listener.close()


def test_b44_the_budget_is_for_all_steps_together(far: int) -> None:
    for source in (
        f"redis://127.0.0.1:{far}/3?protocol=2",
        redis.Redis(port=far, protocol=2, db=3, username="u", password="p"),
    ):
        limiter = Limiter(source, "far", on_store_error="closed")
        for _ in range(3):
            took, said = timed(lambda limiter=limiter: limiter.acquire(LIMIT))
            assert isinstance(said, StoreUnavailable)
            assert took <= BUDGET + SLACK


def test_b44_also_awaited(far: int) -> None:
    async def main() -> None:
        async with AsyncLimiter(f"redis://127.0.0.1:{far}/3?protocol=2", "far", on_store_error="closed") as limiter:
            for _ in range(3):
                began = time.monotonic()
                with pytest.raises(StoreUnavailable):
                    await limiter.acquire(LIMIT)
                assert time.monotonic() - began <= BUDGET + SLACK

    asyncio.run(main())


# -- B38: demoted ------------------------------------------------------------------------------------------


@pytest.fixture
def pair(own_server: RedisServer, tmp_path: Path) -> Iterator[tuple[RedisServer, RedisServer, Path]]:
    """A master, its replica, and a name that leads to the master."""
    replica = redis_server()
    replica.client().replicaof("127.0.0.1", own_server.port)
    until(lambda: replica.client().info("replication")["master_link_status"] == "up", 20)  # type: ignore[index]
    name = tmp_path / "redis"
    name.symlink_to(f"{own_server.folder}/sock")
    yield own_server, replica, name
    replica.remove()


def swap(pair: tuple[RedisServer, RedisServer, Path]) -> None:
    """The second is master, the first its replica; what is connected to the first stays so."""
    first, second, name = pair
    second.client().replicaof("NO", "ONE")
    first.client().replicaof("127.0.0.1", second.port)
    time.sleep(0.5)
    lead = name.with_suffix(".new")
    lead.symlink_to(f"{second.folder}/sock")
    lead.replace(name)


def test_b38_traffic_follows_the_name_to_the_new_master(pair: Any) -> None:
    limiter, stop = Limiter(f"unix://{pair[2]}", "failover", on_store_error="closed", denials=0), False
    served: list[float] = []
    failed: list[float] = []

    def ask() -> None:
        while not stop:
            try:
                limiter.acquire(LIMIT)
                served.append(time.monotonic())
            except StoreUnavailable:
                failed.append(time.monotonic())
                time.sleep(0.002)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    swap(pair)
    swapped = time.monotonic()
    time.sleep(2.2)
    stop = True
    for thread in threads:
        thread.join()
    assert failed, "the first was read-only for half a second"
    assert [at for at in failed if at > swapped + 2] == []
    assert len([at for at in served if at > swapped + 2]) > 10
    assert pair[1].client().info("commandstats")["cmdstat_evalsha"]["calls"] > 10


def test_b38_at_once_if_the_name_is_quicker_than_the_first_question(pair: Any) -> None:
    limiter = Limiter(f"unix://{pair[2]}", "quick", on_store_error="closed", denials=0)
    assert limiter.acquire(LIMIT)
    swap(pair)
    took, said = timed(lambda: limiter.acquire(LIMIT))
    assert said.policies
    assert took <= BUDGET + SLACK


def test_b38_also_awaited(pair: Any) -> None:
    async def main() -> None:
        async with AsyncLimiter(f"unix://{pair[2]}", "awaited", on_store_error="closed", denials=0) as limiter:
            assert await limiter.acquire(LIMIT)
            swap(pair)
            assert (await limiter.acquire(LIMIT)).policies

    asyncio.run(main())


# -- what they share ---------------------------------------------------------------------------------------


def test_limiters_of_one_process_know_together_that_redis_is_down(own_server: RedisServer) -> None:
    limiters = [Limiter(own_server.url(), f"scope {n}") for n in range(50)]
    assert len({id(limiter._reach) for limiter in limiters}) == 1
    own_server.stop()
    took = [timed(lambda limiter=limiter: limiter.acquire(LIMIT))[0] for limiter in limiters]
    assert len([one for one in took if one > 0.005]) <= 3
