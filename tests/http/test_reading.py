"""What an upstream says: every dialect, what is found in the wild, and what nobody should believe; B95."""

from __future__ import annotations

import math
import random
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from throttle import Decision, TokenBucket
from throttle.http import STYLES, Told, Upstream, fields, read, spread
from throttle.http.moments import seconds_until

NOW = 1_792_567_640.0  # Wed, 21 Oct 2026 07:27:20 GMT
SOON = 1_792_567_680  # 40 s later


def test_nothing_told_nothing_read() -> None:
    assert read({}) == Upstream() == Upstream(None, None, None, None, 0.0, ())
    assert read({}, status=429).wait is None, "refused, for nobody knows how long"


# -- Retry-After ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("120", 120), ("0", 0), (" 7 ", 7), ("1.5", 1.5), (b"120", 120), (120, 120), (0.5, 0.5), (["5", b"9"], 9),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 40), ("Wednesday, 21-Oct-26 07:28:00 GMT", 40),
        ("Wed Oct 21 07:28:00 2026", 40), ("wed, 21 oct 2026 07:28:00 gmt", 40), ("Thu Oct  1 07:28:00 2026", 0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0), ("Sunday, 06-Nov-94 08:49:37 GMT", 0),
        ("Wed, 21 Oct 2026 07:27:60 GMT", 40),
        ("2026-10-21T07:28:00Z", 40), ("2026-10-21T09:28:00.5+02:00", 40.5), ("2026-10-21 02:28:00-05:00", 40),
        (str(SOON), 40), (f"{SOON}123", 40.123), (str(10**9), 3600), (str(10**9 + 1), 0), ("9" * 400, 3600),
        ("12ms", 0.012), ("6m0s", 360), ("1h2m3s", 3600), ("1m2.5s", 62.5), ("20, 10", 20), ("5, x", 5),
        ("Wed, 21 Oct 2126 07:28:00 GMT", 3600),
    ],
)  # fmt: skip
def test_b95_retry_after(value: Any, wait: float) -> None:
    told = read({"Retry-After": value}, now=NOW, status=429)
    assert told.retry_after == pytest.approx(wait, abs=1e-5)
    assert told.wait == told.retry_after


@pytest.mark.parametrize(
    "value",
    ["-1", "-120", "", "soon", "1e3", "0x10", "٣", "１２", "+5", "1.", ".5", "NaN", "inf", "9" * 9000,
     "Wed, 32 Oct 2026 07:28:00 GMT",
     "Wed, 21 Foo 2026 07:28:00 GMT", "Wed, 21 Oct 2026 25:28:00 GMT", "0000-00-00T00:00:00Z", None, True, object(),
     "5 seconds", "\x00", "1h2", "12 ms", "Wed, 21 Oct 2026 07:28:00 CEST"],
)  # fmt: skip
def test_b95_what_is_no_wait_is_ignored(value: Any) -> None:
    assert read({"Retry-After": value}, now=NOW, status=503) == Upstream(wait=None)


def test_two_digit_years_are_at_most_fifty_years_ahead() -> None:
    assert seconds_until("Wednesday, 21-Oct-76 07:28:00 GMT", NOW) == pytest.approx(50 * 365.25 * 86400, rel=0.001)
    assert seconds_until("Friday, 21-Oct-77 07:28:00 GMT", NOW) == 0, "1977"
    assert seconds_until("Friday, 01-Jan-10 00:00:00 GMT", 3.7e9) == pytest.approx(22.75 * 365.25 * 86400, rel=0.01)


def test_times_are_counted_from_the_answers_own_date() -> None:
    answer = {"Date": "Wed, 21 Oct 2015 07:28:00 GMT", "Retry-After": "Wed, 21 Oct 2015 07:28:30 GMT"}
    assert read(answer).retry_after == 30, "its clock is off, and both times are of it"
    assert read(answer, now=NOW).retry_after == 0
    del answer["Date"]
    assert read({"Retry-After": str(int(time.time()) + 100)}).retry_after == pytest.approx(100, abs=5)


def test_below_400_retry_after_is_about_something_else() -> None:
    for status, wait in ((None, 5), (200, 0), (301, 0), (202, 0), (429, 5), (503, 5), (403, 5)):
        told = read({"Retry-After": "5"}, status=status)
        assert (told.retry_after, told.wait) == (5, wait)


def test_pauses_are_capped() -> None:
    assert read({"Retry-After": "86400"}).wait == 3600
    assert read({"Retry-After": "86400"}, max_pause=10).retry_after == 10
    told = read({"RateLimit": '"day";r=0;t=86400'})
    assert (told.reset_after, told.wait) == (86400, 3600)
    assert read({"RateLimit": f'"x";r=0;t={10**15 - 1}'}).reset_after == 366 * 86400


def test_milliseconds() -> None:
    assert read({"retry-after-ms": "1500"}).wait == 1.5
    assert read({"x-ms-retry-after-ms": "20", "retry-after": "1"}).wait == 1, "the longest"


# -- limits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "limit", "remaining", "reset"),
    [
        ({"RateLimit": '"burst";r=50;t=30', "RateLimit-Policy": '"burst";q=100;w=60,"daily";q=1000'}, 100, 50, 30),
        ({"RateLimit": '"a";r=50;t=30, "b";r=2;t=9'}, None, 2, 9),
        ({"ratelimit": "default;r=50;t=30"}, None, 50, 30),
        ({"RateLimit": '"api";a=50;w=30;c=1;pk=:aGk=:;new=?1', "RateLimit-Partition": '"api";user_id'}, None, 50, 30),
        ({"RateLimit": "limit=100, remaining=50, reset=5", "RateLimit-Policy": "100;w=10"}, 100, 50, 5),
        ({"RateLimit-Limit": "100", "RateLimit-Remaining": "50", "RateLimit-Reset": "50",
          "RateLimit-Policy": "10;w=1, 50;w=60"}, 100, 50, 50),
        ({"RateLimit-Limit": "100, 10;w=1, 100;w=60", "RateLimit-Remaining": "9"}, 100, 9, None),
        ({"X-RateLimit-Limit": "60", "X-RateLimit-Remaining": "59", "X-RateLimit-Reset": str(SOON)}, 60, 59, 40),
        ({"X-Rate-Limit-Limit": "60", "X-Rate-Limit-Remaining": "0", "X-Rate-Limit-Reset": f"{SOON}000"}, 60, 0, 40),
        ({"x-ratelimit-remaining": "3.0", "x-ratelimit-reset": "35.25"}, None, 3, 35.25),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "-1"}, None, 0, None),
        ({"X-RateLimit-Reset": "2026-10-21T07:28:00Z"}, None, None, 40),
        ({"X-RateLimit-Reset": "Wed, 21 Oct 2026 07:28:00 GMT"}, None, None, 40),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset-After": "1.25"}, None, 0, 1.25),
        ({"x-ratelimit-limit-requests": "50", "x-ratelimit-remaining-requests": "42",
          "x-ratelimit-reset-requests": "12ms", "x-ratelimit-limit-tokens": "40000",
          "x-ratelimit-remaining-tokens": "18", "x-ratelimit-reset-tokens": "6m0s"}, 40000, 18, 360),
        ({"anthropic-ratelimit-requests-limit": "1000", "anthropic-ratelimit-requests-remaining": "999",
          "anthropic-ratelimit-requests-reset": "2026-10-21T07:28:00Z",
          "anthropic-ratelimit-input-tokens-limit": "80000", "anthropic-ratelimit-input-tokens-remaining": "0",
          "anthropic-ratelimit-input-tokens-reset": "2026-10-21T07:27:30Z"}, 80000, 0, 10),
        ({"X-Shopify-Shop-Api-Call-Limit": "32/40"}, 40, 8, None),
        ({"X-Shopify-Shop-Api-Call-Limit": "41/40"}, 40, 0, None),
        ({"RateLimit-Policy": '"only";q=10;w=1'}, 10, None, None),
    ],
)  # fmt: skip
def test_dialects_in_the_wild(
    headers: dict[str, str], limit: int | None, remaining: int | None, reset: float | None
) -> None:
    told = read(headers, now=NOW)
    assert (told.limit, told.remaining, told.reset_after) == (
        limit,
        remaining,
        pytest.approx(reset) if reset else reset,
    )


def test_every_limit_told_of() -> None:
    told = read({
        "RateLimit-Policy": '"burst";q=100;w=60,"bytes";q=65535;qu="content-bytes";w=10;pk=:sdfjLJUOUH==:',
        "RateLimit": '"burst";r=50;t=30',
        "x-ratelimit-remaining-tokens": "18",
    })  # fmt: skip
    assert told.policies == (
        Told("burst", 100, 60, "requests", 50, 30.0),
        Told("tokens", None, None, "tokens", 18, None),
        Told("bytes", 65535, 10, "content-bytes", None, None),
    )


def test_the_limit_nearest_to_empty_is_the_first() -> None:
    told = read({"RateLimit": '"a";r=5;t=1, "b";r=0;t=2, "c";r=0;t=9', "RateLimit-Policy": '"a";q=5, "b";q=5, "c";q=9'})
    assert [limit.name for limit in told.policies] == ["c", "b", "a"]
    assert told.wait == 9


@pytest.mark.parametrize(
    ("headers", "status", "wait"),
    [
        ({"RateLimit": '"a";r=0;t=5'}, 200, 5), ({"RateLimit": '"a";r=1;t=5'}, 200, 0),
        ({"RateLimit": '"a";r=1;t=5'}, 429, 5), ({"RateLimit": '"a";r=0'}, 200, None),
        ({"RateLimit": '"a";r=0;t=60', "Retry-After": "7"}, 429, 7),
        ({"RateLimit": '"a";r=0;t=60', "Retry-After": "7"}, 200, 60), ({}, 500, 0), ({}, 503, None),
    ],
)  # fmt: skip
def test_how_long_to_stay_away(headers: dict[str, str], status: int, wait: float | None) -> None:
    assert read(headers, status=status).wait == wait


@pytest.mark.parametrize(
    "headers",
    [
        {"RateLimit": '"a";r=50;t=30,'}, {"RateLimit": '"a;r=50'}, {"RateLimit": "limit=, remaining"},
        {"RateLimit": '"é";r=1'},
        {"RateLimit": '"a";r=-1;t=5'}, {"RateLimit": '"a";r=1.5'}, {"RateLimit": '"a";r=?1'}, {"RateLimit": '"a"'},
        {"RateLimit": '("a" "b");r=1'}, {"RateLimit-Policy": '"a";w=60'}, {"RateLimit-Policy": '"a";q="x"'},
        {"RateLimit-Policy": "@1659578233;w=1"}, {"X-RateLimit-Remaining": "-1"}, {"X-RateLimit-Limit": "many"},
        {"X-RateLimit-Reset": "never"}, {"X-Shopify-Shop-Api-Call-Limit": "32"}, {"RateLimit": "x" * 9000},
        {"RateLimit": f'"a";r={10**15}'}, {"RateLimit": "limit=-1, remaining=-1, reset=-1"},
        {"RateLimit": "@9999999999999"},
    ],
)  # fmt: skip
def test_malformed_fields_are_ignored(headers: dict[str, str]) -> None:
    assert read(headers, now=NOW) == Upstream()


@pytest.mark.parametrize("age", ["1", "100", b"3", "007"])
def test_what_comes_from_a_cache_is_ignored(age: Any) -> None:
    assert read({"RateLimit": '"a";r=0;t=5', "Retry-After": "9", "age": age}, now=NOW) == Upstream()


@pytest.mark.parametrize("age", ["0", "", "-1", "x", "00"])
def test_what_is_fresh_is_not(age: str) -> None:
    assert read({"RateLimit": '"a";r=0;t=5', "Age": age}, now=NOW).wait == 5


def test_any_object_that_holds_headers() -> None:
    pairs = [(b"RateLimit", b'"a";r=3;t=5'), (b"ratelimit", b'"b";r=1;t=7'), ("RETRY-AFTER", "2"), ("retry-after", "8")]
    told = read(pairs, now=NOW)
    assert (told.remaining, told.retry_after) == (1, 8)
    assert read(iter(pairs), now=NOW) == told
    assert read({"ratelimit": [b'"a";r=3;t=5', '"b";r=1;t=7'], b"Retry-After": b"8"}, now=NOW) == told


def test_of_two_opinions_the_less_generous() -> None:
    told = read([("X-RateLimit-Remaining", "7"), ("X-RateLimit-Remaining", "3"), ("X-RateLimit-Reset", "5, 9")])
    assert (told.remaining, told.reset_after) == (3, 9)


class Hostile:
    def items(self) -> Any:
        raise RuntimeError


@pytest.mark.parametrize(
    "headers", [None, 5, "text", b"bytes", object(), [1, None, ("a",), ("a", "b", "c")], Hostile()]
)
def test_what_is_no_headers_tells_nothing(headers: Any) -> None:
    assert read(headers) == Upstream()


# -- round trip ----------------------------------------------------------------------------------------------

limits = st.builds(
    TokenBucket, st.tuples(st.integers(1, 1000), st.integers(1, 1000)), st.integers(1, 10**6),
    name=st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=20),
)  # fmt: skip


@given(
    style=st.sampled_from(STYLES),
    asked=st.lists(limits, min_size=1, max_size=3, unique_by=(lambda limit: limit.name, lambda limit: limit.quota)),
    share=st.floats(0, 1),
    reset=st.integers(0, 30 * 86400 * 10**6),
    wait=st.integers(1, 3600 * 10**6),
    allowed=st.booleans(),
    seconds=st.booleans(),
)
def test_what_is_said_is_understood(
    style: str, asked: list[TokenBucket], share: float, reset: int, wait: int, allowed: bool, seconds: bool
) -> None:
    first = asked[0]
    remaining, micros = int(first.quota * share), 0 if allowed else wait
    decision = Decision(allowed, first.quota, remaining, micros / 1e6, reset / 1e6, tuple(asked))
    now = float(SOON)
    told = read(fields(decision, style, now=now, reset="seconds" if seconds else "epoch"), now=now)
    expected = reset if allowed else micros
    assert told.remaining == remaining
    assert told.reset_after == math.ceil(expected / 1e6)
    assert told.retry_after == (None if allowed else math.ceil(micros / 1e6))
    if style != "x-ratelimit":
        windows = {(limit.quota, limit.window) for limit in told.policies}
        assert windows == {(limit.quota, limit.window) for limit in asked}
        assert told.limit == first.quota


@given(st.sampled_from(STYLES), st.sampled_from(STYLES))
def test_two_generations_at_once_are_understood(one: str, other: str) -> None:
    if "draft-7" in (one, other) and {one, other} & {"draft-8", "draft-12"}:
        return
    decision = Decision(False, 10, 0, 6.0, 60.0, (TokenBucket("10/min", 10, name="a"),))
    told = read(fields(decision, tuple({one, other}), now=NOW), now=NOW)
    assert (told.limit, told.remaining, told.reset_after, told.wait) == (10, 0, 6, 6)


# -- anything may come ---------------------------------------------------------------------------------------

NAMES = ["Retry-After", "RateLimit", "ratelimit-policy", "X-RateLimit-Reset", "X-RateLimit-Remaining", "Age", "Date",
         "RateLimit-Limit", "x-ratelimit-reset-tokens", "anthropic-ratelimit-tokens-reset", "retry-after-ms",
         "X-Shopify-Shop-Api-Call-Limit", "x-ratelimit-reset-after", "X-Rate-Limit-Limit"]  # fmt: skip
pieces = st.lists(
    st.sampled_from(['"', "\\", ";", ",", "=", "a", "r", "t", "q", "w", "limit", "remaining", "reset", "0", "1", "9",
                     "-", ".", "?1", "@", ":", "(", ")", " ", "%", "ms", "h", "GMT", "Wed", "Oct", "2026", "T", "Z",
                     "\x00", "é"]),
    max_size=30,
).map("".join)  # fmt: skip
values = st.one_of(pieces, st.text(), st.binary(), st.integers(), st.floats(), st.none(), st.lists(pieces, max_size=3))


@settings(max_examples=2000, deadline=None)
@given(
    headers=st.lists(st.tuples(st.one_of(st.sampled_from(NAMES), st.text(), st.binary()), values), max_size=6),
    now=st.one_of(st.none(), st.floats(0, 1e10)),
    status=st.sampled_from([None, 200, 301, 429, 503]),
)
def test_reading_never_raises(headers: list[Any], now: float | None, status: int | None) -> None:
    told = read(headers, now=now, status=status)
    assert told.wait is None or 0 <= told.wait <= 3600
    assert told.retry_after is None or 0 <= told.retry_after <= 3600
    assert told.remaining is None or told.remaining >= 0
    assert told.reset_after is None or 0 <= told.reset_after <= 366 * 86400


@settings(max_examples=2000, deadline=None)
@given(st.text())
def test_any_text_is_a_wait_or_none(text: str) -> None:
    wait = seconds_until(text, NOW)
    assert wait is None or wait >= 0


def test_giants_are_read_at_once() -> None:
    headers = dict.fromkeys(NAMES, '"a";r=1;' * 2**17) | {f"x-ratelimit-reset-{'a' * 2**20}": "1"}
    began = time.perf_counter()
    assert read(headers, now=NOW) == Upstream()
    assert time.perf_counter() - began < 0.1


# -- jitter --------------------------------------------------------------------------------------------------


@given(st.floats(0, 3600), st.integers())
def test_a_wait_is_spread_and_never_shortened(wait: float, seed: int) -> None:
    assert wait <= spread(wait, random.Random(seed).random) <= wait + max(1.0, wait / 10)


def test_a_fleet_does_not_come_back_in_one_instant() -> None:
    rng = random.Random(1).random
    assert spread(0.0, rng) == 0
    assert len({round(spread(5.0, rng), 1) for _ in range(1000)}) == 11
    assert spread(100.0, lambda: 1.0) == 110
    assert spread(100.0, lambda: 0.0) == 100
    assert spread(100.0, lambda: 1.0, share=0.5) == 150
