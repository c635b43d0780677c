"""A leaky bucket with a line: what exceeds the burst is admitted with a delay, as far as the line is long."""

from __future__ import annotations

import itertools
from typing import Any

import fakeredis
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from throttle import CostExceedsLimit, FixedWindow, InvalidRate, LeakyBucket, Limiter, TokenBucket, throttled
from throttle.testing import FakeClock

PROPERTY = settings(
    max_examples=60, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
fresh_scope = itertools.count()

TABLE = {
    # limit: [(seconds, cost, allowed, delay, remaining, retry)]
    LeakyBucket("10/s", depth=3): [
        (0, 1, True, 0, 3, 0), (0, 1, True, 0.1, 2, 0), (0, 1, True, 0.2, 1, 0), (0, 1, True, 0.3, 0, 0),
        (0, 1, False, 0, 0, 0.1), (0.05, 1, False, 0, 0, 0.05), (0.099999, 1, False, 0, 0, 0.000001),
        (0.1, 1, True, 0.3, 0, 0), (10, 1, True, 0, 3, 0),
    ],
    LeakyBucket("1/s", 2, 2): [  # the burst first, then the line
        (0, 2, True, 0, 2, 0), (0, 1, True, 1, 1, 0), (0, 2, False, 0, 1, 1), (1, 2, True, 2, 0, 0),
    ],
    LeakyBucket("1/s", 1, 4): [  # a cost beyond the burst waits for its last unit
        (0, 3, True, 2, 2, 0), (0, 0, True, 0, 2, 0), (0, 3, False, 0, 2, 1), (1, 3, True, 4, 0, 0),
    ],
    LeakyBucket("1/s", 1): [(0, 1, True, 0, 0, 0), (0, 1, False, 0, 0, 1)],
    LeakyBucket(0, 1, 5): [(0, 1, False, 0, 0, float("inf")), (9, 6, False, 0, 0, float("inf"))],
}  # fmt: skip


@pytest.mark.parametrize("limit", TABLE, ids=str)
@pytest.mark.parametrize("among", [False, True], ids=["alone", "among others"])
def test_table(limit: LeakyBucket, among: bool, limiter: Limiter, clock: FakeClock) -> None:
    begin, others = clock(), [TokenBucket("1000000/s", 10**6)] if among else []
    for seconds, cost, *expected in TABLE[limit]:
        clock.tick(begin + round(seconds * 1e6) - clock())
        would = limiter.peek(*others, limit, cost=cost)
        said = limiter.acquire(*others, limit, cost=cost)
        assert [said.allowed, said.delay, said.remaining, said.retry_after] == expected, f"at {seconds} s"
        assert (would.allowed, would.delay, would.retry_after) == (said.allowed, said.delay, said.retry_after)
        assert said.limit == limit.burst + limit.depth


limits = st.builds(
    lambda interval, burst, depth: LeakyBucket((1, interval / 1e6), burst, depth),
    st.one_of(st.integers(1, 1000), st.integers(1, 10**7)), st.integers(1, 5), st.integers(1, 8),
)  # fmt: skip


@PROPERTY
@given(data=st.data(), limit=limits, fake=st.booleans(), among=st.booleans())
def test_rule_1_and_6_in_a_line(data: Any, limit: LeakyBucket, fake: bool, among: bool, any_server: Any) -> None:
    """Acted upon at its moment, each unit keeps to burst + rate·t; a wait is exact, and no longer than the line."""
    clock = FakeClock()
    client = fakeredis.FakeRedis() if fake else any_server.client()
    limiter = Limiter(client, f"q{next(fresh_scope)}", timeout=5, now=clock)
    others, acted = [TokenBucket("1000000/s", 10**6)] if among else [], []
    for _ in range(data.draw(st.integers(1, 15))):
        clock.tick(data.draw(st.integers(0, 2 * limit.interval)))
        said = limiter.acquire(*others, limit)
        if said.allowed:
            assert 0 <= round(said.delay * 1e6) <= limit.depth * limit.interval
            acted.append(clock() + round(said.delay * 1e6))
        else:
            assert (said.remaining, said.delay) == (0, 0)
            wait = round(said.retry_after * 1e6)
            clock.tick(wait - 1)
            assert not limiter.peek(*others, limit).allowed
            clock.tick()
            assert round(limiter.peek(*others, limit).delay * 1e6) == limit.depth * limit.interval
    assert acted == sorted(acted), "first come, first served"
    for first, then in itertools.combinations(range(len(acted)), 2):
        assert then - first + 1 <= limit.burst + (acted[then] - acted[first]) / limit.interval


def test_a_refused_question_takes_no_place_in_the_line(limiter: Limiter) -> None:
    line, window = LeakyBucket("1/s", depth=5), FixedWindow("2/h")
    assert [limiter.acquire(line, window).delay for _ in range(2)] == [0, 1]
    assert not limiter.acquire(line, window)
    assert limiter.acquire(line).delay == 2


def test_a_place_can_be_given_back(limiter: Limiter) -> None:
    line = LeakyBucket("1/s", depth=5)
    assert [limiter.acquire(line).delay for _ in range(3)] == [0, 1, 2]
    limiter.refund(line)
    assert limiter.acquire(line).delay == 2


def test_of_two_lines_the_longer_delay_counts(limiter: Limiter) -> None:
    slow, fast = LeakyBucket("1/s", depth=5), LeakyBucket("10/s", depth=5)
    assert [limiter.acquire(fast, slow).delay for _ in range(3)] == [0, 1, 2]


def test_what_makes_no_sense_is_refused(limiter: Limiter) -> None:
    for wrong in (-1, 1.5, True, "1"):
        with pytest.raises(InvalidRate, match="depth"):
            LeakyBucket("1/s", depth=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidRate, match="depth or initial"):
        LeakyBucket("1/s", 2, 2, initial=1)
    with pytest.raises(CostExceedsLimit, match="capacity 6"):
        limiter.acquire(LeakyBucket("1/s", 2, 4), cost=7)


def test_tasks_wait_in_their_backlog() -> None:
    with pytest.raises(InvalidRate, match="max_backlog"):
        throttled(LeakyBucket("1/s", depth=5))


def test_it_prints_itself() -> None:
    limit = LeakyBucket("10/s", 2, 5, name="line")
    assert (str(limit), repr(limit)) == (
        "10/s, burst 2, depth 5", "LeakyBucket('10/s', burst=2, depth=5, name='line')"
    )  # fmt: skip
    assert eval(repr(limit)) == limit
    assert LeakyBucket("10/s", 2) != limit
    assert LeakyBucket("10/s", 2, 5) != LeakyBucket("10/s", 2, 6)
