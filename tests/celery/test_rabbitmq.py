"""RabbitMQ as the broker; limits, backlog and results stay in Redis."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest

from tests.fleet import Fleet
from tests.services import RabbitMQ
from throttle import TokenBucket
from throttle.testing import excess


@pytest.fixture
def rabbit_fleet(rabbitmq: RabbitMQ, fleet_of: Callable[..., Fleet], request: pytest.FixtureRequest) -> Fleet:
    """A fleet on a queue of its own; acknowledges late."""
    name = request.node.name.replace("[", "_").replace("]", "")[:60]
    return fleet_of(broker=rabbitmq.url(), PROJECT_QUEUE=name, PROJECT_RATE="20/s", PROJECT_LEASE="3", PROJECT_LATE="1")


def test_paced_from_submit_and_from_the_gate(rabbit_fleet: Fleet) -> None:
    """Rules 1 and 3: half of the tasks come by name, from a producer that knows nothing of us."""
    rabbit_fleet.worker()
    for n in range(30):
        rabbit_fleet.project.send.delay(n)
        rabbit_fleet.project.app.send_task("send", (100 + n,))
    starts = rabbit_fleet.started(60)
    assert sorted(int(start.what) for start in starts) == [*range(30), *range(100, 130)]
    assert excess((start.at for start in starts), TokenBucket("20/s"), tolerance=0.04) == 0
    spread = max(start.at for start in starts) - min(start.at for start in starts)
    assert spread < 59 / 20 * 1.25


def test_eta_and_countdown(rabbit_fleet: Fleet) -> None:
    project = rabbit_fleet.project
    rabbit_fleet.worker()
    sent = time.time()
    project.send.apply_async(("eta",), eta=datetime.now(timezone.utc) + timedelta(seconds=2))
    project.app.send_task("send", ("countdown",), countdown=1)
    starts = {start.what: start.at - sent for start in rabbit_fleet.started(2)}
    assert 1.0 <= starts["countdown"] < 1.7
    assert 1.99 <= starts["eta"] < 2.7


def test_b92_nine_goes_first(rabbit_fleet: Fleet) -> None:
    """RabbitMQ's direction: a larger number is more urgent."""
    send = rabbit_fleet.project.send
    send.throttle.set_rate(0)
    for n in range(10):
        send.apply_async((n,), priority=1)
    send.apply_async(("urgent",), priority=9)
    send.throttle.reset_rate()
    rabbit_fleet.worker(concurrency=1)
    assert [start.what for start in rabbit_fleet.started(11)] == ["urgent", *map(str, range(10))]


@pytest.mark.slow
def test_b63_rabbitmq_stopped_during_release(rabbit_fleet: Fleet) -> None:
    """Rule 3. The broker is away for some seconds while tasks are due; then all of them run."""
    broker = RabbitMQ()
    try:
        fleet = Fleet(rabbit_fleet.server, rabbit_fleet.folder, broker=broker.url(), PROJECT_LEASE="3")
        try:
            fleet.worker()
            for n in range(100):
                fleet.project.send.delay(n)
            fleet.started(20)
            broker.stop()
            time.sleep(3)
            broker.start()
            fleet.until(lambda: len({start.what for start in fleet.record()}) == 100, 60, "all of 100")
            assert len(fleet.record()) <= 100 + 2  # a body may run again whose acknowledgement was on its way
            assert excess((start.at for start in fleet.record()), TokenBucket("20/s"), tolerance=0.04) == 0
        finally:
            fleet.end()
    finally:
        broker.remove()


def test_a_killed_worker_loses_nothing(rabbit_fleet: Fleet) -> None:
    """Rule 3: RabbitMQ gives the messages of a lost connection to the next worker at once."""
    first = rabbit_fleet.worker()
    for n in range(40):
        (rabbit_fleet.project.send.delay if n % 2 else lambda n: rabbit_fleet.project.app.send_task("send", (n,)))(n)
    rabbit_fleet.started(10)
    rabbit_fleet.kill(first)
    rabbit_fleet.worker()
    rabbit_fleet.until(lambda: len({start.what for start in rabbit_fleet.record()}) == 40, 30, "all of 40")
    assert len(rabbit_fleet.record()) <= 42
