"""B88, B119: every worker pool, and every way to acknowledge."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import pytest

from tests.fleet import Fleet
from throttle import TokenBucket
from throttle.testing import excess


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo", "gevent"])
def test_b88_pools(fleet_of: Callable[..., Fleet], pool: str) -> None:
    """Rule 1 in each pool: submit, gate and ETA; each runs once, no sooner and hardly later than the rate lets it."""
    fleet = fleet_of(PROJECT_RATE="40/s", PROJECT_LEASE="3")
    project = fleet.project
    fleet.worker(pool=pool, concurrency=1 if pool == "solo" else 4)
    sent = time.time()
    project.send.apply_async((1000,), countdown=1)
    for n in range(40):
        project.send.delay(n)
        project.app.send_task("send", (100 + n,))
    starts = fleet.started(81)
    assert sorted(int(start.what) for start in starts) == [*range(40), *range(100, 140), 1000]
    assert excess((start.at for start in starts), TokenBucket("40/s"), tolerance=0.04) == 0
    at = sorted(start.at for start in starts)
    assert at[-1] - at[0] < 80 / 40 * 1.5
    assert next(start.at for start in starts if start.what == "1000") >= sent + 1
    fleet.until(lambda: project.send.throttle.backlog.flying() == 0, 5, "empty flight")
    if pool != "gevent":  # which takes Celery 5 s
        fleet.stop(fleet.workers[0])
    assert "Traceback" not in fleet.logs()


@pytest.mark.slow
@pytest.mark.parametrize(("late", "reject", "prefetch"), list(itertools.product("01", "01", "14")))
def test_b119_waits_longer_than_the_visibility_timeout(
    fleet_of: Callable[..., Fleet], late: str, reject: str, prefetch: str
) -> None:
    """Rule 3: whatever the acknowledgement, what waits is with us and not with the broker: it runs once."""
    fleet = fleet_of(
        PROJECT_RATE="10/s", PROJECT_VISIBILITY="1", PROJECT_LATE=late, PROJECT_REJECT=reject, PROJECT_PREFETCH=prefetch
    )
    project = fleet.project
    fleet.pair(concurrency=1)
    for n in range(15):
        project.send.delay(n)
        project.app.send_task("send", (100 + n,))
    starts = fleet.started(30)
    assert sorted(int(start.what) for start in starts) == [*range(15), *range(100, 115)]
    counters = project.send.throttle.backlog.counters()
    assert counters["started"] == 30  # units spent
    assert counters["recovered"] == 0


def test_b119_a_busy_pool_beyond_the_visibility_timeout(fleet_of: Callable[..., Fleet]) -> None:
    """Released tasks wait behind slow bodies until Redis delivers them again: they run once all the same."""
    fleet = fleet_of(PROJECT_RATE="50/s", PROJECT_VISIBILITY="1")
    project = fleet.project
    fleet.pair(concurrency=1)
    for n in range(10):
        project.slow.delay(n, 0.5)
    fleet.started(10)
    time.sleep(1.5)
    assert sorted(int(start.what) for start in fleet.record()) == list(range(10))


@pytest.mark.slow
def test_b51_waits_longer_than_the_visibility_timeout(fleet_of: Callable[..., Fleet]) -> None:
    """Also countdowns, which plain Celery keeps unacknowledged and runs several times."""
    fleet = fleet_of(PROJECT_RATE="20/s", PROJECT_VISIBILITY="1")
    project = fleet.project
    fleet.pair()
    project.plain.apply_async(("control",), countdown=5)  # Celery's own: proves that this set-up doubles
    project.send.throttle.set_rate("8/s")
    for n in range(40):
        project.send.delay(n)
    for n in range(5):
        project.send.apply_async((100 + n,), countdown=5)
        project.app.send_task("send", (200 + n,), countdown=5)
    fleet.started(50, name="send")
    fleet.started(1, name="plain")
    time.sleep(1.0)
    assert sorted(int(start.what) for start in fleet.record("send")) == [*range(40), *range(100, 105), *range(200, 205)]
    assert len(fleet.record("plain")) > 1
