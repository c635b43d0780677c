"""Refusals as whole answers: status, fields and an `application/problem+json` body.

Sources: RFC 9457 (problem details), RFC 6585 section 4 (429, which no cache may store), RFC 9110 section 15.6.4
(503), draft-ietf-httpapi-ratelimit-headers (the problem types and `violated-policies`).

| case | type | status |
| --- | --- | --- |
| rate: too fast; come back a little later | quota-exceeded | 429 |
| quota: a plan is used up | quota-exceeded | 429 |
| abuse: refused again and again | abnormal-usage-detected | 429 |
| backlog too deep, store down | temporary-reduced-capacity | 503 |

Bodies name policies and seconds, and never keys, hosts or tasks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from throttle.decision import Decision, Policy
from throttle.errors import BacklogFull, StoreUnavailable, ThrottleError
from throttle.http.fields import CLOSED, fields

PROBLEM = "application/problem+json"

#: Seconds from which a policy's window is a quota, a plan's, rather than a rate.
DAY = 86400

#: Seconds after which to try again when the store is down: failovers take 10 to 30.
DOWN = 30

_TYPES = "https://iana.org/assignments/http-problem-types#"
_KINDS = {
    "rate": ("quota-exceeded", "Rate exceeded", 429),
    "quota": ("quota-exceeded", "Quota exceeded", 429),
    "abuse": ("abnormal-usage-detected", "Abnormal usage detected", 429),
    "backlog": ("temporary-reduced-capacity", "Too much work is waiting", 503),
    "store": ("temporary-reduced-capacity", "Temporarily unavailable", 503),
}


class Refusal(NamedTuple):
    """An answer that refuses a request.

    Attributes:
        status: 429 or 503.
        fields: among them Content-Type, Cache-Control and Retry-After.
        body: JSON in UTF-8.
    """

    status: int
    fields: dict[str, str]
    body: bytes


def refusal(
    cause: Decision | BacklogFull | StoreUnavailable,
    style: str | Sequence[str] = "draft-8",
    *,
    kind: str | None = None,
    detail: str | None = None,
    instance: str | None = None,
    closed: int = CLOSED,
    **settings: Any,
) -> Refusal:
    """The answer that says no.

    Args:
        cause: a decision that is no, a backlog beyond its bound, or a store that does not answer.
        style: of the fields, as `fields` has it.
        kind: "rate", "quota" or "abuse" for a decision; unless said, "quota" where a `Quota` refused, or a limit
            whose window is a day or longer, else "rate".
        detail: what to say to whoever reads it, instead of the standard sentence.
        instance: URI reference of this occurrence: the path, or an id to be found in logs.
        closed: seconds a client is told to keep away while a limit is closed.
        settings: of `fields`.

    Raises:
        ThrottleError: for a decision that allows, or an unknown kind.
    """
    told = _decision(cause) if isinstance(cause, Decision) else _failure(cause)
    kind = _kind(cause, kind)
    type_, title, status = _KINDS[kind]
    shown = fields(told, style, closed=closed, **settings)
    body: dict[str, Any] = {"type": _TYPES + type_, "title": title, "status": status}
    body["detail"] = detail or _detail(kind, told, int(shown["Retry-After"]))
    if instance is not None:
        body["instance"] = instance
    if told.policies:
        body["violated-policies"] = [told.policies[0].label]
    shown |= {"Content-Type": PROBLEM, "Cache-Control": "no-store"}
    return Refusal(status, shown, json.dumps(body).encode())


def _decision(decision: Decision) -> Decision:
    if decision.allowed:
        raise ThrottleError("this decision allows: there is nothing to refuse")
    return decision


def _failure(error: BacklogFull | StoreUnavailable) -> Decision:
    """A refusal by no limit."""
    wait = error.retry_after if isinstance(error, BacklogFull) else DOWN
    return Decision(False, 0, 0, wait, 0.0)


def _kind(cause: Decision | BacklogFull | StoreUnavailable, kind: str | None) -> str:
    if not isinstance(cause, Decision):
        return "backlog" if isinstance(cause, BacklogFull) else "store"
    if kind is None:
        return "quota" if any(map(_is_quota, cause.policies[:1])) else "rate"
    if kind not in ("rate", "quota", "abuse"):
        raise ThrottleError(f'kind {kind!r} must be "rate", "quota" or "abuse"')
    return kind


def _is_quota(policy: Policy) -> bool:
    return getattr(policy, "kind", "") == "quota" or policy.window >= DAY


def _detail(kind: str, told: Decision, wait: int) -> str:
    later = f"Try again in {wait} s."
    if kind == "backlog":
        return f"So much work is waiting that this would come too late. {later}"
    if kind == "store":
        return f"Requests cannot be counted at the moment. {later}"
    if kind == "abuse":
        return f"Requests went on after they had been refused. {later}"
    if not told.policies:
        return later
    policy = told.policies[0]
    if not math.isfinite(told.retry_after):
        return f"{_quoted(policy.label)} lets nothing pass at the moment. {later}"
    bound = f"{policy.quota} {policy.unit} in {policy.window} s"
    if kind == "quota":
        return f"The quota {_quoted(policy.label)}, {bound}, is used up. {later}"
    return f"Too fast for {_quoted(policy.label)}, {bound}. {later}"


def _quoted(name: str) -> str:
    return f'"{name}"'
