"""The main job, with real workers: paced, in order, once each."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import psutil
import pytest

from tests.fleet import Fleet
from throttle import TokenBucket
from throttle.testing import excess


def test_a_burst_is_paced_across_workers(fleet: Fleet) -> None:
    """Rule 1."""
    fleet.pair()
    for n in range(60):
        fleet.project.send.delay(n)
    starts = fleet.started(60)
    assert sorted(int(start.what) for start in starts) == list(range(60))
    assert excess((start.at for start in starts), TokenBucket("20/s"), tolerance=0.04) == 0


@pytest.mark.slow
def test_b01_one_limit_for_the_whole_fleet(fleet_of: Callable[..., Fleet]) -> None:
    """Rule 1, with a burst: three workers of four threads take what one would, and hardly less."""
    fleet = fleet_of(PROJECT_RATE="20/s", PROJECT_BURST="20")
    for _ in range(3):
        fleet.worker(pool="threads", concurrency=4)
    for n in range(200):
        (fleet.project.send.delay if n % 2 else lambda n: fleet.project.app.send_task("send", (n,)))(n)
    starts = fleet.started(120)
    first = min(start.at for start in starts)
    after_5 = [start for start in fleet.started(121) if start.at <= first + 5]
    assert 0.95 * 120 <= len(after_5) <= 120 + 1
    assert excess((start.at for start in starts), TokenBucket("20/s", 20), tolerance=0.04) == 0


def test_b11_each_task_is_refused_once_at_most(fleet_of: Callable[..., Fleet]) -> None:
    """600 at 100/min:100, scaled: 60 at 20/s with burst 10 through the gate. Refused once, started once."""
    fleet = fleet_of(PROJECT_RATE="20/s", PROJECT_BURST="10")
    fleet.worker()
    for n in range(60):
        fleet.project.app.send_task("send", (n,))
    starts = fleet.started(60)
    counters = fleet.project.send.throttle.backlog.counters()
    assert counters["parked"] <= 60
    assert counters["granted"] + counters["released"] <= 60 + counters["reparked"]
    assert counters["reparked"] <= 6  # late in a cold pool process
    assert counters["recovered"] == 0
    at = [start.at for start in starts]
    for moment in at:  # in no second more than the burst and what the rate gives
        assert sum(1 for other in at if moment <= other < moment + 1) <= 10 + 20 + 1


@pytest.mark.slow
def test_b15_the_rate_is_reached_under_sustained_inflow(fleet_of: Callable[..., Fleet]) -> None:
    """Rule 1, its lower half: three times the rate comes in for 3 s; the limit is used up all the while."""
    fleet = fleet_of(PROJECT_RATE="20/s")
    fleet.worker()
    for n in range(180):
        fleet.project.send.delay(n)
        time.sleep(1 / 60)
    starts = fleet.started(180)
    first = min(start.at for start in starts)
    for second in range(1, 7):
        count = sum(1 for start in starts if first + second <= start.at < first + second + 2)
        assert 0.95 * 40 - 1 <= count <= 41
    assert excess((start.at for start in starts), TokenBucket("20/s"), tolerance=0.04) == 0


def test_b91_first_in_first_out_and_no_overtaking(fleet_of: Callable[..., Fleet]) -> None:
    """Rule 2: newcomers during the drain go behind, though their turn could be now."""
    fleet = fleet_of(PROJECT_RATE="100/s")
    fleet.worker(concurrency=1)
    for n in range(100):
        fleet.project.send.delay(n)
    fleet.started(30)
    for n in range(100, 200):
        fleet.project.send.delay(n)
    assert [int(start.what) for start in fleet.started(200)] == list(range(200))


def test_b91_a_newcomer_at_the_gate_does_not_overtake(fleet_of: Callable[..., Fleet]) -> None:
    """Rule 2, for what was published by name."""
    fleet = fleet_of(PROJECT_RATE="50/s", PROJECT_BURST="3")
    fleet.worker(concurrency=1)
    for n in range(60):
        fleet.project.app.send_task("send", (n,))
    assert [int(start.what) for start in fleet.started(60)] == list(range(60))


def test_b90_lanes_do_not_wait_for_each_other(fleet_of: Callable[..., Fleet]) -> None:
    """Each tenant has its own bucket: 200 tasks of one do not hold up another's first."""
    fleet = fleet_of(PROJECT_RATE="20/s")
    fleet.worker()
    for n in range(200):
        fleet.project.export.delay("big", n)
    sent = time.time()
    fleet.project.export.delay("small", 0)
    fleet.until(lambda: [s for s in fleet.record() if s.what == "small:0"], 5, "small:0")
    (small,) = (start for start in fleet.record() if start.what == "small:0")
    assert small.at - sent < 1
    assert fleet.project.export.throttle.depth("big") > 150


def test_b53_throttled_tasks_do_not_block_others(fleet_of: Callable[..., Fleet]) -> None:
    """40 that wait for minutes fill the queue and would fill the prefetch; one unthrottled task behind them."""
    fleet = fleet_of(PROJECT_RATE="10/min", PROJECT_PREFETCH="4")
    fleet.pair(concurrency=2)
    for n in range(40):
        fleet.project.app.send_task("send", (n,))
    sent = time.time()
    fleet.project.plain.delay("b")
    (start,) = fleet.started(1, name="plain")
    assert start.at - sent < 1
    fleet.until(lambda: fleet.project.send.throttle.depth() == 39, 5, "39 parked", fleet.project.send.throttle.depth)
    fleet.until(lambda: fleet.server.client(1).hlen("unacked") == 0, 3, "acknowledgement")  # none waits with the broker


def test_b57_a_waiting_task_takes_no_slot(fleet_of: Callable[..., Fleet]) -> None:
    """One pool process; the soft time limit (2 s) is shorter than the wait (3 s); others run meanwhile."""
    fleet = fleet_of(PROJECT_RATE="1/3s")
    fleet.worker(concurrency=1)
    fleet.project.app.send_task("limited", (0,))
    fleet.project.app.send_task("limited", (1,))
    for n in range(100):
        fleet.project.plain.delay(n)
    plain = fleet.started(100, name="plain")
    waiting = fleet.started(2, name="limited")
    assert max(start.at for start in plain) < waiting[1].at
    assert "SoftTimeLimitExceeded" not in fleet.logs()


@pytest.mark.slow
def test_b70_etas_are_on_time(fleet_of: Callable[..., Fleet]) -> None:
    """60 tasks due at random times: never early, and in 95 of 100 cases within 0.1 s."""
    fleet = fleet_of(PROJECT_RATE="1000/s", PROJECT_BURST="100")
    fleet.worker()
    fleet.project.send.delay("warm")
    fleet.started(1)
    rng, due = random.Random(1), {}
    for n in range(60):
        wait = rng.uniform(0.5, 4)
        due[str(n)] = time.time() + wait
        (fleet.project.send.apply_async if n % 2 else lambda args, **o: fleet.project.app.send_task("send", args, **o))(
            (n,), countdown=wait
        )
    late = sorted(start.at - due[start.what] for start in fleet.started(61) if start.what in due)
    assert late[0] >= 0
    assert late[int(0.95 * len(late))] <= 0.1 + 0.05


@pytest.mark.slow
def test_b52_a_backlog_is_not_in_worker_memory(fleet_of: Callable[..., Fleet]) -> None:
    """20,000 parked, a quarter of them by this worker's gate: it grows by less than 10 MB."""
    fleet = fleet_of(PROJECT_RATE="1000/s")
    project = fleet.project
    project.send.throttle.set_rate(0)
    worker = fleet.worker(concurrency=1)
    memory = psutil.Process(worker.pid).memory_info
    for n in range(500):  # what any worker takes to warm up
        project.app.send_task("send", (n,))
    fleet.until(lambda: project.send.throttle.depth() == 500, 10, "500 parked", project.send.throttle.depth)
    before = memory().rss
    with project.app.producer_pool.acquire() as producer:
        for n in range(4500):
            project.app.send_task("send", (n, "x" * 500), producer=producer)
    backlog = project.send.throttle.backlog
    client = fleet.server.client(0)
    _, value = next(iter(client.hscan_iter(backlog.keys[3])))
    pipe = client.pipeline(transaction=False)  # as 15,000 producers would, in less time
    for n in range(15_000):
        pipe.hset(backlog.keys[3], f"copy{n}", value)
        pipe.zadd(backlog.keys[2], {f"-|0{10**15 + n}|copy{n}": 0})
    pipe.execute()
    fleet.until(lambda: project.send.throttle.depth() == 20_000, 30, "20,000 parked", project.send.throttle.depth)
    most = fleet.server.client(1).hlen("unacked")
    time.sleep(1.0)  # a scheduler's look or two
    assert memory().rss - before < 10 * 2**20
    assert most <= 4
    assert fleet.record() == []


def test_b24_closed_parks_and_a_rate_opens(fleet: Fleet) -> None:
    """Rate 0, coded or set: tasks wait until the rate changes."""
    fleet.worker()
    closed = fleet.project.closed
    for n in range(2):
        closed.delay(n)
    fleet.project.app.send_task("closed", (2,))
    fleet.until(lambda: closed.throttle.depth() == 3, 5, "3 parked", closed.throttle.depth)
    time.sleep(1.0)
    assert fleet.record() == []
    opened = time.time()
    closed.throttle.set_rate("10/s")
    starts = fleet.started(3)
    assert max(start.at for start in starts) - opened < 1
    closed.throttle.set_rate(0)
    closed.delay(3)
    time.sleep(0.5)
    assert closed.throttle.depth() == 1
    closed.throttle.reset_rate()  # coded: closed
    time.sleep(0.5)
    assert len(fleet.record()) == 3


def test_b36_the_default_scope_is_the_task(fleet_of: Callable[..., Fleet]) -> None:
    """Arguments do not matter without a key; and two tasks of one scope share one bucket."""
    fleet = fleet_of(PROJECT_RATE="2/s", PROJECT_BURST="5")
    fleet.worker()
    for n in range(9):
        fleet.project.send.delay(f"argument-{n}")
    starts = fleet.started(7)
    first = min(start.at for start in starts)
    assert sum(1 for start in starts if start.at < first + 0.4) == 5
    for n in range(3):
        fleet.project.first_of_two.delay(n)
        fleet.project.second_of_two.delay(n)
    fleet.until(lambda: len(fleet.record("first_of_two")) + len(fleet.record("second_of_two")) == 6, 10, "6 of both")
    both = [start for start in fleet.record() if start.name.endswith("_of_two")]
    assert excess((start.at for start in both), TokenBucket("2/s"), tolerance=0.04) == 0
    assert fleet.project.first_of_two.throttle.depth() == fleet.project.second_of_two.throttle.depth() == 0


def test_b21_no_time_zone_in_the_way(fleet_of: Callable[..., Fleet]) -> None:
    """Local time, not UTC: a wait of 2 s and an ETA of 2 s are 2 s."""
    conf = '{"enable_utc": false, "timezone": "America/New_York"}'
    fleet = fleet_of(PROJECT_RATE="1/2s", PROJECT_CONF=conf, TZ="America/New_York")
    fleet.worker()
    fleet.project.send.delay(1)
    fleet.project.send.delay(2)
    sent = time.time()
    fleet.project.export.apply_async(("a", 1), countdown=2)
    fleet.project.app.send_task("export", ("b", 1), countdown=2)
    starts = {start.what: start.at for start in fleet.started(4, timeout=8)}
    assert 1.95 <= starts["2"] - starts["1"] < 3
    assert 2 <= starts["a:1"] - sent < 3
    assert 2 <= starts["b:1"] - sent < 3


def test_a_log_and_a_quota_delay_tasks(fleet: Fleet) -> None:
    """Ten in any two seconds, 25 a day; the rest waits for tomorrow."""
    fleet.worker()
    fleet.worker()
    for n in range(20):
        fleet.project.counted.delay(n)
        fleet.project.app.send_task("counted", (100 + n,))
    starts = sorted(start.at for start in fleet.started(25))
    assert all(later - first >= 2 - 0.06 for first, later in zip(starts, starts[10:], strict=False))
    assert starts[-1] - starts[0] < 4.5
    fleet.until(
        lambda: fleet.project.counted.throttle.depth() == 15, 5, "15 wait", fleet.project.counted.throttle.depth
    )
    assert fleet.project.counted.throttle.estimate(1) > 0
    assert len(fleet.record()) == 25
