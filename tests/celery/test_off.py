"""Switched off, eager, called directly, or without Redis: what happens then, and what must not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from celery import Celery

from tests.fleet import Fleet
from tests.services import RedisServer, free_port, redis_server
from throttle import throttled


@pytest.fixture
def app_without_redis() -> Iterator[Celery]:
    """An app whose Redis does not exist; messages stay in memory."""
    app = Celery("nowhere", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.throttle_redis_url = f"redis://127.0.0.1:{free_port()}/0"
    yield app
    app.close()


def closed_task(app: Celery) -> Any:
    @throttled(0)
    @app.task(name="closed", shared=False)
    def closed(n: int) -> int:
        if n < 0:
            raise ValueError(n)
        return n * 2

    return closed


def test_b24_none_is_no_limit_and_no_redis_traffic(app_without_redis: Celery) -> None:
    @throttled(None)
    @app_without_redis.task(name="free", shared=False)
    def free(n: int) -> int:
        return n

    began = time.monotonic()
    for n in range(1000):
        free.delay(n)
    assert free(7) == 7
    assert time.monotonic() - began < 5


def test_b80_a_direct_call_is_the_plain_function(app_without_redis: Celery) -> None:
    closed = closed_task(app_without_redis)
    assert closed(3) == 6
    assert closed.run(3) == 6
    with pytest.raises(ValueError):
        closed(-1)


@pytest.mark.parametrize("propagates", [True, False])
def test_b81_eager(app_without_redis: Celery, propagates: bool) -> None:
    app_without_redis.conf.update(task_always_eager=True, task_eager_propagates=propagates)
    closed = closed_task(app_without_redis)
    assert closed.delay(3).get() == 6
    assert closed.apply((4,)).get() == 8
    assert closed.apply_async((5,), countdown=60).get() == 10
    if propagates:
        with pytest.raises(ValueError):
            closed.delay(-1)
    else:
        assert closed.delay(-1).state == "FAILURE"
    for n in range(10_000 if propagates else 10):
        assert closed.delay(n).result == 2 * n


def test_switched_off_an_eta_still_holds(fleet_of: Callable[..., Fleet]) -> None:
    fleet = fleet_of(PROJECT_ENABLED="0", PROJECT_RATE="1/min")
    fleet.worker()
    sent = time.time()
    fleet.project.send.apply_async((1,), countdown=1.5)
    fleet.project.app.send_task("send", (2,), eta=datetime.now(timezone.utc) + timedelta(seconds=1.5))
    for start in fleet.started(2):
        assert start.at >= sent + 1.45


def test_b115_switched_off_what_is_parked_still_runs(fleet_of: Callable[..., Fleet]) -> None:
    """And new calls issue no command."""
    fleet = fleet_of(PROJECT_RATE="1000/s")
    fleet.project.send.throttle.set_rate(0)
    for n in range(20):
        fleet.project.send.delay(n)
    fleet.project.send.throttle.reset_rate()
    off = fleet_of(PROJECT_ENABLED="0", PROJECT_RATE="1000/s")
    off.worker()
    for n in range(20, 40):
        off.project.send.delay(n)
    starts = off.started(40)
    assert sorted(int(start.what) for start in starts) == list(range(40))
    fleet.until(lambda: fleet.project.send.throttle.depth() == 0, 5, "empty backlog")


@pytest.fixture
def limiter_server() -> Iterator[RedisServer]:
    """Redis for the limits alone, which keeps its data when it is killed."""
    server = redis_server("--appendonly", "yes", "--appendfsync", "always")
    yield server
    server.remove()


@pytest.mark.slow
def test_b43_park_keeps_everything_and_recovers(fleet_of: Callable[..., Fleet], limiter_server: RedisServer) -> None:
    """Rule 12 and 3. While Redis is away nothing runs; then all does, once, paced."""
    fleet = fleet_of(PROJECT_REDIS=limiter_server.url(), PROJECT_RATE="20/s", PROJECT_TIMEOUT="0.5", PROJECT_LEASE="3")
    project = fleet.project
    fleet.worker()
    for n in range(40):
        project.send.delay(n)
    fleet.started(10)
    limiter_server.stop()
    time.sleep(0.5)
    for n in range(40, 50):
        project.send.delay(n)
        project.app.send_task("send", (100 + n,))
    at_rest = len(fleet.record())
    project.plain.delay("meanwhile")
    time.sleep(1.5)
    assert len(fleet.record("send")) <= at_rest + 2  # what was on its way to its body
    limiter_server.start()
    fleet.until(lambda: len({start.what for start in fleet.record("send")}) == 60, 30, "all 60")
    assert len(fleet.record("send")) == 60
    assert 1 <= fleet.logs().count("not logged for a minute") <= 5


def test_b43_open_runs_unthrottled(fleet_of: Callable[..., Fleet]) -> None:
    """Rule 12. Redis for the limits does not exist; an ETA is kept all the same."""
    fleet = fleet_of(
        PROJECT_REDIS=f"redis://127.0.0.1:{free_port()}/0", PROJECT_RATE="1/min", PROJECT_TIMEOUT="0.5",
        PROJECT_ON_STORE_ERROR="open",
    )  # fmt: skip
    fleet.worker()
    sent = time.time()
    fleet.project.send.apply_async(("eta",), countdown=2)
    for n in range(20):
        fleet.project.send.delay(n)
        fleet.project.app.send_task("send", (100 + n,))
    starts = {start.what: start.at - sent for start in fleet.started(41)}
    assert starts.pop("eta") >= 2
    assert max(starts.values()) < 2
    assert 1 <= fleet.logs().count("not logged for a minute") <= 5


def test_b44_a_slow_redis_has_a_time_budget(fleet_of: Callable[..., Fleet], limiter_server: RedisServer) -> None:
    """Rule 12. A Redis that answers nobody holds a producer for the time budget, not for ever."""
    fleet = fleet_of(PROJECT_REDIS=limiter_server.url(), PROJECT_TIMEOUT="0.3")
    fleet.project.send.delay(0)
    limiter_server.client().execute_command("CLIENT", "PAUSE", "3000", "ALL")
    began = time.monotonic()
    fleet.project.send.delay(1)
    assert time.monotonic() - began < 1.5
    limiter_server.stop()
    limiter_server.start()
    fleet.worker()
    starts = fleet.started(2)
    assert sorted(start.what for start in starts) == ["0", "1"]


def test_django_namespace(fleet_of: Callable[..., Fleet]) -> None:
    """Settings as in Django: CELERY_THROTTLE_…, from an object, end to end."""
    fleet = fleet_of(module="tests.celery.namespaced")
    fleet.worker()
    for n in range(10):
        fleet.project.paced.delay(n)
    starts = fleet.started(10)
    assert max(start.at for start in starts) - min(start.at for start in starts) >= 9 / 20 * 0.95
    keys = [key.decode() for key in fleet.server.client(0).scan_iter(count=1000)]
    assert keys
    assert all(key.startswith("shop:") for key in keys)
