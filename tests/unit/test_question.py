"""Questions: what is asked of the same limits again and again is remembered, and asks the same."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from throttle import FixedWindow, LeakyBucket, Quota, SlidingLog, SlidingWindow, ThrottleError, TokenBucket
from throttle.keys import Namer
from throttle.question import _REMEMBERED, Question, Scope

LIMITS: list[Any] = [
    TokenBucket("10/s", 5), TokenBucket("10/s", 5, name="named"), TokenBucket("1/s", 2, initial=0),
    LeakyBucket("2/s", depth=3), FixedWindow("9/min"), SlidingWindow("8/min"), SlidingLog("7/min"),
    Quota(6, "day", tz="UTC"), TokenBucket("5/s", 3, key="own"), TokenBucket("4/s", 4, key="{user}"), TokenBucket(None),
]  # fmt: skip


def asked(scope: Scope, limits: list[Any], key: object, cost: int) -> Question | type[Exception] | None:
    try:
        question = scope.question("take", limits, key, cost)
    except ThrottleError as error:
        return type(error)
    return question and question._replace(keys=list(question.keys), limits=tuple(question.limits))


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(LIMITS), min_size=2, max_size=4),
            st.one_of(st.none(), st.integers(0, 3), st.text(max_size=3)),
            st.integers(0, 4),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_a_scope_that_remembers_asks_what_a_new_one_would(questions: list[tuple[list[Any], object, int]]) -> None:
    old = Scope(Namer(), "s", lambda: 1_900_000_000_000_000)
    for limits, key, cost in questions * 2:
        new = Scope(Namer(), "s", lambda: 1_900_000_000_000_000)
        assert asked(old, limits, key, cost) == asked(new, limits, key, cost)


def test_limits_made_for_each_question_are_not_taken_for_others() -> None:
    """Ids are given again: what is remembered by one keeps its limit alive."""
    scope = Scope(Namer(), "s")
    for n in range(1, 3 * _REMEMBERED):
        question = scope.question("take", (TokenBucket(f"{n}/s", n), TokenBucket("1/s", n, name="b")), "k", 1)
        assert question is not None
        assert question.text.endswith(f" {n} 0 0 1")
        assert question.limits[0].burst == n
        if n % 500 == 0:
            gc.collect()
    assert len(scope._usual) <= _REMEMBERED


def test_a_cost_that_looks_like_one_that_is_remembered_is_checked() -> None:
    scope, limits = Scope(Namer(), "s"), (TokenBucket("9/s", 9), TokenBucket("8/s", 8))
    assert scope.question("take", limits, None, 1)
    for wrong in (True, 1.0):
        with pytest.raises(ThrottleError):
            scope.question("take", limits, None, wrong)  # type: ignore[arg-type]
