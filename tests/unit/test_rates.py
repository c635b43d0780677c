"""Rates: one grammar, strict; B23, B24, B26."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from throttle import InvalidRate, Rate, ThrottleError

ACCEPTED = [
    # said, count, period in seconds
    ("10/s", 10, 1), ("10/sec", 10, 1), ("10/second", 10, 1), ("10/seconds", 10, 1),
    ("10/m", 10, 60), ("10/min", 10, 60), ("10/minute", 10, 60), ("10/mins", 10, 60), ("10/minutes", 10, 60),
    ("10/h", 10, 3600), ("10/hr", 10, 3600), ("10/hour", 10, 3600), ("10/hours", 10, 3600),
    ("10/d", 10, 86400), ("10/day", 10, 86400), ("10/w", 10, 604800), ("2/weeks", 2, 604800),
    ("0.5/s", Fraction(1, 2), 1), ("2.50/min", Fraction(5, 2), 60), ("0.1/s", Fraction(1, 10), 1),
    ("5/30s", 5, 30), ("100/2h", 100, 7200), ("1/0.5s", 1, Fraction(1, 2)), ("1/1.5min", 1, 90), ("7/10 s", 7, 10),
    ("100 per 2 hours", 100, 7200), ("1 per day", 1, 86400), ("10 PER Minute", 10, 60), ("3 per 1.5 h", 3, 5400),
    (" 10/s ", 10, 1), ("10 / s", 10, 1), ("\t10/S\n", 10, 1), ("10/MIN", 10, 60), ("010/s", 10, 1),
    ("1/366d", 1, 366 * 86400), ("1000000/s", 10**6, 1), ("86400000000/d", 86_400_000_000, 86400),
    ("0", 0, 1), (" 0 ", 0, 1), ("0/s", 0, 1), ("0.0/s", 0, 1), (0, 0, 1), (0.0, 0, 1),
    ((100, 7200), 100, 7200), ((0.5, 1), Fraction(1, 2), 1), ((0.1, 1), Fraction(1, 10), 1),
    ((1e-05, 1), Fraction(1, 100_000), 1),
    ((10, timedelta(minutes=2)), 10, 120), ((1, timedelta(milliseconds=1)), 1, Fraction(1, 1000)), ((0, 5), 0, 5),
]  # fmt: skip

REFUSED = [
    "", " ", "/s", "10/", "10", "10/0s", "10/x", "-5/s", "nan/s", "inf/s", "10/m/s", "s/10", "10//s", "10 s", "ten/s",
    "10/5", "1e3/s", "+5/s", "1_0/s", "1,5/s", ".5/s", "5./s", "10/s s", "10/-1s", "0x10/s", "10pers",
    "10/ms", "10/month",
    "１０/m", "10／m", "٣/s", "²/s", "10/ｓ", "10/ſ", "10/s\x00", "1" * 5000 + "/s", "1/" + "1" * 5000 + "s",
    "1/367d", "1000001/s", "2/1us", "1/9999999w", "0.000000001/s",
    5, 1.5, -1, True, False, float("nan"), float("inf"), b"10/s", [10, 1], {}, object(), timedelta(1), Fraction(1, 2),
    (10,), (10, 1, 1), (10, 0), (-1, 1), (1, -1), (float("nan"), 1), (1, float("inf")), ("10", 1), (10, "s"), (True, 1),
    (1, True), (None, 1), (1, None), (10**400, 10**400), (Fraction(1, 3), 1), (1, timedelta(0)),
    (1, timedelta(days=367)),
]  # fmt: skip


@pytest.mark.parametrize(("said", "count", "period"), ACCEPTED, ids=repr)
def test_b23_accepted(said: Any, count: Any, period: Any) -> None:
    rate = Rate.parse(said)
    assert (rate.count, rate.period) == (count, period)
    assert Rate.parse(str(rate)).interval == rate.interval


@pytest.mark.parametrize("said", REFUSED, ids=lambda said: repr(said)[:20])
def test_b23_refused_by_name(said: Any) -> None:
    with pytest.raises(InvalidRate) as caught:
        Rate.parse(said)
    assert repr(said)[:20] in str(caught.value)
    assert isinstance(caught.value, (ThrottleError, ValueError))


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("10", 'did you mean "10/s"?'), (10, 'did you mean "10/s"?'), (1.5, 'did you mean "1.5/s"?'),
        (" 0.5 ", 'did you mean "0.5/s"?'), ("10/month", "say s, min, h, day or week"), ("5/10ms", "'ms' is no unit"),
        (True, "None (no limit)"), (-5, "None (no limit)"), (float("nan"), "None (no limit)"), ("ten/s", '"5/30s"'),
        ("10/", '"5/30s"'),
    ],
    ids=repr,
)  # fmt: skip
def test_a_refusal_names_the_remedy(said: Any, remedy: str) -> None:
    with pytest.raises(InvalidRate) as caught:
        Rate.parse(said)
    assert remedy in str(caught.value)


def test_the_table_is_long_enough() -> None:
    assert len([said for said, *_ in ACCEPTED if isinstance(said, str)]) >= 30
    assert len(ACCEPTED) + len(REFUSED) >= 100


numbers = st.one_of(st.integers(1, 10**7), st.decimals(min_value="0.001", max_value="100000", places=3))


@given(count=numbers, times=st.one_of(st.none(), numbers), unit=st.sampled_from(["s", "min", "h", "d", "w"]))
def test_b23_what_is_printed_is_parsed_again(count: Any, times: Any, unit: str) -> None:
    text = f"{count}/{'' if times is None else times}{unit}"
    try:
        rate = Rate.parse(text)
    except InvalidRate:
        return  # outside the range
    again = Rate.parse(str(rate))
    assert again == rate
    assert str(again) == str(rate)


@given(count=st.floats(1e-6, 1e6), period=st.floats(1e-3, 1e6))
def test_numbers_print_all_their_digits(count: float, period: float) -> None:
    try:
        rate = Rate.parse((count, period))
    except InvalidRate:
        return
    assert Rate.parse(str(rate)) == rate


@given(count=st.integers(1, 10**6), period=st.integers(1, 10**6))
def test_the_interval_is_never_shorter_than_said(count: int, period: int) -> None:
    try:
        rate = Rate.parse((count, period))
    except InvalidRate:
        return
    exact = Fraction(period * 10**6, count)
    assert exact <= rate.interval < exact + 1


def test_b24_none_and_zero() -> None:
    assert Rate.parse(None) is None
    assert Rate.parse(0) == Rate.parse("0") == Rate(Fraction(0), Fraction(1))
    assert (Rate.parse(0).interval, str(Rate.parse(0))) == (0, "0")


def test_it_says_what_people_say() -> None:
    said = {"10/s": "10/s", "10/60s": "10/min", "1/3600s": "1/h", "1/24h": "1/d", "5/30s": "5/30s", "0.5/s": "0.5/s"}
    assert {text: str(Rate.parse(text)) for text in said} == said


@pytest.mark.parametrize(
    ("inside", "outside"), [("1/366d", "1/31622401s"), ("1000000/s", "1000001/s"), ("1/366 d", "0.99/366d")]
)
def test_b26_the_ends_of_the_range(inside: str, outside: str) -> None:
    assert Rate.parse(inside).interval in (1, 366 * 86400 * 10**6)
    with pytest.raises(InvalidRate, match="supported range"):
        Rate.parse(outside)


def test_a_rate_is_a_rate() -> None:
    rate = Rate.parse("10/s")
    assert Rate.parse(rate) is rate
    assert {rate: 1}[Rate.parse("10/1s")] == 1
