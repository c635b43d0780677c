"""Fixed and sliding windows, logs and quotas: tables of cases, models, and waits that are exact."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.services import RedisServer
from throttle import (
    CostExceedsLimit,
    FixedWindow,
    InvalidRate,
    LeakyBucket,
    Limiter,
    Quota,
    SlidingLog,
    SlidingWindow,
    TokenBucket,
)
from throttle.store import Store
from throttle.testing import FakeClock

SECOND = 10**6
WINDOWS = [FixedWindow, SlidingWindow, SlidingLog]

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def at_border(clock: FakeClock, period: int = 60 * SECOND) -> None:
    clock.tick(period - clock() % period)


# (µs since the window began, cost) -> allowed, remaining, retry_after (s), reset_after (s)
CASES: dict[Any, list[tuple[int, int, bool, int, float, float]]] = {
    FixedWindow("10/min"): [
        (0, 4, True, 6, 0, 60),
        (30, 6, True, 0, 0, 30),
        (59, 1, False, 0, 1, 1),
        (60, 10, True, 0, 0, 60),
        (61, 1, False, 0, 59, 59),
    ],
    SlidingWindow("10/min"): [
        (0, 4, True, 6, 0, 120),
        (30, 6, True, 0, 0, 90),
        (59, 1, False, 0, 7, 61),  # at 66 s, six of the ten still weigh nine
        (60, 1, False, 0, 6, 60),
        (66, 1, True, 0, 0, 114),
        (90, 4, True, 0, 0, 90),
        (90, 1, False, 0, 6, 90),
    ],
    SlidingLog("10/min"): [
        (0, 4, True, 6, 0, 60),
        (30, 6, True, 0, 0, 60),
        (59, 1, False, 0, 1, 31),
        (59, 5, False, 0, 31, 31),
        (60, 4, True, 0, 0, 60),
        (90, 6, True, 0, 0, 60),
        (90, 1, False, 0, 30, 60),
    ],
    Quota(10, "hour"): [
        (0, 4, True, 6, 0, 3600),
        (1800, 7, False, 6, 1800, 1800),
        (1800, 6, True, 0, 0, 1800),
        (3600, 10, True, 0, 0, 3600),
    ],
}


@pytest.mark.parametrize("limit", CASES, ids=str)
def test_cases(limit: Any, limiter: Limiter, clock: FakeClock) -> None:
    at_border(clock, 3600 * SECOND)
    begin = clock()
    for seconds, cost, *expected in CASES[limit]:
        clock.tick(begin + seconds * SECOND - clock())
        said = limiter.acquire(limit, cost=cost)
        assert [said.allowed, said.remaining, said.retry_after, said.reset_after] == expected, seconds


def admitted(limit: Any, limiter: Limiter, count: int) -> int:
    return sum(limiter.acquire(limit).allowed for _ in range(count))


@pytest.mark.parametrize(
    ("limit", "both"),
    [(FixedWindow("10/s"), 20), (SlidingWindow("10/s"), 10), (SlidingLog("10/s"), 10), (TokenBucket("10/s", 10), 11),
     (LeakyBucket("10/s", 10), 11)],
    ids=str,
)  # fmt: skip
def test_b12_around_the_border_of_a_second(limit: Any, both: int, limiter: Limiter, clock: FakeClock) -> None:
    """Ten at the end of a second and ten at the beginning of the next, 0.1 s later."""
    at_border(clock, SECOND)
    clock.tick(SECOND - 50_000)
    first = admitted(limit, limiter, 10)
    clock.tick(100_000)
    assert first == 10
    assert first + admitted(limit, limiter, 10) == both


@pytest.fixture
def make(any_server: RedisServer) -> Callable[[], tuple[Limiter, FakeClock]]:
    def fresh() -> tuple[Limiter, FakeClock]:
        any_server.client().flushall()
        clock = FakeClock()
        return Limiter(Store(any_server.client(), now=clock), "test"), clock

    return fresh


counts, periods = st.integers(1, 12), st.sampled_from(["s", "7s", "min", "0.25s", "2 h"])
steps = st.lists(st.tuples(st.integers(0, 3 * SECOND), st.integers(0, 5)), min_size=1, max_size=25)
kinds = st.sampled_from([*WINDOWS, TokenBucket, Quota])


def limit_of(kind: Any, count: int, period: str) -> Any:
    if kind is Quota:
        return Quota(count, "hour")
    return TokenBucket(f"{count}/{period}", count) if kind is TokenBucket else kind(f"{count}/{period}")


@quick
@given(kind=kinds, count=counts, period=periods, steps=steps)
def test_rule_6_the_wait_is_exact(make: Any, kind: Any, count: int, period: str, steps: Any) -> None:
    """Refused one microsecond before, granted at it; what is said to be left passes, and not one more."""
    limiter, clock = make()
    limit = limit_of(kind, count, period)
    for micros, cost in steps:
        clock.tick(micros)
        cost = min(cost, count)
        said = limiter.acquire(limit, cost=cost)
        left = limiter.peek(limit, cost=0).remaining
        assert left == said.remaining
        assert limiter.peek(limit, cost=left).allowed
        assert left == count or not limiter.peek(limit, cost=left + 1).allowed
        if not said.allowed:
            wait = round(said.retry_after * SECOND)
            assert wait > 0
            clock.tick(wait - 1)
            assert not limiter.peek(limit, cost=cost).allowed
            clock.tick(1)
            assert limiter.acquire(limit, cost=cost).allowed
        full = round(limiter.peek(limit, cost=0).reset_after * SECOND)
        clock.tick(full)
        assert limiter.peek(limit, cost=0).remaining == count
        clock.tick(-full)


@quick
@given(count=counts, period=st.sampled_from([1, 7, 60]), steps=steps)
def test_a_log_admits_never_more_in_any_window(make: Any, count: int, period: int, steps: Any) -> None:
    limiter, clock = make()
    limit, passed = SlidingLog(f"{count}/{period}s"), []
    for micros, cost in steps:
        clock.tick(micros)
        cost = min(cost, count)
        here = sum(units for at, units in passed if at > clock() - period * SECOND)
        said = limiter.acquire(limit, cost=cost)
        assert said.allowed == (here + cost <= count)
        if said.allowed:
            passed.append((clock(), cost))


def test_a_log_tells_apart_what_comes_in_one_microsecond(limiter: Limiter) -> None:
    limit = SlidingLog("1000/min")
    assert admitted(limit, limiter, 500) == 500
    assert limiter.acquire(limit, cost=499).remaining == 1
    assert admitted(limit, limiter, 3) == 1


def test_a_log_remembers_no_more_than_its_count(limiter: Limiter, clock: FakeClock) -> None:
    limit = SlidingLog("50/s")
    for _ in range(300):
        clock.tick(7_000)
        limiter.acquire(limit)
    (key,) = limiter._store.client.keys("*")
    assert limiter._store.client.zcard(key) <= 2 * 50  # and those of the tenth of a second before
    assert limiter._store.client.pttl(key) > 0


@pytest.mark.parametrize("kind", WINDOWS)
def test_b18_a_clock_that_steps_back(kind: Any, limiter: Limiter, clock: FakeClock) -> None:
    """Rule 7: nothing is minted, and nobody waits longer than without the step."""
    limit = kind("5/min")
    at_border(clock)
    clock.advance(10)
    assert admitted(limit, limiter, 6) == 5
    wait = limiter.peek(limit).retry_after
    clock.advance(-3600)
    said = limiter.acquire(limit)
    assert not said.allowed
    assert said.retry_after == pytest.approx(wait, abs=0.2)
    clock.tick(round(said.retry_after * SECOND))
    assert limiter.acquire(limit).allowed


def micros(*at: int) -> int:
    return int(datetime(*at, tzinfo=timezone.utc).timestamp()) * SECOND


@pytest.mark.parametrize(
    ("per", "tz", "now", "begins", "ends"),
    [
        ("month", "Europe/Berlin", (2026, 3, 15, 12), (2026, 2, 28, 23), (2026, 3, 31, 22)),
        ("month", "Europe/Berlin", (2026, 1, 31, 23, 30), (2026, 1, 31, 23), (2026, 2, 28, 23)),
        ("month", "UTC", (2028, 2, 29, 12), (2028, 2, 1), (2028, 3, 1)),
        ("month", "UTC", (2026, 12, 31, 23, 59, 59), (2026, 12, 1), (2027, 1, 1)),
        ("day", "Europe/Berlin", (2026, 3, 29, 12), (2026, 3, 28, 23), (2026, 3, 29, 22)),  # of 23 hours
        ("day", "America/New_York", (2026, 11, 1, 12), (2026, 11, 1, 4), (2026, 11, 2, 5)),  # of 25
        ("day", "America/Sao_Paulo", (2017, 10, 15, 12), (2017, 10, 15, 3), (2017, 10, 16, 2)),  # has no midnight
        ("week", "Europe/Berlin", (2026, 10, 25, 12), (2026, 10, 18, 22), (2026, 10, 25, 23)),
        ("hour", "Asia/Kolkata", (2026, 10, 25, 12, 40), (2026, 10, 25, 12, 30), (2026, 10, 25, 13, 30)),
        ("hour", "Europe/Berlin", (2026, 10, 25, 1, 30), (2026, 10, 25, 1), (2026, 10, 25, 2)),  # the second of two
    ],
)
def test_borders_of_a_quota(per: str, tz: str, now: Any, begins: Any, ends: Any) -> None:
    quota = Quota(5, per, tz=tz)
    assert quota.borders(micros(*now))[:2] == (micros(*begins), micros(*ends))
    assert quota.borders(micros(*ends))[:2] == quota.borders(micros(*now))[1:]


def test_a_quota_turns_with_its_month(any_server: RedisServer) -> None:
    """In the zone it is of; and though the clock of the one who asks is a month behind Redis's."""
    now = [micros(2100, 3, 31, 21, 59, 59)]
    limiter = Limiter(Store(any_server.client(), now=lambda: now[0]), "test")
    limit = Quota(3, "month", tz="Europe/Berlin")
    assert [limiter.acquire(limit).allowed for _ in range(4)] == [True] * 3 + [False]
    assert limiter.peek(limit).retry_after == 1
    now[0] += SECOND
    assert limiter.acquire(limit).remaining == 2
    now[0] += 70 * 86400 * SECOND
    assert limiter.acquire(limit).remaining == 2


def test_a_quota_by_the_clock_of_redis(any_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """B17: whoever asks may be a year off."""
    import time

    real = time.time
    limit = Quota(2, "hour")
    for off in (0, -400 * 86400, 400 * 86400):
        monkeypatch.setattr(time, "time", lambda off=off: real() + off)
        said = Limiter(any_server.client(), "test").acquire(limit)
        assert said.reset_after <= 3600
    assert not said.allowed


def test_several_of_all_kinds_are_all_or_nothing(limiter: Limiter, clock: FakeClock) -> None:
    at_border(clock, 3600 * SECOND)
    log = SlidingLog("3/min")
    limits = [TokenBucket("1/s", 5), FixedWindow("4/min"), SlidingWindow("6/min"), log, Quota(9, "hour")]
    assert [limiter.acquire(*limits).allowed for _ in range(4)] == [True] * 3 + [False]
    said = limiter.acquire(*limits)
    assert (said.retry_after, said.policies[0]) == (60, log)
    assert [limiter.peek(one).remaining for one in limits] == [2, 1, 3, 0, 6]


@pytest.mark.parametrize("kind", [*WINDOWS, TokenBucket, Quota])
def test_b24_none_and_closed(kind: Any, limiter: Limiter) -> None:
    assert limiter.acquire(kind(None)).allowed
    said = limiter.acquire(kind(0))
    assert (said.allowed, said.remaining, said.retry_after) == (False, 0, float("inf"))


@pytest.mark.parametrize("kind", [*WINDOWS, Quota])
def test_b07_a_cost_beyond_the_count(kind: Any, limiter: Limiter) -> None:
    limit = kind(10) if kind is Quota else kind("10/min")
    with pytest.raises(CostExceedsLimit, match="cost 11 exceeds capacity 10"):
        limiter.acquire(limit, cost=11)
    assert limiter.peek(limit).remaining == 10


@pytest.mark.parametrize("kind", [*WINDOWS, Quota])
def test_refund_and_reset(kind: Any, limiter: Limiter) -> None:
    limit = kind(10, "hour") if kind is Quota else kind("10/h")
    limiter.acquire(limit, cost=8)
    limiter.refund(limit, cost=3)
    assert limiter.peek(limit).remaining == 5
    limiter.refund(limit, cost=10)
    assert limiter.peek(limit).remaining == 10
    limiter.acquire(limit, cost=10)
    limiter.reset(limit)
    assert limiter.peek(limit).remaining == 10


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: FixedWindow("0.5/s"), "part of a unit"),
        (lambda: SlidingLog("1000000/h"), "remembers 100000 units"),
        (lambda: Quota(10, "year"), "no period of a quota"),
        (lambda: Quota("10/month"), "whole number of units"),
        (lambda: Quota(10, "day", tz="Mars/Base"), "no time zone"),
        (lambda: FixedWindow("10/s", name="é"), "printable ASCII"),
    ],
)
def test_what_is_wrong_is_said_at_once(wrong: Any, says: str) -> None:
    with pytest.raises(InvalidRate, match=says):
        wrong()


@pytest.mark.parametrize("kind", WINDOWS)
def test_they_print_themselves(kind: Any) -> None:
    limit = kind("10/min", name="api")
    assert repr(limit) == f"{kind.__name__}('10/min', name='api')"
    assert eval(repr(limit)) == limit


def test_quotas_of_different_counts_are_different() -> None:
    assert Quota(5, "day") != Quota(10, "day")
    assert Quota(5, "day") != Quota(5, "week")
    assert {Quota(5, "day"), Quota(5, "day")} == {Quota(5, "day")}


def test_a_unit_given_back_to_a_log_is_the_oldest(limiter: Limiter, clock: FakeClock) -> None:
    """Whoever gives it back: else those left would leave the window sooner than what took their place."""
    limit = SlidingLog("2/10s")
    assert limiter.acquire(limit)
    clock.advance(9)
    assert limiter.acquire(limit)
    clock.advance(0.5)
    limiter.refund(limit)
    assert limiter.acquire(limit)
    clock.advance(0.6)
    assert not limiter.acquire(limit)
