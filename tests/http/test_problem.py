"""Refusals as whole answers: what they are, and what they do not tell."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from throttle import BacklogFull, Decision, StoreUnavailable, ThrottleError, TokenBucket
from throttle.http import STYLES, fields, refusal

TYPES = "https://iana.org/assignments/http-problem-types#"
BURST = TokenBucket("100/min", 100, name="burst")
MONTHLY = TokenBucket("30000 per 30 days", 30000, name="monthly")
TOO_FAST = Decision(False, 100, 0, 5.2, 60.0, (BURST, MONTHLY))
USED_UP = Decision(False, 30000, 0, 86.4, 2592000.0, (MONTHLY, BURST))


def body(cause: Any, **options: Any) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(refusal(cause, **options).body)
    return told


def test_too_fast() -> None:
    answer = refusal(TOO_FAST, instance="/reports?page=2")
    assert answer.status == 429
    assert answer.fields == {
        **fields(TOO_FAST), "Content-Type": "application/problem+json", "Cache-Control": "no-store",
    }  # fmt: skip
    assert json.loads(answer.body) == {
        "type": TYPES + "quota-exceeded",
        "title": "Rate exceeded",
        "status": 429,
        "detail": 'Too fast for "burst", 100 requests in 60 s. Try again in 6 s.',
        "instance": "/reports?page=2",
        "violated-policies": ["burst"],
    }


def test_a_plan_that_is_used_up_is_another_refusal() -> None:
    told = body(USED_UP)
    assert told["type"] == TYPES + "quota-exceeded"
    assert told["title"] == "Quota exceeded"
    assert told["detail"] == 'The quota "monthly", 30000 requests in 2592000 s, is used up. Try again in 87 s.'
    assert told["violated-policies"] == ["monthly"]
    assert body(TOO_FAST, kind="quota")["title"] == "Quota exceeded"
    assert body(USED_UP, kind="rate")["title"] == "Rate exceeded"


def test_abuse() -> None:
    told = body(TOO_FAST, kind="abuse")
    assert (told["type"], told["status"]) == (TYPES + "abnormal-usage-detected", 429)


@pytest.mark.parametrize(
    ("cause", "title", "wait"),
    [
        (BacklogFull("proj.export", 7200.0, 3600.5), "Too much work is waiting", "3601"),
        (BacklogFull("proj.export", math.inf, math.inf), "Too much work is waiting", "3600"),
        (StoreUnavailable("redis://10.0.0.7:6379 did not answer"), "Temporarily unavailable", "30"),
    ],
    ids=["backlog", "closed", "store"],
)
def test_reduced_capacity(cause: Any, title: str, wait: str) -> None:
    answer = refusal(cause, instance="/x")
    told = json.loads(answer.body)
    assert (answer.status, told["status"]) == (503, 503)
    assert (told["type"], told["title"], told["instance"]) == (TYPES + "temporary-reduced-capacity", title, "/x")
    assert "violated-policies" not in told
    assert answer.fields == {
        "Retry-After": wait, "Content-Type": "application/problem+json", "Cache-Control": "no-store",
    }  # fmt: skip
    assert "proj.export" not in str(told), "what runs inside is nobody's business"
    assert "redis" not in str(told)


def test_while_closed() -> None:
    closed = Decision(False, 1, 0, math.inf, 0.0, (TokenBucket(0, name="shut"),))
    assert body(closed)["detail"] == '"shut" lets nothing pass at the moment. Try again in 3600 s.'
    assert body(closed, closed=60)["detail"] == '"shut" lets nothing pass at the moment. Try again in 60 s.'


def test_what_is_said_may_be_ones_own() -> None:
    assert body(TOO_FAST, detail="Immer mit der Ruhe …")["detail"] == "Immer mit der Ruhe …"
    assert body(Decision(False, 0, 0, 2.0, 0.0))["detail"] == "Try again in 2 s."


def test_what_is_no_refusal() -> None:
    with pytest.raises(ThrottleError, match="allows"):
        refusal(TOO_FAST._replace(allowed=True))
    with pytest.raises(ThrottleError, match='"rate", "quota" or "abuse"'):
        refusal(TOO_FAST, kind="backlog")


@given(
    wait=st.one_of(st.integers(1, 10**13).map(lambda micros: micros / 1e6), st.just(math.inf)),
    style=st.sampled_from(STYLES),
    kind=st.sampled_from([None, "rate", "quota", "abuse"]),
    name=st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1),
    instance=st.none() | st.text(),
)
def test_b98_every_refusal_says_when(wait: float, style: str, kind: Any, name: str, instance: Any) -> None:
    decision = Decision(False, 10, 0, wait, 60.0, (TokenBucket("10/min", 10, name=name),))
    answer = refusal(decision, style, kind=kind, instance=instance)
    told = json.loads(answer.body)
    assert int(answer.fields["Retry-After"]) >= 1
    assert answer.fields["Cache-Control"] == "no-store"
    assert told["status"] == answer.status == 429
    assert told["violated-policies"] == [name]
    assert told.get("instance") == instance
    assert answer.body.isascii()
