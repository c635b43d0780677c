"""Errors cross process borders, and say what to do."""

from __future__ import annotations

import pickle

import pytest

import throttle
from throttle import BacklogFull, CostExceedsLimit, InvalidRate, StoreUnavailable, ThrottleError
from throttle.errors import shorten

EVERY = [
    ThrottleError("text"), InvalidRate("text"), StoreUnavailable("text"), BacklogFull("send", 3.5, 0.5),
    CostExceedsLimit(11, 10, "k"), CostExceedsLimit(2, 1),
]  # fmt: skip


@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
def test_errors_survive_pickle(error: ThrottleError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.args) == (type(error), str(error), error.args)
    assert vars(again) == vars(error)


def test_all_are_throttle_errors() -> None:
    public = [getattr(throttle, name) for name in throttle.__all__]
    errors = [one for one in public if isinstance(one, type) and issubclass(one, Exception)]
    assert len(errors) >= 5
    assert all(issubclass(error, ThrottleError) for error in errors)
    assert issubclass(InvalidRate, ValueError)
    assert issubclass(CostExceedsLimit, ValueError)


def test_a_message_stays_short() -> None:
    error = CostExceedsLimit(11, 10, "k" * 10**6)
    assert len(str(error)) < 250
    assert error.key == "k" * 10**6
    assert shorten("abc", 3) == "abc"
    assert shorten("abcd", 3) == "ab…"
