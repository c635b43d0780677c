"""Real processes, really killed. Rule 3: nothing is lost, and what runs twice is bounded by what was running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fleet import ROOT, Fleet
from throttle import TokenBucket
from throttle.testing import excess

SCHEDULER = """
import os, signal, sys
from tests.celery.project import app
from throttle.bootstep import scheduler_of
from throttle.publisher import CeleryPublisher
from throttle.deployment import deployment

when, at = sys.argv[1], int(sys.argv[2])
publish, count = CeleryPublisher.publish, 0

def dying(self, envelope, task):
    global count
    if when == "before" and count == at:
        os.kill(os.getpid(), signal.SIGKILL)
    publish(self, envelope, task)
    count += 1
    if when == "after" and count == at:
        os.kill(os.getpid(), signal.SIGKILL)

CeleryPublisher.publish = dying
app.finalize()
scheduler_of(deployment(app)).run()
"""


@pytest.mark.slow
def test_b60_schedulers_killed_while_they_publish(fleet_of: Callable[..., Fleet]) -> None:
    fleet = fleet_of(PROJECT_RATE="1000/s", PROJECT_BURST="50", PROJECT_LEASE="2")
    send = fleet.project.send
    send.throttle.set_rate(0)
    for n in range(50):
        send.delay(n)
    send.throttle.reset_rate()
    store = send.throttle.backlog.store
    for when, at in (("before", 0), ("after", 10), ("before", 5)):
        store.client.delete(store.namer.leader)  # its lease of 2.5 s is another test's
        process = subprocess.run([sys.executable, "-c", SCHEDULER, when, str(at)], cwd=ROOT, check=False, timeout=30)
        assert process.returncode == -9
    fleet.worker()
    starts = fleet.started(50)
    time.sleep(1.0)  # a second copy would start now
    assert sorted(int(start.what) for start in fleet.record()) == list(range(50))
    assert len(starts) == 50


@pytest.mark.slow
@pytest.mark.parametrize("late", ["0", "1"])
def test_workers_killed_in_the_middle_lose_nothing(fleet_of: Callable[..., Fleet], late: str) -> None:
    """Two of two workers are killed again and again; early and late acknowledgement.

    Acknowledged early, what has begun is gone with its process, as without us: at most one task in each.
    """
    fleet = fleet_of(
        PROJECT_RATE="40/s", PROJECT_LATE=late, PROJECT_LEASE="2", PROJECT_VISIBILITY="3", PROJECT_REJECT="1"
    )
    send = fleet.project.send
    workers = fleet.pair()
    for n in range(200):
        if n % 4:
            send.delay(n)
        else:
            fleet.project.app.send_task("send", (n,))
    kills = 0
    for goal in (40, 80, 120):
        fleet.started(goal)
        fleet.kill(workers.pop(0))
        kills += 1
        workers.append(fleet.worker())
    begun = 2 * kills if late == "0" else 0
    fleet.until(lambda: len({start.what for start in fleet.record()}) >= 200 - begun, 30, "different starts")
    fleet.until(lambda: send.throttle.depth() + send.throttle.backlog.flying() == 0, 15, "empty backlog")
    times = Counter(start.what for start in fleet.record())
    gone = 200 - len(times)
    assert gone <= begun
    assert send.throttle.backlog.counters()["started"] >= 200  # all that is gone had begun
    # at a kill two processes may each be in a body that the broker has not been told of
    assert sum(times.values()) - len(times) <= 2 * kills
    assert excess((start.at for start in fleet.record()), TokenBucket("40/s"), tolerance=0.04) <= 1


@pytest.mark.slow
def test_b59_all_killed_with_a_full_backlog(fleet_of: Callable[..., Fleet]) -> None:
    """SIGTERM, SIGQUIT and SIGKILL of every worker: what is parked does not live in them."""
    fleet = fleet_of(PROJECT_RATE="2000/s", PROJECT_LEASE="2", PROJECT_BURST="100")
    send = fleet.project.send
    send.throttle.set_rate(0)
    for n in range(300):
        (send.delay if n % 2 else lambda n: fleet.project.app.send_task("send", (n,)))(n)
    for how in (signal.SIGTERM, signal.SIGQUIT, signal.SIGKILL):
        worker = fleet.worker()
        fleet.until(lambda: send.throttle.depth() == 300, 10, "300 parked", send.throttle.depth)
        fleet.kill(worker, how)
    assert fleet.record() == []
    send.throttle.reset_rate()
    fleet.worker()
    starts = fleet.started(300)
    assert sorted(int(start.what) for start in starts) == list(range(300))


@pytest.mark.parametrize("late", ["0", "1"])
@pytest.mark.parametrize("point", ["gate before", "gate after", "start before"])
def test_b62_killed_inside_the_park_call(fleet_of: Callable[..., Fleet], tmp_path: Path, point: str, late: str) -> None:
    """The worker dies with the message in hand, the pool process at the last check: the task runs once."""
    fleet = fleet_of(
        PROJECT_RATE="2/s", PROJECT_LEASE="1", PROJECT_VISIBILITY="1", PROJECT_LATE=late, PROJECT_REJECT=late
    )
    if point.startswith("gate"):
        fleet.project.send.throttle.set_rate(0)
    for n in range(2):
        fleet.project.app.send_task("send", (n,))
    fleet.env.update(PROJECT_DIE=point, PROJECT_DEAD=str(tmp_path / "dead"))
    first = fleet.worker(wait=False)
    fleet.until((tmp_path / "dead").exists, 20, "death")
    if point.startswith("gate"):
        first.wait(10)
        fleet.project.send.throttle.reset_rate()
        fleet.worker()
    fleet.until(lambda: len({start.what for start in fleet.record()}) == 2, 20, "both", fleet.record)
    fleet.until(lambda: fleet.project.send.throttle.backlog.flying() == 0, 10, "empty flight")
    time.sleep(1.2)  # a second delivery would come now
    assert sorted(start.what for start in fleet.record()) == ["0", "1"]


def test_b64_another_worker_releases_when_the_leader_dies(fleet: Fleet) -> None:
    send = fleet.project.send
    first, second = fleet.pair()
    leads = send.throttle.backlog.store
    fleet.until(lambda: leads.client.get(leads.namer.leader), 5, "leader")
    for n in range(200):
        send.delay(n)
    fleet.started(10)
    leader = first if f":{first.pid}:".encode() in leads.client.get(leads.namer.leader) else second
    assert f":{leader.pid}:".encode() in leads.client.get(leads.namer.leader)
    fleet.kill(leader)
    killed = time.time()
    before = len(fleet.record())
    fleet.until(lambda: any(start.at > killed + 0.5 for start in fleet.record()), 10, "release after the kill")
    after = next(start.at for start in fleet.record() if start.at > killed + 0.5)
    assert after - killed <= 3.5  # 3 s, and one interval and what the pool takes
    assert before >= 10


@pytest.mark.slow
def test_stopped_workers_do_not_let_the_backlog_pile_up(fleet_of: Callable[..., Fleet]) -> None:
    """The worker's pool hangs, its scheduler lives: what is out and not started stays bounded."""
    fleet = fleet_of(PROJECT_RATE="500/s", PROJECT_PREFETCH="1")
    project = fleet.project
    fleet.worker(concurrency=1)
    project.slow.delay("hog", 5.0)
    fleet.started(1)
    project.slow.throttle.set_rate(0)
    for n in range(1000):
        project.slow.delay(n, 0.0)
    project.slow.throttle.reset_rate()
    broker, most = fleet.server.client(1), 0
    end = time.monotonic() + 3
    while time.monotonic() < end:
        most = max(most, broker.llen("celery") + broker.hlen("unacked"))
        time.sleep(0.05)
    backlog = project.slow.throttle.backlog
    assert 0 < most <= backlog.window + 10
    assert backlog.depth() >= 1000 - backlog.window - 10
    fleet.started(1001)


@pytest.mark.slow
@pytest.mark.parametrize("late", ["0", "1"])
def test_a_worker_that_was_suspended_starts_nothing_twice(fleet_of: Callable[..., Fleet], late: str) -> None:
    """Rules 1 and 3. SIGSTOP for longer than its leases last; others take over; then it goes on."""
    fleet = fleet_of(PROJECT_RATE="40/s", PROJECT_LEASE="1", PROJECT_LATE=late)
    first, _ = fleet.pair()
    for n in range(120):
        (fleet.project.send.delay if n % 2 else lambda n: fleet.project.app.send_task("send", (n,)))(n)
    fleet.started(20)
    os.killpg(first.pid, signal.SIGSTOP)
    time.sleep(0.1)
    frozen = fleet.record()
    fleet.until(lambda: len({start.what for start in fleet.record()}) == 120, 30, "all 120", lambda: len(frozen))
    os.killpg(first.pid, signal.SIGCONT)
    fleet.until(lambda: fleet.project.send.throttle.backlog.flying() == 0, 10, "empty flight")
    time.sleep(1.0)
    # a body that was suspended between its start and its note has nothing to do with us: two pool processes
    assert len(fleet.record()) <= 120 + 2
    assert excess((start.at for start in fleet.record()), TokenBucket("40/s"), tolerance=0.04) <= 2
