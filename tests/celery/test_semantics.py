"""What a wait must not change: retries, hooks, results, signatures; whoever publishes, however a task is written."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from kombu import Connection, Exchange, Producer

from tests.fleet import ROOT, Fleet
from throttle import BacklogFull, TokenBucket
from throttle.testing import excess


def test_b54_a_wait_spends_no_retry(fleet_of: Callable[..., Fleet]) -> None:
    """max_retries=0, refused again and again: at submit, at the gate, and put back out of the flight."""
    fleet = fleet_of(PROJECT_RATE="1000/s")
    task = fleet.project.limited
    task.throttle.set_rate(0)
    fleet.worker()
    results = [task.delay(1), fleet.project.app.send_task("limited", (2,))]
    fleet.until(lambda: task.throttle.depth() == 2, 5, "2 parked", task.throttle.depth)
    backlog = task.throttle.backlog
    for _ in range(20):  # let out and called back
        fleet.server.client(0).zadd(backlog.keys[7], {results[0].id: 0})
        fleet.server.client(0).hset(backlog.keys[8], results[0].id, "1 1")
        backlog.recover([results[0].id])
    task.throttle.reset_rate()
    assert [result.get(timeout=10) for result in results] == [0, 0]
    assert {start.retries for start in fleet.record()} == {0}
    assert len(fleet.record()) == 2


def test_b56_retries_are_throttled(fleet_of: Callable[..., Fleet]) -> None:
    """Rule 1. Each attempt that runs the body is a start; they keep Celery's count."""
    fleet = fleet_of(PROJECT_RATE="5/s")
    fleet.worker()
    fleet.project.flaky.delay(1)
    starts = fleet.started(6)
    assert [start.retries for start in starts] == [0, 1, 2, 3, 4, 5]
    assert len({start.id for start in starts}) == 1
    assert starts[-1].at - starts[0].at >= 5 / 5 - 0.04
    time.sleep(0.4)
    assert len(fleet.record()) == 6


def test_b74_autoretry_and_except_do_not_see_a_wait(fleet_of: Callable[..., Fleet]) -> None:
    fleet = fleet_of(PROJECT_RATE="20/s")
    fleet.worker()
    for n in range(10):
        fleet.project.greedy.delay(n)
        fleet.project.app.send_task("greedy", (100 + n,))
    starts = fleet.started(20)
    assert {start.retries for start in starts} == {0}
    assert len({start.id for start in starts}) == 20
    assert fleet.events() == []


def test_b78_results(fleet_of: Callable[..., Fleet]) -> None:
    """ignore_result writes nothing; while it waits a task is PENDING; get() just waits."""
    fleet = fleet_of(PROJECT_RATE="5/s")
    fleet.worker()
    ignored = [fleet.project.unstored.delay(n) for n in range(3)]
    fleet.started(3, name="unstored")
    results = [fleet.project.send.delay(n) for n in range(4)]
    assert results[-1].state == "PENDING"
    assert [result.get(timeout=5) for result in results] == [0, 1, 2, 3]
    kept = [key.decode() for key in fleet.server.client(2).scan_iter("celery-task-meta-*")]
    assert sorted(kept) == sorted(f"celery-task-meta-{result.id}" for result in results)
    assert ignored[0].state == "PENDING"


def test_b78_no_result_backend(fleet_of: Callable[..., Fleet]) -> None:
    fleet = fleet_of(PROJECT_RATE="20/s", PROJECT_RESULTS="disabled://")
    fleet.worker()
    for n in range(5):
        fleet.project.send.delay(n)
        fleet.project.app.send_task("send", (10 + n,))
    assert len(fleet.started(10)) == 10
    assert "Traceback" not in fleet.logs()


FORMS = ["above", "below", "bound", "shared_above", "shared_below", "of_class", "with_base", "validated", "late"]


def test_b79_every_way_to_write_a_task(fleet_of: Callable[..., Fleet]) -> None:
    """Right arguments are limited and run, wrong ones are refused at delay(), the signature is the function's."""
    fleet = fleet_of(module="tests.celery.forms")
    forms = fleet.project.FORMS
    assert list(forms) == FORMS
    for name, task in forms.items():
        task.throttle.set_rate(0)
        task.delay(3)
        task.apply_async((4,), {"times": 2})
        assert task.throttle.depth() == 2, name
        for args, kwargs in (((), {}), ((1, 2, 3), {}), ((1,), {"other": 2})):
            if name not in ("of_class", "validated"):  # nor does Celery check theirs before they run
                with pytest.raises(TypeError):
                    task.apply_async(args, kwargs)
        assert task.throttle.depth() == 2, name
        assert list(inspect.signature(task.run).parameters)[-2:] == ["n", "times"]
        assert task.__doc__ == "Doc."
    fleet.worker()
    results = [forms[name].apply_async((5,), {"times": 3}) for name in forms]
    for task in forms.values():
        task.throttle.reset_rate()
    fleet.started(3 * len(FORMS))
    assert {result.get(timeout=5) for result in results} == {15}
    for name in FORMS:
        assert sorted(start.what for start in fleet.record(name)) == ["3", "4", "5"]
    assert fleet.project.forgotten(2) == 4
    told = re.findall(r"@throttled on tests\.celery\.forms\.(\w+) \(\S+forms.py:\d+\) has no effect", fleet.logs())
    assert sorted(told) == ["forgotten", "hidden"]


def test_b82_by_name_from_a_process_that_knows_nothing(fleet_of: Callable[..., Fleet]) -> None:
    """Rule 1: a Celery app without the task, and a bare message of another language."""
    fleet = fleet_of(PROJECT_RATE="20/s")
    fleet.worker()
    script = (
        "import os; from celery import Celery\n"
        "app = Celery(broker=os.environ['PROJECT_BROKER'])\n"
        "for n in range(20): app.send_task('send', (n,))\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30, env={**os.environ, **fleet.env})
    with Connection(fleet.env["PROJECT_BROKER"]) as connection:
        producer = Producer(connection.channel(), Exchange("celery", "direct"), routing_key="celery")
        for n in range(100, 110):
            body = json.dumps([[n], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}])
            producer.publish(
                body, content_type="application/json", content_encoding="utf-8",
                headers={"lang": "go", "task": "send", "id": str(uuid.uuid4())},
            )  # fmt: skip
    starts = fleet.started(30)
    assert sorted(int(start.what) for start in starts) == [*range(20), *range(100, 110)]
    assert excess((start.at for start in starts), TokenBucket("20/s"), tolerance=0.04) == 0


@pytest.mark.parametrize("knows", [True, False])
def test_b82_beat(fleet_of: Callable[..., Fleet], tmp_path: Path, knows: bool) -> None:
    """Rule 1: beat sends 50 a second, whether it has the task's module or only its name."""
    schedule = {"often": {"task": "send", "schedule": 0.02, "args": [1]}}
    fleet = fleet_of(PROJECT_RATE="10/s", PROJECT_CONF=json.dumps({"beat_schedule": schedule}))
    fleet.worker()
    blind = tmp_path / "blind.py"
    blind.write_text(
        "import os, json; from celery import Celery\n"
        "app = Celery(broker=os.environ['PROJECT_BROKER'])\n"
        "app.conf.update(json.loads(os.environ['PROJECT_CONF']))\n"
    )
    beat = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "tests.celery.project" if knows else "blind", "beat",
         "-s", str(tmp_path / "schedule")],
        cwd=ROOT if knows else tmp_path, env={**os.environ, **fleet.env},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        starts = fleet.started(15)
    finally:
        beat.kill()
        beat.wait()
    assert excess((start.at for start in starts), TokenBucket("10/s"), tolerance=0.08) == 0
    assert fleet.project.send.throttle.depth() > 0


def test_b69_what_would_wait_too_long_fails_at_once(fleet: Fleet) -> None:
    """At submit where the caller hears it; sent by name, as a failure of the task, once, and with no start."""
    task = fleet.project.impatient
    taken, refused = [], []
    for n in range(20):
        try:
            taken.append(task.delay(n))
        except BacklogFull as full:
            refused.append(full)
    assert len(taken) == 5, "one now, and four within the second"
    assert [full.wait for full in refused] == pytest.approx([1.25] * 15, abs=0.1)
    assert refused[-1].retry_after == pytest.approx(0.25, abs=0.1)
    assert task.throttle.estimate(1) == pytest.approx(1.25, abs=0.1)
    by_name = [fleet.project.app.send_task("impatient", (n,)) for n in range(100, 110)]
    fleet.worker()
    assert [result.get(timeout=10) for result in taken] == [0, 1, 2, 3, 4]
    ends = [result.get(timeout=10, propagate=False) for result in by_name]
    failed = [end for end in ends if isinstance(end, BacklogFull)]
    assert len(failed) >= 5, ends
    assert all(end.wait > 1 for end in failed)
    assert len(fleet.record()) == 5 + len(ends) - len(failed)


def test_b69_a_refused_link_of_a_chain_fails_itself(fleet: Fleet) -> None:
    """The one before it has done its work, and says so; the refused one fails, once, with no start."""
    task = fleet.project.impatient
    for n in range(5):
        task.delay(n)
    fleet.worker()
    chain = (fleet.project.plain.si(100) | task.si(101)).apply_async()
    with pytest.raises(BacklogFull):
        chain.get(timeout=10)
    assert chain.parent.state == "SUCCESS"
    fleet.started(6)
    assert "101" not in {start.what for start in fleet.record()}
