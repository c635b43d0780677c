"""Connections, keys, commands, processes: what it costs to run, and what goes wrong in operation."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fleet import ROOT, Fleet
from tests.services import RedisServer, redis_server
from throttle import TokenBucket
from throttle.testing import excess

#: Parts of a scope that live as long as something is parked or in flight.
PARKED = ("line", "messages", "ready", "waiting", "delayed", "flight", "tickets")


@pytest.fixture
def limiter_server() -> RedisServer:
    server = redis_server()
    yield server
    server.remove()


def test_b49_a_hundred_tasks_share_the_connections(fleet_of: Callable[..., Fleet], limiter_server: RedisServer) -> None:
    fleet = fleet_of(module="tests.celery.many", PROJECT_REDIS=limiter_server.url())
    fleet.worker(concurrency=1)
    client = limiter_server.client()
    fleet.project.TASKS[0].delay(0)
    fleet.started(1)
    before = len(client.client_list())
    for task in fleet.project.TASKS[1:]:
        task.delay(0)
    fleet.started(100)
    assert len(client.client_list()) <= before + 1
    assert before <= 8  # producer, worker, pool process, scheduler, its subscription, this client


def test_every_key_has_an_end(fleet_of: Callable[..., Fleet], limiter_server: RedisServer) -> None:
    """Rule 9: after parks, ETAs, kills, overrides and a drain, no key is left that would stay for ever."""
    fleet = fleet_of(
        PROJECT_REDIS=limiter_server.url(), PROJECT_RATE="50/s", PROJECT_LEASE="1", PROJECT_VISIBILITY="1",
        PROJECT_LATE="1", PROJECT_REJECT="1",
    )  # fmt: skip
    project, client = fleet.project, limiter_server.client()
    first = fleet.worker(concurrency=1)
    for n in range(20):
        project.send.apply_async((n,), countdown=0.1 * (n % 3), expires=60)
        project.app.send_task("export", (f"tenant-{n % 3}", n))
    project.closed.delay("shut")
    fleet.started(20)
    fleet.kill(first)
    fleet.worker(concurrency=1)
    fleet.until(lambda: len({start.what for start in fleet.record()}) == 40, 20, "all 40")
    project.send.throttle.set_rate("1/3s")
    project.send.delay("one")
    fleet.until(lambda: [start for start in fleet.record() if start.what == "one"], 5, "start")
    project.send.delay("two")
    parked = {key.decode() for key in client.scan_iter(count=1000) if client.ttl(key) == -1}
    assert parked  # those of what is parked
    assert all(key.rpartition(":")[2] in PARKED for key in parked), parked
    (bucket,) = client.scan_iter("throttle:{send}:b:*")
    full = float(client.get(bucket).split()[0]) / 1e6
    assert client.pttl(bucket) / 1000 + time.time() >= full - 0.01
    project.send.throttle.reset_rate()
    project.closed.throttle.set_rate("10/s")
    fleet.until(lambda: len({start.what for start in fleet.record()}) == 43, 10, "all 43", fleet.record)
    fleet.until(lambda: project.closed.throttle.backlog.flying() == 0, 5, "empty flight")
    fleet.until(lambda: project.send.throttle.backlog.flying() == 0, 5, "empty flight")
    left = {key.decode(): client.ttl(key) for key in client.scan_iter(count=1000)}
    assert left
    assert {key: ttl for key, ttl in left.items() if not -2 < ttl <= 31 * 86400 or ttl == -1} == {}


@pytest.mark.slow
def test_commands_do_not_grow(fleet_of: Callable[..., Fleet], limiter_server: RedisServer) -> None:
    """Rule 11: with the backlog, the lanes or the fleet; an idle worker costs less than 1 command a second."""
    fleet = fleet_of(PROJECT_REDIS=limiter_server.url(), PROJECT_RATE="500/s")
    client = limiter_server.client()

    def commands() -> int:
        """Calls from outside (Redis counts what scripts call in them under the same names: those are left out)."""
        stats = client.info("commandstats")
        return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval", "smembers", "ping"))

    for _ in range(3):
        fleet.worker(concurrency=1)
    project = fleet.project
    costs = {}
    for count, lanes in ((100, 1), (500, 1), (500, 50)):
        before, began = commands(), time.monotonic()
        for n in range(count):
            (project.export.delay(f"t{n % lanes}", n) if lanes > 1 else project.send.delay(n))
        name = "export" if lanes > 1 else "send"
        fleet.until(lambda name=name, count=count: len(fleet.record(name)) >= count, 30, "all started")
        idle = 3 * (time.monotonic() - began)
        costs[count, lanes] = (commands() - before - idle) / count
        fleet.record_client.delete("starts")
    # submit, start, begin or late, and a share of release, confirm and recover
    assert max(costs.values()) <= 6, costs
    time.sleep(1.5)
    before = commands()
    time.sleep(5)
    assert commands() - before <= 3 * 5


def test_b67_keys_are_ours_and_purge_is_the_brokers(fleet_of: Callable[..., Fleet], server: RedisServer) -> None:
    """Broker, results and backlog in one database: no key in common, and `celery purge` leaves what is parked."""
    fleet = fleet_of(PROJECT_REDIS=server.url(1), PROJECT_RESULTS=server.url(1), PROJECT_RATE="1/s")
    fleet.worker()
    for n in range(5):
        fleet.project.send.delay(n)
    fleet.started(1)
    keys = {key.decode() for key in server.client(1).scan_iter(count=1000)}
    ours = {key for key in keys if key.startswith("throttle:")}
    assert all(key.startswith(("_kombu", "unacked", "celery", "w0@", "throttle:")) for key in keys)
    assert ours
    assert keys - ours
    fleet.project.app.control.purge()
    assert fleet.project.send.throttle.depth() == 4


def test_the_scheduler_as_a_process_of_its_own(fleet_of: Callable[..., Fleet]) -> None:
    fleet = fleet_of(PROJECT_RATE="20/s", PROJECT_SCHEDULER="0")
    fleet.worker()
    for n in range(20):
        fleet.project.send.delay(n)
    time.sleep(0.5)
    assert len(fleet.record()) <= 1  # nobody releases
    command = [sys.executable, "-m", "workers.scheduler", "-A", "tests.celery.project"]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **fleet.env}, stderr=subprocess.DEVNULL)
    try:
        starts = fleet.started(20)
    finally:
        process.terminate()
        process.wait(10)
    assert process.returncode == 0
    assert [int(start.what) for start in starts] == list(range(20))


def test_b40_a_parked_message_that_is_gone_is_reported(fleet_of: Callable[..., Fleet]) -> None:
    fleet = fleet_of(PROJECT_RATE="100/s")
    fleet.project.send.throttle.set_rate(0)
    results = [fleet.project.send.delay(n) for n in range(3)]
    backlog = fleet.project.send.throttle.backlog
    fleet.server.client(0).hdel(backlog.keys[3], results[1].id)
    fleet.worker(concurrency=1)
    fleet.project.send.throttle.reset_rate()
    assert [start.what for start in fleet.started(2)] == ["0", "2"]
    fleet.until(lambda: "1 parked tasks have lost their message" in fleet.logs(), 5, "error log")


def test_expired_tasks_do_not_hold_up_the_others(fleet_of: Callable[..., Fleet]) -> None:
    """300 that expired while parked, more than may fly at once, and one behind them: it starts at once."""
    fleet = fleet_of(PROJECT_RATE="50/s")
    project = fleet.project
    project.send.throttle.set_rate(0)
    for n in range(300):
        project.send.apply_async((n,), expires=0.5)
    project.send.delay("live")
    time.sleep(0.6)
    fleet.worker()
    opened = time.time()
    project.send.throttle.reset_rate()
    (start,) = fleet.started(1)
    assert start.what == "live"
    assert start.at - opened < 2


def test_sent_events_are_not_parked(fleet_of: Callable[..., Fleet]) -> None:
    """The event goes through the same producer as the task; it is the task alone that waits."""
    fleet = fleet_of(PROJECT_CONF='{"task_send_sent_event": true}')
    project, events = fleet.project, fleet.server.client(1).pubsub(ignore_subscribe_messages=True)
    project.send.throttle.set_rate(0)
    events.psubscribe("*celeryev*")
    events.get_message(timeout=1)
    sent = [project.send.delay(n).id for n in range(3)]
    seen = [json.loads(base64.b64decode(json.loads(message["data"])["body"])) for message in iter_messages(events, 3)]
    assert [(event["type"], event["uuid"]) for event in seen] == [("task-sent", id) for id in sent]
    assert project.send.throttle.depth() == 3


def iter_messages(events: Any, count: int) -> Iterator[Any]:
    end = time.monotonic() + 5
    while count and time.monotonic() < end:
        message = events.get_message(timeout=0.5)
        if message:
            count -= 1
            yield message


@pytest.mark.slow
def test_a_new_process_for_each_task(fleet_of: Callable[..., Fleet]) -> None:
    """Rule 1 where each task starts in a cold process: they come late, never too close together."""
    fleet = fleet_of(PROJECT_RATE="10/s")
    fleet.worker("--max-tasks-per-child", "1")
    for n in range(40):
        fleet.project.send.delay(n)
    starts = fleet.started(40)
    assert len({start.pid for start in starts}) == 40
    assert excess((start.at for start in starts), TokenBucket("10/s"), tolerance=0.08) == 0
