"""What is refused is refused here until its time, with times that stay true, and never what Redis would allow."""

from __future__ import annotations

from typing import Any

import fakeredis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from throttle import (
    Decision,
    FixedWindow,
    LeakyBucket,
    Limiter,
    Quota,
    SlidingLog,
    SlidingWindow,
    ThrottleError,
    TokenBucket,
)
from throttle.store import Store
from throttle.testing import FakeClock

LIMIT = TokenBucket("1/s", 2)


class Counting(Store):
    """Counts what is asked of Redis."""

    asked = 0

    def ask(self, *question: Any) -> Any:
        self.asked += 1
        return super().ask(*question)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> Counting:
    return Counting(fakeredis.FakeRedis(), now=clock)


def test_a_refusal_is_asked_for_once_a_second(store: Counting, clock: FakeClock) -> None:
    limiter, limit = Limiter(store), TokenBucket("1/min")
    assert limiter.acquire(limit)
    for second in range(5):
        for tenth in range(10):
            said = limiter.acquire(limit)
            assert said == Decision(False, 1, 0, 60 - second - tenth / 10, 60 - second - tenth / 10, (limit,))
            clock.advance(0.1)
    assert store.asked == 1 + 5


def test_the_times_count_down_and_units_come_back(store: Counting, clock: FakeClock) -> None:
    limiter, limit = Limiter(store), TokenBucket("10/s", 10)
    limiter.acquire(limit, cost=8)
    assert limiter.acquire(limit, cost=5) == Decision(False, 10, 2, 0.3, 0.8, (limit,))
    clock.advance(0.15)
    assert limiter.acquire(limit, cost=5) == Decision(False, 10, 3, 0.15, 0.65, (limit,))
    assert store.asked == 2
    clock.advance(0.15)
    assert limiter.acquire(limit, cost=5).allowed, "at its time Redis is asked, and not later"


def test_another_cost_is_another_question(store: Counting) -> None:
    limiter = Limiter(store)
    assert limiter.acquire(LIMIT)
    assert not limiter.acquire(LIMIT, cost=2)
    assert limiter.acquire(LIMIT), "cheaper than what was refused"
    assert limiter.acquire(LIMIT, cost=2).retry_after == 2, "what else was taken here is known"


def test_another_limit_is_another_question(store: Counting) -> None:
    limiter = Limiter(store)
    assert limiter.acquire(TokenBucket("1/h", name="x"))
    assert not limiter.acquire(TokenBucket("1/h", name="x"))
    assert limiter.acquire(TokenBucket("1/s", name="x")).retry_after == 1, "its rate has been raised"


def test_a_peek_asks_redis(store: Counting) -> None:
    limiter = Limiter(store)
    limiter.acquire(LIMIT, cost=2)
    limiter.acquire(LIMIT)
    limiter.reset(LIMIT)
    Limiter(store).acquire(LIMIT, cost=2)
    before = store.asked
    assert not limiter.peek(LIMIT)
    assert not limiter.peek(LIMIT)
    assert store.asked == before + 2


@pytest.mark.parametrize("how", ["refund", "reset"])
def test_what_is_given_back_here_counts_at_once(how: str, store: Counting) -> None:
    limiter, other = Limiter(store), TokenBucket("1/s", 3, name="other")
    assert limiter.acquire(LIMIT, other, key="a", cost=2)
    assert not limiter.acquire(LIMIT, other, key="a")
    getattr(limiter, how)(LIMIT, key="a")
    assert limiter.acquire(LIMIT, other, key="a")


@pytest.mark.parametrize("how", ["refund", "reset"])
def test_what_is_given_back_elsewhere_counts_within_a_second(how: str, store: Counting, clock: FakeClock) -> None:
    limiter, limit = Limiter(store), TokenBucket("1/min")
    assert limiter.acquire(limit)
    assert not limiter.acquire(limit)
    getattr(Limiter(store), how)(limit)
    assert not limiter.acquire(limit)
    clock.advance(1)
    assert limiter.acquire(limit)


def test_a_refusal_that_was_under_way_when_something_was_given_back_is_not_remembered(store: Counting) -> None:
    limiter = Limiter(store)
    limiter.acquire(LIMIT, cost=2)
    answers = limiter._answers
    question = answers.question("take", [LIMIT], None, 1)
    assert question is not None
    asked = answers.denials.clock()  # type: ignore[union-attr]
    reply = store.ask(question.script, question.keys, question.text)
    limiter.refund(LIMIT)
    assert not answers.heard(question, reply, asked), "it was refused"
    assert limiter.acquire(LIMIT), "and is not any more"


def test_a_closed_limit_needs_redis_once_a_second(store: Counting, clock: FakeClock) -> None:
    limiter = Limiter(store)
    for _ in range(10):
        assert limiter.acquire(TokenBucket(0)).retry_after == float("inf")
    assert store.asked == 1
    clock.advance(1)
    limiter.acquire(TokenBucket(0))
    assert store.asked == 2


def test_only_so_many_are_remembered(store: Counting) -> None:
    limiter = Limiter(store, denials=100)
    for key in range(300):
        limiter.acquire(TokenBucket(0), key=key)
    denials = limiter._denials
    assert denials is not None
    assert len(denials.known) == 100
    before = store.asked
    limiter.acquire(TokenBucket(0), key=299)
    assert store.asked == before
    limiter.acquire(TokenBucket(0), key=0)
    assert store.asked == before + 1
    for key in range(5000):
        limiter.refund(LIMIT, key=key)
    assert len(denials._given) <= 101
    assert len(denials._buckets) <= 1400


def test_none_are_remembered(store: Counting) -> None:
    limiter = Limiter(store, denials=0)
    for _ in range(5):
        limiter.acquire(TokenBucket(0))
    assert store.asked == 5


@pytest.mark.parametrize("wrong", [-1, True, 1.5, None])
def test_their_number_is_a_number(wrong: Any, store: Counting) -> None:
    with pytest.raises(ThrottleError, match="denials"):
        Limiter(store, denials=wrong)


LIMITS = [TokenBucket("3/s", 3), LeakyBucket("2/s", 1, 2), FixedWindow("3/s"), SlidingWindow("3/s"), SlidingLog("3/s"),
          Quota(5, "hour"), TokenBucket("10/s", 5, name="b")]  # fmt: skip

STEP = st.tuples(st.integers(0, 600_000), st.integers(0, 3), st.sampled_from("aaab"), st.sampled_from("attttrx"))


@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(STEP, max_size=40),
    which=st.lists(st.sampled_from(range(len(LIMITS))), min_size=1, max_size=3, unique=True),
)  # fmt: skip
def test_all_answers_are_those_of_a_limiter_that_remembers_nothing(steps: Any, which: list[int]) -> None:
    """One limiter alone at it, any limits and history: the very same decisions, times and all."""
    clock = FakeClock()
    with_, without = Counting(fakeredis.FakeRedis(), now=clock), Counting(fakeredis.FakeRedis(), now=clock)
    remembering, plain = Limiter(with_), Limiter(without, denials=0)
    limits = [LIMITS[n] for n in which]
    for micros, cost, key, how in steps:
        clock.tick(micros)
        name = {"r": "refund", "x": "reset"}.get(how, "acquire")
        options: dict[str, Any] = {"key": key} if name == "reset" else {"key": key, "cost": min(cost, 3)}
        said, true = getattr(remembering, name)(*limits, **options), getattr(plain, name)(*limits, **options)
        if said is not None and not true.allowed and any(LIMITS[n] in LIMITS[3:5] for n in which):
            said, true = said._replace(remaining=0), true._replace(remaining=0)  # weights fall between two looks
        assert said == true
