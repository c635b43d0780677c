"""The scripts on every Redis at hand, on a clock that the test sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests import redis_versions
from tests.services import RedisServer
from throttle import Limiter, TokenBucket
from throttle.backlog import Backlog
from throttle.store import Store
from throttle.testing import FakeClock


@pytest.fixture(scope="session", params=redis_versions.AT_HAND)
def any_process(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    server = redis_versions.start(request.param)
    yield server
    server.remove()


@pytest.fixture
def any_server(any_process: RedisServer) -> RedisServer:
    """An empty Redis, once for each version."""
    any_process.client().flushall()
    return any_process


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(any_server: RedisServer, clock: FakeClock) -> Store:
    return Store(any_server.client(), now=clock)


@pytest.fixture
def limiter(store: Store) -> Limiter:
    return Limiter(store, "test")


@pytest.fixture
def backlog(store: Store) -> Callable[..., Backlog]:
    """Makes a backlog with these limits."""

    def make(*limits: TokenBucket, scope: str = "test") -> Backlog:
        made = Backlog(store, scope, limits or (TokenBucket("10/s"),))
        made.declare(replace=True)
        return made

    return make
