"""Limits: small immutable values, checked when written down."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from throttle import CostExceedsLimit, InvalidRate, LeakyBucket, TokenBucket
from throttle.limits import DAY, check_units, stored_name


@pytest.mark.parametrize("burst", [0, -1, 1.5, True, "3", None, 10**9 + 1])
def test_a_burst_is_a_whole_number(burst: Any) -> None:
    with pytest.raises(InvalidRate, match="burst"):
        TokenBucket("10/s", burst)


@pytest.mark.parametrize("initial", [-1, 4, 0.5, True])
def test_initial_fits_the_bucket(initial: Any) -> None:
    with pytest.raises(InvalidRate, match="initial"):
        TokenBucket("10/s", 3, initial=initial)


@pytest.mark.parametrize("name", ["", "é", "a\nb", "\x00"])
def test_a_name_can_stand_in_a_header(name: str) -> None:
    with pytest.raises(InvalidRate, match="name"):
        TokenBucket("10/s", name=name)


def test_b26_what_takes_forever_to_refill_is_refused() -> None:
    assert TokenBucket("1/366d", 142)
    with pytest.raises(InvalidRate, match="142 years"):
        TokenBucket("1/366d", 143)
    assert TokenBucket("1000000/s", 10**9).interval == 1


def test_what_the_scripts_take() -> None:
    assert (TokenBucket("10/s", 5).interval, TokenBucket("10/s", 5).fresh, TokenBucket("10/s", 5).keep) == (
        100_000,
        0,
        0,
    )
    assert (TokenBucket("10/s", 5, initial=2).fresh, TokenBucket("10/s", 5, initial=2).keep) == (300_000, DAY)
    assert (TokenBucket("10/s", 5, initial=5).fresh, TokenBucket("10/s", 5, initial=5).keep) == (0, 0)
    assert (TokenBucket(0).interval, TokenBucket(None).interval, TokenBucket(None).rate) == (0, 0, None)


def test_it_says_what_people_say() -> None:
    said = [
        TokenBucket("10/s"),
        TokenBucket("600/min", 20),
        TokenBucket(0),
        TokenBucket(None),
        LeakyBucket("2/min", key="{a}"),
    ]
    assert [str(limit) for limit in said] == ["10/s", "600/min, burst 20", "0", "no limit", "2/min"]
    assert TokenBucket("10/s", name="api").label == "api"


def test_it_is_a_value() -> None:
    limit = TokenBucket("10/s", 5, key="{a}", name="n")
    assert limit == TokenBucket("10/1s", 5, key="{a}", name="n")
    assert len({limit, TokenBucket("10/s", 5, key="{a}", name="n"), TokenBucket("10/s", 5)}) == 2
    assert pickle.loads(pickle.dumps(limit)) == limit
    assert dataclasses.replace(limit, burst=6).packed == TokenBucket("10/s", 6).packed
    with pytest.raises(dataclasses.FrozenInstanceError):
        limit.burst = 6  # type: ignore[misc]


def test_a_leaky_bucket_is_a_token_bucket_by_its_other_name() -> None:
    assert LeakyBucket("10/s").packed == TokenBucket("10/s").packed
    assert isinstance(LeakyBucket("10/s"), TokenBucket)


def test_b30_a_misspelt_option_is_a_type_error() -> None:
    for options in ({"brust": 5}, {"keys": "a"}, {"period": 60}):
        with pytest.raises(TypeError):
            TokenBucket("10/s", **options)


def test_b07_cost_is_checked_against_the_burst() -> None:
    TokenBucket("10/s", 5).check_cost(5)
    with pytest.raises(CostExceedsLimit, match="raise burst to 6 or split the work"):
        TokenBucket("10/s", 5).check_cost(6)


@pytest.mark.parametrize("cost", [-1, 1.0, True, "1", None, 10**9 + 1])
def test_units_are_whole_numbers(cost: Any) -> None:
    with pytest.raises(InvalidRate, match="cost"):
        check_units(cost)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1), st.text(min_size=1))
def test_stored_names_differ_and_have_no_structure(name: str, other: str) -> None:
    assert not set(stored_name(name)) & set(" |{}\n")
    assert (stored_name(name) == stored_name(other)) == (name == other)
