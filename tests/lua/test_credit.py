"""Starts taken ahead while a lane is calm: the bound stays exact, whenever within the span they are used."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.services import RedisServer
from throttle import TokenBucket
from throttle.backlog import Backlog
from throttle.calm import AT_ONCE, MARGIN, SPAN, Calm
from throttle.entry import Entry
from throttle.keys import Namer
from throttle.store import Store
from throttle.testing import FakeClock, excess

KEYS = ("-",)


def backlog(server: RedisServer, clock: FakeClock, limit: TokenBucket) -> Backlog:
    client = server.client()
    client.flushall()
    made = Backlog(Store(client, Namer(), now=clock), "scope", [limit])
    made.declare(replace=True)
    return made


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("credit"), st.lists(st.floats(0, SPAN), min_size=AT_ONCE, max_size=AT_ONCE)),
        st.tuples(st.just("start"), st.integers(1, 30)),
        st.tuples(st.just("pass"), st.floats(0, 0.2)),
    ),
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sampled_from([(1000, 1000), (1000, 2000), (5000, 6000), (100, 300), (20, 500)]))
def test_the_bound_is_exact(redis_process: RedisServer, steps: list, rate_burst: tuple[int, int]) -> None:
    """Rule 1, with credited starts used at any moment until the end of their span."""
    rate, burst = rate_burst
    clock, limit, starts, n = FakeClock(), TokenBucket((rate, 1), burst), [], 0
    scope = backlog(redis_process, clock, limit)
    for what, how in steps:
        if what == "pass":
            clock.advance(how)
        elif what == "credit":
            if scope.credit(KEYS, (AT_ONCE,), SPAN):
                starts += [clock() / 1e6 + later for later in how]
        else:
            for _ in range(how):
                n += 1
                what, wait, *_ = scope.start("take", f"t{n}", "", 0, KEYS, (1,))
                if what in ("go", "hold"):
                    starts.append((clock() + wait) / 1e6)
    assert excess(starts, limit, tolerance=3e-6) == 0


def test_calm_is_far_from_biting(server: RedisServer) -> None:
    clock = FakeClock()
    scope = backlog(server, clock, TokenBucket("1000/s", 2000))  # a tenth of its burst is 200 units, 80 are forfeited
    taken = 0
    while scope.credit(KEYS, (AT_ONCE,), SPAN):
        taken += AT_ONCE
    assert taken == 112
    clock.advance(1)
    assert scope.credit(KEYS, (AT_ONCE,), SPAN)


@pytest.mark.parametrize("limit", [TokenBucket("10/s"), TokenBucket("1000/s", 100), TokenBucket(0, 1000)])
def test_small_bursts_and_closed_limits_are_never_calm(server: RedisServer, limit: TokenBucket) -> None:
    assert not backlog(server, FakeClock(), limit).credit(KEYS, (AT_ONCE,), SPAN)


def test_nothing_is_calm_while_others_wait(server: RedisServer) -> None:
    scope = backlog(server, FakeClock(), TokenBucket("1000/s", 2000))
    assert scope.submit(Entry("a", "-", KEYS, (2000,), b"m")).what == "go"
    assert scope.submit(Entry("b", "-", KEYS, (2000,), b"m")).what == "parked"
    assert not scope.credit(KEYS, (AT_ONCE,), SPAN)


def test_workers_ask_for_a_hot_lane_only_and_once_for_several(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("throttle.calm.time.monotonic", lambda: now[0])
    scope = backlog(server, FakeClock(), TokenBucket("1000/s", 100_000))
    calm, asked = Calm(scope), []
    credit = scope.credit
    monkeypatch.setattr(scope, "credit", lambda *question: asked.append(question) or credit(*question))
    assert calm.start("-", KEYS, (1,)) == 0  # nobody knows yet whether more come
    assert not asked
    used = [calm.start("-", KEYS, (1,)) for _ in range(AT_ONCE)]
    assert used == [100.0 + SPAN] * AT_ONCE
    assert len(asked) == 1
    assert calm.start("-", KEYS, (1,)) == 100.0 + SPAN  # the seventeenth
    assert len(asked) == 2
    now[0] += SPAN - MARGIN / 2  # too late to use what is left, and too long ago to be hot
    assert calm.start("-", KEYS, (1,)) == 0
    assert len(asked) == 2


def test_producers_ask_again_after_the_span(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("throttle.calm.time.monotonic", lambda: now[0])
    calm = Calm(backlog(server, FakeClock(), TokenBucket("1000/s", 100_000)))
    assert not calm.publishes("-")
    calm.told("-", True, 100.0)
    assert calm.publishes("-")
    now[0] += SPAN + 0.001
    assert not calm.publishes("-")
    calm.told("-", False, now[0])
    assert not calm.publishes("-")


def test_what_a_producer_is_told_starts_nothing(server: RedisServer) -> None:
    """One process may be producer and worker: a word of calm is no start that is charged."""
    calm = Calm(backlog(server, FakeClock(), TokenBucket("1/h", 5)))
    calm.told("-", True, 10.0**9)
    assert calm.publishes("-")
    assert [calm.start("-", KEYS, (1,)) for _ in range(3)] == [0.0] * 3


def test_a_start_is_taken_for_its_own_cost(server: RedisServer) -> None:
    scope = backlog(server, FakeClock(), TokenBucket("100/s", 2000))
    calm, units = Calm(scope), 0
    for n in range(400):
        cost = (1, 100)[n % 2]
        if calm.start("-", KEYS, (cost,)):
            units += cost
    assert 0 < units <= 2000 / 10
