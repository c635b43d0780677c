"""A Redis Cluster of three masters, and limiters of both kinds that are asked alike."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio as aioredis
from redis.asyncio.cluster import ClusterNode as AsyncClusterNode
from redis.cluster import ClusterNode

from tests.services import RedisCluster, redis_cluster
from throttle import AsyncLimiter, Limiter


@pytest.fixture(scope="session")
def cluster_process() -> Iterator[RedisCluster]:
    cluster = redis_cluster(3, 0, "--cluster-require-full-coverage", "no")  # it serves what it can
    yield cluster
    cluster.remove()


@pytest.fixture
def cluster(cluster_process: RedisCluster) -> RedisCluster:
    """A cluster with nothing in it."""
    cluster_process.flush()
    return cluster_process


class Awaited:
    """An `AsyncLimiter` in a loop of its own, asked as a `Limiter` is, by any thread."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.limiter = AsyncLimiter(*args, **options)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.limiter, name)
        return (lambda *args, **options: self.run(found(*args, **options))) if callable(found) else found

    def run(self, awaitable: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(awaitable, self.loop).result(10)

    def end(self) -> None:
        self.run(self.limiter.aclose())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


Make = Callable[..., Any]


@pytest.fixture(params=["Limiter", "AsyncLimiter"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes limiters of either kind: `make(cluster, "scope", …)`. What fails raises, if nothing else is said."""
    ends: list[Callable[[], None]] = []

    def limiter(cluster: RedisCluster, scope: str = "default", **options: Any) -> Any:
        options = {"on_store_error": "closed", "timeout": 5, **options}
        ports = [node.port for node in cluster.nodes]
        if request.param == "Limiter":
            nodes = [ClusterNode("127.0.0.1", port) for port in ports]
            return Limiter(redis.RedisCluster(startup_nodes=nodes), scope, **options)
        seeds = [AsyncClusterNode("127.0.0.1", port) for port in ports]
        made = Awaited(aioredis.RedisCluster(startup_nodes=seeds), scope, **options)
        ends.append(made.end)
        return made

    yield limiter
    for end in ends:
        end()


def at_once(calls: int, call: Callable[[int], Any]) -> list[Any]:
    """What that many threads get, all at once; raises what any of them raised."""
    barrier, said, failed = threading.Barrier(calls), [], []

    def one(n: int) -> None:
        barrier.wait()
        try:
            said.append(call(n))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return said
