"""Fixtures: real Redis and RabbitMQ, and fleets of real workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fleet import Fleet
from tests.services import RabbitMQ, RedisServer, redis_server


@pytest.fixture(scope="session")
def redis_process() -> Iterator[RedisServer]:
    server = redis_server()
    yield server
    server.remove()


@pytest.fixture
def server(redis_process: RedisServer) -> RedisServer:
    """A Redis with nothing in it."""
    redis_process.client().flushall()
    return redis_process


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """A Redis of the test's own, to be stopped and started."""
    server = redis_server()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMQ]:
    broker = RabbitMQ()
    yield broker
    broker.remove()


@pytest.fixture
def fleet(server: RedisServer, tmp_path: Path) -> Iterator[Fleet]:
    """Workers of `tests.celery.project`, with broker, results and limits on the same Redis."""
    fleet = Fleet(server, tmp_path)
    yield fleet
    fleet.end()


@pytest.fixture
def fleet_of(server: RedisServer, tmp_path: Path) -> Iterator[Callable[..., Fleet]]:
    """Makes a fleet with another environment: `fleet_of(PROJECT_RATE="5/s")`, `fleet_of(broker=url)`."""
    fleets: list[Fleet] = []

    def make(on: RedisServer | None = None, **options: str) -> Fleet:
        folder = tmp_path / str(len(fleets))
        folder.mkdir()
        fleets.append(Fleet(on or server, folder, **options))
        return fleets[-1]

    yield make
    for fleet in reversed(fleets):
        fleet.end()
