"""A decision as HTTP response fields, in the dialects that clients understand.

Sources: draft-ietf-httpapi-ratelimit-headers (its generations are incompatible: -06, -07, -08 to -11, and the
branch behind -12), RFC 9651 (structured fields), RFC 9110 section 10.2.3 (Retry-After). All are whole seconds
from now; only `X-RateLimit-Reset` may be a time.

| style | fields |
| --- | --- |
| draft-8 | `RateLimit-Policy: "burst";q=100;w=60` · `RateLimit: "burst";r=50;t=30` |
| draft-12 | the same policy · `RateLimit: "burst";a=50;w=30` (cost: `;c=1`) · `RateLimit-Partition: "burst";user_id` |
| draft-7 | `RateLimit-Policy: 100;w=60` · `RateLimit: limit=100, remaining=50, reset=30` |
| draft-6 | `RateLimit-Policy: 100;w=60` · `RateLimit-Limit: 100`, `RateLimit-Remaining: 50`, `RateLimit-Reset: 30` |
| x-ratelimit | `X-RateLimit-Limit: 100`, `X-RateLimit-Remaining: 50`, `X-RateLimit-Reset: 1760000030` |

`Retry-After` comes with every refusal and with nothing else.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import http_sf

from throttle.decision import Decision, Policy
from throttle.errors import ThrottleError
from throttle.http.identity import opaque

#: Seconds a client is told to keep away while a limit is closed. That may end at any moment, or never: this
#: is one question per client and hour.
CLOSED = 3600

#: The largest Integer of a structured field (RFC 9651 section 3.3.1).
LARGEST = 10**15 - 1

STYLES = ("draft-8", "draft-12", "draft-7", "draft-6", "x-ratelimit")


def fields(
    decision: Decision,
    style: str | Sequence[str] = "draft-8",
    *,
    reset: str = "epoch",
    now: float | None = None,
    cost: int | None = None,
    partition: object = None,
    pepper: str = "",
    dimensions: Iterable[str] = (),
    closed: int = CLOSED,
) -> dict[str, str]:
    """A decision as response fields. Where no limit was asked, nothing but the `Retry-After` of a refusal.

    Args:
        decision: what the limiter answered.
        style: one of `STYLES`, or several. draft-8 and draft-12 share their fields; where others give one
            field another syntax, the first has it.
        reset: "epoch" (as GitHub does) or "seconds" from now: what `X-RateLimit-Reset` holds.
        now: seconds since the epoch, for "epoch" alone; this machine's clock unless said.
        cost: units this request took, shown by draft-12.
        partition: whom the limits counted, shown as `pk`, an opaque digest; nothing of it unless said.
        pepper: secret that keys this digest; without one, whoever guesses an identity could verify it.
        dimensions: what draft-12's partitions are made of ("user_id", "method"): names, never values.
        closed: seconds a client is told to keep away while a limit is closed.

    Raises:
        ThrottleError: an unknown style or setting, or what no HTTP field can say.
    """
    if style == "draft-8" and partition is None and decision.policies and reset == "epoch":
        return _usual(decision, closed)
    styles = _styles((style,) if isinstance(style, str) else tuple(style))
    told = {} if decision.allowed else {"Retry-After": str(retry_after(decision.retry_after, closed))}
    if not decision.policies:
        return told
    pk = None if partition is None else opaque(partition, pepper)
    said = _Said(decision, styles, closed, _clock(reset, now), cost, pk, tuple(dimensions))
    for name in styles:
        for field, value in _DIALECTS[name](said).items():
            told.setdefault(field, value)
    return told


def retry_after(wait: float, closed: int = CLOSED) -> int:
    """Whole seconds, at least 1: a client that waits exactly so long is in time.

    Args:
        wait: seconds; infinite while closed.
        closed: what is said instead of infinity.
    """
    return max(1, _seconds(wait if math.isfinite(wait) else closed))


def _seconds(duration: float) -> int:
    """Rounded up from whole microseconds: 1.0000000000000002 s, the noise of a float, are 1 s and not 2."""
    return _integer(-(-round(duration * 10**6) // 10**6))


def _integer(number: int) -> int:
    return min(max(0, number), LARGEST)


def _clock(reset: str, now: float | None) -> float | None:
    if reset not in ("epoch", "seconds"):
        raise ThrottleError(f'reset {reset!r} must be "epoch" or "seconds"')
    return None if reset == "seconds" else time.time() if now is None else now


@lru_cache(64)
def _styles(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in _DIALECTS:
            raise ThrottleError(f"style {name!r} is not known: say one of {', '.join(STYLES)}, or several")
    if "draft-7" in names and {"draft-8", "draft-12"} & set(names):
        raise ThrottleError("draft-7 gives the two fields of draft-8 another syntax: choose one of them")
    return names


class _Said(NamedTuple):
    """An answer, and how it is to be told."""

    decision: Decision
    styles: tuple[str, ...]
    closed: int
    clock: float | None  # s since the epoch, where a time is wanted
    cost: int | None
    pk: bytes | None
    dimensions: tuple[str, ...]

    @property
    def after(self) -> float:
        """Seconds until the state shown has changed for the better.

        For a refusal that is the wait and not when the bucket is full: `Retry-After` should not be earlier
        than what the other fields say (draft-08 and later), and it must not be later than the wait.
        """
        after = self.decision.reset_after if self.decision.allowed else self.decision.retry_after
        return after if math.isfinite(after) else float(self.closed)

    @property
    def reset(self) -> int:
        return _seconds(self.after) if self.decision.allowed else retry_after(self.after)

    @property
    def limit(self) -> int:
        return _integer(self.decision.limit)

    @property
    def remaining(self) -> int:
        return _integer(self.decision.remaining)

    @property
    def policies(self) -> dict[str, Policy]:
        """By name: one field must not show two of one name."""
        named: dict[str, Policy] = {}
        for policy in self.decision.policies:
            named.setdefault(policy.label, policy)
        return named


# -- dialects ------------------------------------------------------------------------------------------------


def _draft_8(said: _Said) -> dict[str, str]:
    return {"RateLimit-Policy": _named(said), "RateLimit": _state(said)}


def _draft_12(said: _Said) -> dict[str, str]:
    if not said.dimensions:
        return _draft_8(said)
    made_of = dict.fromkeys(said.dimensions, True)
    return {**_draft_8(said), "RateLimit-Partition": _text([(name, made_of) for name in said.policies])}


def _draft_7(said: _Said) -> dict[str, str]:
    state = {"limit": said.limit, "remaining": said.remaining, "reset": said.reset}
    return {"RateLimit-Policy": _unnamed(said), "RateLimit": _text(state)}


def _draft_6(said: _Said) -> dict[str, str]:
    return {
        "RateLimit-Policy": _unnamed(said),
        "RateLimit-Limit": str(said.limit),
        "RateLimit-Remaining": str(said.remaining),
        "RateLimit-Reset": str(said.reset),
    }


def _x_ratelimit(said: _Said) -> dict[str, str]:
    # A time is rounded up, as durations are: never so early that the question would be refused again.
    reset = said.reset if said.clock is None else _seconds(said.clock + said.after)
    return {
        "X-RateLimit-Limit": str(said.limit),
        "X-RateLimit-Remaining": str(said.remaining),
        "X-RateLimit-Reset": str(reset),
    }


_DIALECTS: dict[str, Callable[[_Said], dict[str, str]]] = {
    "draft-8": _draft_8, "draft-12": _draft_12, "draft-7": _draft_7, "draft-6": _draft_6, "x-ratelimit": _x_ratelimit,
}  # fmt: skip


def _usual(decision: Decision, closed: int) -> dict[str, str]:
    """draft-8 where nothing else is said: the way of nearly all answers, in 2 µs and not 4."""
    named: dict[str, tuple[str, int, int, str]] = {}
    for one in decision.policies:
        named.setdefault(one.label, (one.label, one.quota, one.window, one.unit))
    policy = _policies(tuple(named.values()))
    name, left = _quoted(decision.policies[0].label), _integer(decision.remaining)
    if decision.allowed:
        return {"RateLimit-Policy": policy, "RateLimit": f"{name};r={left};t={_seconds(decision.reset_after)}"}
    wait = retry_after(decision.retry_after, closed)
    return {"Retry-After": str(wait), "RateLimit-Policy": policy, "RateLimit": f"{name};r={left};t={wait}"}


# -- structured fields ---------------------------------------------------------------------------------------


def _state(said: _Said) -> str:
    """Both generations in one item, where both are wanted: readers ignore parameters they do not know."""
    parameters: dict[str, Any] = {}
    if "draft-8" in said.styles:
        parameters |= {"r": said.remaining, "t": said.reset}
    if "draft-12" in said.styles:
        parameters |= {"a": said.remaining, "w": said.reset}
        if said.cost is not None:
            parameters["c"] = _integer(said.cost)
    name = said.decision.policies[0].label
    if said.pk is not None:
        return _text([(name, {**parameters, "pk": said.pk})])
    # Whole numbers are written as they stand; the library takes 15 µs over what is the only change between answers.
    return _quoted(name) + "".join([f";{parameter}={number}" for parameter, number in parameters.items()])


@lru_cache(1024)
def _quoted(name: str) -> str:
    return _text([(name, {})])


def _named(said: _Said) -> str:
    shown = tuple((policy.label, policy.quota, policy.window, policy.unit) for policy in said.policies.values())
    return _policies(shown) if said.pk is None else _policies.__wrapped__(shown, said.pk)


@lru_cache(1024)
def _policies(shown: tuple[tuple[str, int, int, str], ...], pk: bytes | None = None) -> str:
    """Remembered where it is the same in every answer: writing it takes 10 µs."""
    items = []
    for name, quota, window, unit in shown:
        parameters: dict[str, Any] = {"q": _integer(quota), "w": _integer(window)}
        if unit != "requests":
            parameters["qu"] = unit
        if pk is not None:
            parameters["pk"] = pk
        items.append((name, parameters))
    return _text(items)


def _unnamed(said: _Said) -> str:
    return _text([(_integer(policy.quota), {"w": _integer(policy.window)}) for policy in said.decision.policies])


def _text(structure: Any) -> str:
    try:
        return http_sf.ser(structure)
    except ValueError as error:
        raise ThrottleError(f"no HTTP field can say {structure!r}: {error}") from error
