"""The main job, with real workers: paced, in order, once each."""

from __future__ import annotations

from tests.fleet import Fleet
from throttle import TokenBucket
from throttle.testing import excess


def test_a_burst_is_paced_across_workers(fleet: Fleet) -> None:
    from tests.celery import project

    for _ in range(2):
        fleet.worker()
    for n in range(60):
        project.send.delay(n)
    starts = fleet.started(60)
    assert sorted(int(start.what) for start in starts) == list(range(60))
    assert excess((start.at for start in starts), TokenBucket("20/s"), tolerance=0.005) == 0
