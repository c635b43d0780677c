"""B22: tests of users need no Redis, no sleep, and may freeze the clock."""

from __future__ import annotations

import datetime
import time

import pytest
from celery import Celery
from freezegun import freeze_time

from throttle import TokenBucket, throttled
from throttle.testing import EPOCH, FakeClock, excess, fake_limiter, unthrottled

LIMIT = TokenBucket("1/60s")


def test_b22_the_clock_is_what_it_is_set_to() -> None:
    begin, clock = time.perf_counter(), FakeClock()
    limiter = fake_limiter(clock)
    assert limiter.acquire(LIMIT)
    assert limiter.acquire(LIMIT).retry_after == 60
    clock.advance(60)
    assert limiter.acquire(LIMIT)
    assert time.perf_counter() - begin < 5


def test_b22_under_freezegun() -> None:
    with freeze_time("2030-01-01 12:00:00") as frozen:
        limiter = fake_limiter()
        assert limiter.acquire(LIMIT)
        refused = limiter.acquire(LIMIT)
        assert not refused
        assert refused.retry_after == pytest.approx(60)
        frozen.tick(datetime.timedelta(seconds=60))
        assert limiter.acquire(LIMIT)


def test_the_test_clock_is_ahead_of_the_real_one() -> None:
    """Redis expires keys by its own clock: in the past they would be gone at once."""
    assert time.time() + 366 * 86400 < EPOCH


def test_the_off_switch() -> None:
    app = Celery("off", broker="redis://localhost:1", set_as_current=False)
    app.conf.broker_url, app.conf.throttle_redis_url = "memory://", "redis://localhost:1"

    @throttled("1/h")
    @app.task
    def task() -> None: ...

    with unthrottled(app):
        for _ in range(3):
            task.delay()  # nothing listens on port 1


@pytest.mark.parametrize(
    ("starts", "rate", "burst", "broken"),
    [
        ([], "1/s", 1, 0),
        ([0, 1, 2], "1/s", 1, 0),
        ([2, 0, 1], "1/s", 1, 0),
        ([0, 0.999], "1/s", 1, 1),
        ([0, 0, 0], "1/s", 3, 0),
        ([0, 0, 0, 0], "1/s", 3, 1),
        ([0, 10, 10, 10], "1/s", 2, 1),
    ],
)
def test_the_oracle(starts: list[float], rate: str, burst: int, broken: int) -> None:
    assert excess(starts, TokenBucket(rate, burst)) == broken


def test_the_oracle_allows_for_its_own_clock() -> None:
    assert excess([0, 0.996], TokenBucket("1/s"), tolerance=0.005) == 0
