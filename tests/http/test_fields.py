"""What a decision says on the wire: golden fields of each dialect, and what holds for every decision; B20, B96–B99."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from typing import Any, NamedTuple

import http_sfv
import pytest
from freezegun import freeze_time
from hypothesis import given
from hypothesis import strategies as st

from throttle import Decision, InvalidRate, ThrottleError, TokenBucket
from throttle.http import STYLES, fields, retry_after, secret
from throttle.testing import FakeClock, fake_limiter

BURST = TokenBucket("100/min", 100, name="burst")
DAILY = TokenBucket("1000/d", 1000, name="daily")
ALLOWED = Decision(True, 100, 50, 0.0, 30.0, (BURST, DAILY))
REFUSED = Decision(False, 100, 0, 0.6, 60.0, (BURST, DAILY))
CLOSED = Decision(False, 1, 0, math.inf, 0.0, (TokenBucket(0, name="shut"),))
NOW = 1_760_000_000.25


class Told(NamedTuple):
    """Any object with these four is a policy."""

    label: str
    quota: int
    window: int
    unit: str


texts = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=20)
policies = st.builds(
    Told, texts, st.integers(0, 10**18), st.integers(1, 10**9),
    st.sampled_from(["requests", "content-bytes", "concurrent-requests"]),
)  # fmt: skip
waits = st.one_of(st.just(0.0), st.integers(1, 10**15).map(lambda micros: micros / 1e6), st.just(math.inf))


@st.composite
def decisions(draw: st.DrawFn) -> Decision:
    wait = draw(waits)
    reset = draw(st.integers(0, 10**15)) / 1e6 + (wait if math.isfinite(wait) else 0.0)
    asked = tuple(draw(st.lists(policies, max_size=3)))
    return Decision(wait == 0, draw(st.integers(0, 10**18)), draw(st.integers(-5, 10**18)), wait, reset, asked)


several = st.lists(st.sampled_from(STYLES), min_size=1, max_size=5, unique=True).filter(
    lambda chosen: "draft-7" not in chosen or not {"draft-8", "draft-12"} & set(chosen)
)


@pytest.mark.parametrize(
    ("style", "told"),
    [
        ("draft-8", {
            "RateLimit-Policy": '"burst";q=100;w=60, "daily";q=1000;w=86400', "RateLimit": '"burst";r=50;t=30',
        }),
        ("draft-12", {
            "RateLimit-Policy": '"burst";q=100;w=60, "daily";q=1000;w=86400', "RateLimit": '"burst";a=50;w=30',
        }),
        ("draft-7", {
            "RateLimit-Policy": "100;w=60, 1000;w=86400", "RateLimit": "limit=100, remaining=50, reset=30",
        }),
        ("draft-6", {
            "RateLimit-Policy": "100;w=60, 1000;w=86400",
            "RateLimit-Limit": "100", "RateLimit-Remaining": "50", "RateLimit-Reset": "30",
        }),
        ("x-ratelimit", {
            "X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "50", "X-RateLimit-Reset": "1760000031",
        }),
    ],
)  # fmt: skip
def test_each_dialect(style: str, told: dict[str, str]) -> None:
    assert fields(ALLOWED, style, now=NOW) == told


@pytest.mark.parametrize("style", STYLES)
def test_a_refusal_says_when_to_come_back_and_nothing_later(style: str) -> None:
    told = fields(REFUSED, style, now=NOW)
    assert told.pop("Retry-After") == "1"
    shown = " ".join(told.values())
    assert {"draft-8": "r=0;t=1", "draft-12": "a=0;w=1", "draft-7": "remaining=0, reset=1"}.get(style, "0 1") in shown


@pytest.mark.parametrize("style", STYLES)
def test_while_closed_an_hour_is_said(style: str) -> None:
    assert fields(CLOSED, style)["Retry-After"] == "3600"
    assert fields(CLOSED, style, closed=60)["Retry-After"] == "60"
    assert fields(CLOSED, "draft-8") == {
        "Retry-After": "3600", "RateLimit-Policy": '"shut";q=0;w=1', "RateLimit": '"shut";r=0;t=3600',
    }  # fmt: skip


def test_reset_in_seconds() -> None:
    assert fields(ALLOWED, "x-ratelimit", reset="seconds")["X-RateLimit-Reset"] == "30"
    with pytest.raises(ThrottleError, match="epoch"):
        fields(ALLOWED, "x-ratelimit", reset="sec")


def test_several_styles_give_each_field_once() -> None:
    told = fields(ALLOWED, ("draft-8", "draft-6", "x-ratelimit", "draft-12"), reset="seconds", cost=2)
    assert told == {
        "RateLimit-Policy": '"burst";q=100;w=60, "daily";q=1000;w=86400',
        "RateLimit": '"burst";r=50;t=30;a=50;w=30;c=2',
        "RateLimit-Limit": "100", "RateLimit-Remaining": "50", "RateLimit-Reset": "30",
        "X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "50", "X-RateLimit-Reset": "30",
    }  # fmt: skip
    assert fields(ALLOWED, ("draft-6", "draft-8"))["RateLimit-Policy"] == "100;w=60, 1000;w=86400", "the first has it"


@pytest.mark.parametrize("style", [("draft-7", "draft-8"), ("draft-12", "draft-7"), "draft8", "", ("draft-8", "no")])
def test_b30_styles_that_make_no_sense(style: Any) -> None:
    with pytest.raises(ThrottleError, match="draft-8"):
        fields(ALLOWED, style)


def test_no_limit_no_fields() -> None:
    assert fields(Decision(True, 0, 0, 0.0, 0.0), STYLES[:2]) == {}
    assert fields(Decision(False, 0, 0, 2.5, 0.0)) == {"Retry-After": "3"}


def test_partitions_are_opaque_and_wanted() -> None:
    told = fields(ALLOWED, partition="user-42", pepper="secret")
    assert re.fullmatch('"burst";r=50;t=30;pk=:[A-Za-z0-9+/]{16}:', told["RateLimit"])
    assert told["RateLimit-Policy"].count(";pk=:") == 2
    assert "user-42" not in str(told)
    assert told == fields(ALLOWED, partition=secret("user-42"), pepper="secret")
    assert told != fields(ALLOWED, partition="user-42", pepper="another")
    assert told != fields(ALLOWED, partition="user-43", pepper="secret")
    assert "pk" not in fields(ALLOWED)["RateLimit"]
    with pytest.raises(ThrottleError, match="pepper"):
        fields(ALLOWED, partition="user-42")


def test_dimensions_are_names() -> None:
    told = fields(ALLOWED, "draft-12", dimensions=("user_id", "method"))
    assert told["RateLimit-Partition"] == '"burst";user_id;method, "daily";user_id;method'
    with pytest.raises(ThrottleError, match="no HTTP field"):
        fields(ALLOWED, "draft-12", dimensions=["User Id"])


def test_a_decision_has_them_itself() -> None:
    assert ALLOWED.headers() == fields(ALLOWED)
    assert REFUSED.headers("draft-6") == fields(REFUSED, "draft-6")
    assert REFUSED.headers(("draft-8", "draft-6")) == fields(REFUSED, ("draft-8", "draft-6"))


@pytest.mark.parametrize(
    ("limit", "quota", "window"),
    [
        (TokenBucket("10/60s", 10), 10, 60),
        (TokenBucket("7/10s", 7), 7, 10),  # whose interval is no whole number of µs
        (TokenBucket("10/s"), 10, 1),
        (TokenBucket("10/s", 5), 10, 1),
        (TokenBucket("0.5/s"), 1, 2),
        (TokenBucket("1000/d", 1000), 1000, 86400),
        (TokenBucket("1/h", 3), 3, 10800),
        (TokenBucket(0, 3), 0, 1),
    ],
    ids=str,
)
def test_policies_say_whole_seconds(limit: TokenBucket, quota: int, window: int) -> None:
    assert (limit.quota, limit.window, limit.unit) == (quota, window, "requests")


@given(count=st.integers(1, 10**4), period=st.integers(1, 10**4), burst=st.integers(1, 10**4))
def test_a_policy_is_never_more_than_the_limit(count: int, period: int, burst: int) -> None:
    limit = TokenBucket((count, period), burst)
    assert limit.quota >= burst
    assert limit.quota * period <= limit.window * count


# -- field cases ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hours", [-1, 0, 1])
def test_b20_another_clock_changes_no_duration(hours: int) -> None:
    limiter, limit = fake_limiter(FakeClock()), TokenBucket("10/60s", 10)
    with freeze_time(tz_offset=0) as frozen:
        frozen.tick(hours * 3600)
        assert limiter.acquire(limit, cost=10)
        refused = limiter.acquire(limit)
        assert fields(refused) == {
            "Retry-After": "6", "RateLimit-Policy": '"10/min, burst 10";q=10;w=60',
            "RateLimit": '"10/min, burst 10";r=0;t=6',
        }  # fmt: skip


@given(count=st.integers(1, 1000), period=st.integers(1, 1000), data=st.data())
def test_b20_a_wait_is_bounded_by_the_cost(count: int, period: int, data: st.DataObject) -> None:
    burst = data.draw(st.integers(1, 20))
    limiter, limit = fake_limiter(FakeClock()), TokenBucket((count, period), burst)
    cost = data.draw(st.integers(1, burst))
    while limiter.acquire(limit, cost=data.draw(st.integers(1, burst))):
        pass
    if not (refused := limiter.peek(limit, cost=cost)):
        wait = int(fields(refused)["Retry-After"])
        assert 1 <= wait <= math.ceil(period * cost / count) + 1


@pytest.mark.parametrize(
    ("wait", "said"),
    [(0.001, 1), (0.493, 1), (0.999, 1), (1.0, 1), (1.0001, 2), (59.2, 60), (0.1 + 0.2 + 0.7, 1), (3 * 1.1, 4),
     (1.0000000000000002, 1), (1.000001, 2), (0.0, 1), (86400.0, 86400)],
)  # fmt: skip
def test_b96_retry_after_is_whole_and_rounded_up(wait: float, said: int) -> None:
    assert retry_after(wait) == said
    assert fields(Decision(False, 1, 0, wait, wait))["Retry-After"] == str(said)


@given(count=st.integers(1, 100), period=st.integers(1, 100), burst=st.integers(1, 5), data=st.data())
def test_b96_a_client_that_waits_so_long_is_admitted(count: int, period: int, burst: int, data: st.DataObject) -> None:
    clock = FakeClock()
    limiter, limit = fake_limiter(clock), TokenBucket((count, period), burst)
    cost = data.draw(st.integers(1, burst))
    while answer := limiter.acquire(limit, cost=cost):
        clock.tick(data.draw(st.integers(0, limit.interval)))
    clock.advance(int(fields(answer)["Retry-After"]))
    assert limiter.acquire(limit, cost=cost)


def test_b97_the_wait_is_for_this_cost() -> None:
    limiter, limit = fake_limiter(FakeClock()), TokenBucket("10/60s", 10)
    assert limiter.acquire(limit, cost=10)
    waits = [limiter.acquire(limit, cost=cost) for cost in (1, 5)]
    assert [fields(wait)["Retry-After"] for wait in waits] == ["6", "30"]


@given(decision=decisions())
def test_the_usual_way_says_what_the_general_one_does(decision: Decision) -> None:
    assert list(fields(decision).items()) == list(fields(decision, ("draft-8",)).items())


@given(decision=decisions(), styles=several)
def test_b98_every_refusal_says_when_and_nothing_else_does(decision: Decision, styles: list[str]) -> None:
    told = fields(decision, styles)
    assert ("Retry-After" in told) == (not decision.allowed)
    assert re.fullmatch("[1-9][0-9]*", told.get("Retry-After", "1"))


def parsed(kind: Any, value: str) -> Any:
    """By a parser that is not the one that wrote it."""
    structure = kind()
    structure.parse(value.encode("ascii"))
    return structure


@given(decision=decisions(), styles=several)
def test_b99_what_is_said_is_valid(decision: Decision, styles: list[str]) -> None:
    told = fields(decision, styles, partition="me", pepper="p", dimensions=["user_id"], cost=1)
    for name, value in told.items():
        if name == "RateLimit" and "draft-7" in styles:
            state = parsed(http_sfv.Dictionary, value)
            assert [(key, 0 <= state[key].value <= 10**15 - 1) for key in state] == [
                ("limit", True), ("remaining", True), ("reset", True),
            ]  # fmt: skip
        elif name in ("RateLimit", "RateLimit-Policy", "RateLimit-Partition"):
            check_items(decision, name, parsed(http_sfv.List, value), told)
        else:
            assert re.fullmatch("[0-9]{1,15}", value)


def check_items(decision: Decision, name: str, items: Any, told: dict[str, str]) -> None:
    names = [item.value for item in items if isinstance(item.value, str)]
    expected = list(dict.fromkeys(policy.label for policy in decision.policies))
    assert names == (expected[:1] if name == "RateLimit" else expected) or not names
    for item in items:
        numbers = [value for value in item.params.values() if isinstance(value, int) and value is not True]
        assert all(0 <= number <= 10**15 - 1 for number in numbers)
        if name == "RateLimit":
            later = item.params.get("t", item.params.get("w"))
            assert later <= int(told.get("Retry-After", later)), "never earlier than t"
            assert set(item.params) <= {"r", "t", "a", "w", "c", "pk"}


def test_b99_names_are_escaped_or_refused() -> None:
    odd = Decision(True, 100, 50, 0.0, 30.0, (TokenBucket("100/min", 100, name='a"b\\c'),))
    assert fields(odd)["RateLimit"] == r'"a\"b\\c";r=50;t=30'
    assert parsed(http_sfv.List, fields(odd)["RateLimit-Policy"])[0].value == 'a"b\\c'
    with pytest.raises(InvalidRate):
        TokenBucket("100/min", name="é")
    with pytest.raises(ThrottleError, match="no HTTP field"):
        fields(odd._replace(policies=(Told("é", 1, 1, "requests"),)))


def test_b99_nothing_is_negative() -> None:
    told = fields(Decision(True, -1, -1, 0.0, -1.0, (BURST,)), ("draft-8", "draft-6", "x-ratelimit"), reset="seconds")
    assert not [value for value in told.values() if "-" in value]


def test_the_library_does_not_import_it() -> None:
    program = (
        "import sys, throttle; print([name for name in sys.modules if 'http_sf' in name or 'throttle.http' in name])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_without_the_extra_the_remedy_is_said() -> None:
    program = "import sys; sys.modules['http_sf'] = None\nimport throttle.http"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert 'pip install "celery-throttled[http]"' in done.stderr
