"""What an upstream says of its limits: every dialect of `fields`, and what is found in the wild.

Sources: RFC 9110 section 10.2.3 (Retry-After), RFC 9651 (structured fields), RFC 9111 section 5.1 (Age),
draft-ietf-httpapi-ratelimit-headers -00 to -11 and the branch behind -12. In the wild: `X-RateLimit-*`,
`X-Rate-Limit-*`, both with what they count at the end (`-requests`, `-tokens`, `-minute`),
`X-RateLimit-Reset-After`, `anthropic-ratelimit-*`, `X-Shopify-Shop-Api-Call-Limit`, `Retry-After-Ms`.
Waits are read as `moments` has them.

An answer is input: nothing here raises, malformed fields are ignored, and no wait is longer than `max_pause`.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import http_sf

from throttle.http.moments import moment_of, seconds_until
from throttle.http.received import received

#: Seconds. An upstream that says "tomorrow" is asked again in an hour: wrong fields must not stop work for good.
MAX_PAUSE = 3600.0

#: Seconds in a leap year: no reset is believed to be further away.
_YEAR = 366 * 86400.0
_LONGEST = 8192  # characters of a value; servers refuse longer ones
_LARGEST = 10**15 - 1
_REFUSED = (429, 503)

_TRIPLE = re.compile(r"(?:x-)?rate-?limit-(?P<what>limit|remaining|reset)(?:-(?P<name>.+))?", re.DOTALL)
_NAMED = re.compile(r"(?:[a-z0-9]+-)?ratelimit-(?P<name>.+)-(?P<what>limit|remaining|reset)", re.DOTALL)
_CALLS = re.compile(r"(\d{1,15})/(\d{1,15})", re.ASCII)
_COUNT = re.compile(r"(\d{1,15})(?:\.0*)?(?:\s*;.*)?", re.ASCII)


class Told(NamedTuple):
    """What was told of one limit; `None` where nothing was.

    Attributes:
        name: "" where it has none.
        quota: units per window.
        window: seconds.
        unit: what is counted.
        remaining: units left.
        reset_after: seconds until there are more.
    """

    name: str = ""
    quota: int | None = None
    window: int | None = None
    unit: str = "requests"
    remaining: int | None = None
    reset_after: float | None = None

    @property
    def left(self) -> tuple[bool, float, int, float, bool]:
        """Sorts the limit that will refuse first to the front: by share, number and reset; unknown ones last."""
        remaining = self.remaining or 0
        share = 1.0 if remaining and not self.quota else remaining / (self.quota or 1)
        return self.remaining is None, share, remaining, -(self.reset_after or 0.0), self.quota is None


class Upstream(NamedTuple):
    """What an upstream told; `None` where it told nothing.

    Attributes:
        limit: units per window of the limit nearest to empty.
        remaining: its units left.
        reset_after: seconds until it has more.
        retry_after: seconds for which `Retry-After` asks to stay away, at most `max_pause`.
        wait: seconds to stay away, at most `max_pause`: 0 if nothing asks for it, `None` if the request was
            refused, or no units are left, and nothing says for how long.
        policies: all limits told of, the one nearest to empty first.
    """

    limit: int | None = None
    remaining: int | None = None
    reset_after: float | None = None
    retry_after: float | None = None
    wait: float | None = 0.0
    policies: tuple[Told, ...] = ()


def read(
    headers: object, *, now: float | None = None, status: int | None = None, max_pause: float = MAX_PAUSE
) -> Upstream:
    """What an answer says of its sender's limits. Never raises; what is malformed or comes from a cache is ignored.

    Args:
        headers: a mapping of names to values (or lists of values), or pairs of them; text or bytes.
        now: seconds since the epoch, from which times are counted. Unless said, the answer's own `Date`, so
            that both are of one clock; without that, this machine's.
        status: of the answer: 429 and 503 are refusals, and below 400 `Retry-After` is about something else.
        max_pause: seconds; no wait is longer.
    """
    told = _readable(received(headers))
    if any(value.isascii() and value.isdigit() and value.strip("0") for value in told.get("age", ())):
        return Upstream(wait=None if status in _REFUSED else 0.0)
    at = _now(told) if now is None else now
    limits = tuple(sorted(_limits(told, at), key=lambda limit: limit.left))
    asked = _retry_after(told, at)
    asked = None if asked is None else min(asked, max_pause)
    first = limits[0] if limits else Told()
    wait = _wait(first, asked, status)
    return Upstream(
        first.quota, first.remaining, first.reset_after, asked, None if wait is None else min(wait, max_pause), limits
    )


def spread(wait: float, rng: Callable[[], float] = random.random, share: float = 0.1) -> float:
    """`wait`, or somewhat longer, so that a fleet that was told one time does not come back in one instant.

    Never shorter. Longer by up to `share` of it, at least up to 1 s: after a wait of 1 s, a thousand clients
    are still a millisecond apart. No wait stays none.

    Args:
        wait: seconds.
        rng: gives numbers from 0 to 1.
        share: of the wait.
    """
    return wait + rng() * max(1.0, wait * share) if wait > 0 else wait


def _readable(told: dict[str, list[str]]) -> dict[str, list[str]]:
    return {
        name: [value for value in values if len(value) <= _LONGEST] for name, values in told.items() if len(name) < 100
    }


def _wait(first: Told, asked: float | None, status: int | None) -> float | None:
    if asked is not None and (status is None or status >= 400):
        return asked
    return first.reset_after if status in _REFUSED or first.remaining == 0 else 0.0


def _now(told: dict[str, list[str]]) -> float:
    local = time.time()
    dates = (moment_of(value, local) for value in told.get("date", ()))
    return next((date for date in dates if date is not None), local)


def _retry_after(told: dict[str, list[str]], now: float) -> float | None:
    """The longest, should there be several: whoever comes too early is refused again."""
    waits = [_until(value, now) for value in told.get("retry-after", ())]
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        waits += [_until(f"{value}ms", now) for value in told.get(name, ())]
    return max((wait for wait in waits if wait is not None), default=None)


def _until(value: str, now: float) -> float | None:
    """Of one field, or of several that a library has joined with commas; dates have a comma themselves."""
    whole = seconds_until(value, now)
    if whole is not None or "," not in value:
        return whole
    waits = (seconds_until(part.strip(), now) for part in value.split(","))
    return max((wait for wait in waits if wait is not None), default=None)


# -- limits --------------------------------------------------------------------------------------------------


def _limits(told: dict[str, list[str]], now: float) -> list[Told]:
    found: dict[str, Told] = {}
    unnamed = []
    for one in (*_policies(told), *_states(told), *_triples(told, now), *_calls(told)):
        if one[1:] == Told()[1:]:  # of which nothing could be read
            continue
        if one.name or one.window is None:
            found[one.name] = _both(found.get(one.name, Told(one.name)), one)
        else:
            unnamed.append(one)
    return list(_with_windows(found, unnamed).values()) + unnamed


def _both(one: Told, other: Told) -> Told:
    """One limit told of twice; of two opinions the less generous."""
    return Told(
        one.name,
        _least(one.quota, other.quota),
        _least(one.window, other.window),
        other.unit if one.unit == "requests" else one.unit,
        _least(one.remaining, other.remaining),
        max((wait for wait in (one.reset_after, other.reset_after) if wait is not None), default=None),
    )


def _least(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _with_windows(found: dict[str, Told], unnamed: list[Told]) -> dict[str, Told]:
    """The limit without a name is the policy of its quota, where there is one (draft-06, draft-07)."""
    state = found.get("")
    same = next((policy for policy in unnamed if state and state.quota == policy.quota), None)
    if state and same:
        unnamed.remove(same)
        found[""] = _both(state, same)
    return found


def _policies(told: dict[str, list[str]]) -> Iterator[Told]:
    """`"burst";q=100;w=60` (draft-08 and later) and `100;w=60` (before)."""
    for item, parameters in _items(told, "ratelimit-policy"):
        name = _name(item)
        quota = _whole(parameters.get("q")) if name is not None else _whole(item)
        if quota is not None:
            window, unit = _whole(parameters.get("w")), parameters.get("qu")
            yield Told(name or "", quota, window or None, unit if isinstance(unit, str) else "requests")


def _states(told: dict[str, list[str]]) -> Iterator[Told]:
    """`"burst";r=50;t=30` (draft-08), `"burst";a=50;w=30` (draft-12), `limit=100, remaining=50, reset=5` (draft-07)."""
    items = _items(told, "ratelimit")
    for item, parameters in items:
        name, remaining = _name(item), _whole(parameters.get("r", parameters.get("a")))
        if name is not None and remaining is not None:
            yield Told(name, remaining=remaining, reset_after=_reset(parameters.get("t", parameters.get("w"))))
    if not items and isinstance(state := _parsed(told, "ratelimit", "dictionary"), dict):
        values = {key: member[0] for key, member in state.items()}
        numbers = {key: _whole(values.get(key)) for key in ("limit", "remaining", "reset")}
        if any(number is not None for number in numbers.values()):
            yield Told("", numbers["limit"], None, "requests", numbers["remaining"], _reset(numbers["reset"]))


def _triples(told: dict[str, list[str]], now: float) -> Iterator[Told]:
    for field, values in told.items():
        if match := _TRIPLE.fullmatch(field) or _NAMED.fullmatch(field):
            what, name = match["what"], match["name"] or ""
            for value in values:
                if what == "reset":
                    wait = _until(value, now)
                    name = "" if name == "after" else name
                    yield Told(name, reset_after=None if wait is None else min(wait, _YEAR))
                else:
                    yield _counted(name, what, value)


def _counted(name: str, what: str, value: str) -> Told:
    """`100`, and the first of `100, 10;w=1, 50;w=60` (drafts before -04): the limit that ends next."""
    match = _COUNT.fullmatch(value.partition(",")[0].strip())
    number = int(match[1]) if match else None
    if number is None:
        return Told(name)
    unit = "tokens" if "token" in name else "requests"
    return Told(name, quota=number, unit=unit) if what == "limit" else Told(name, unit=unit, remaining=number)


def _calls(told: dict[str, list[str]]) -> Iterator[Told]:
    """`32/40`: used, of so many."""
    for value in told.get("x-shopify-shop-api-call-limit", ()):
        if match := _CALLS.fullmatch(value):
            used, most = int(match[1]), int(match[2])
            yield Told("", most, remaining=max(0, most - used))


# -- structured fields ---------------------------------------------------------------------------------------


def _items(told: dict[str, list[str]], field: str) -> list[tuple[Any, dict[str, Any]]]:
    parsed = _parsed(told, field, "list")
    return (
        [member for member in parsed if isinstance(member, tuple) and not isinstance(member[0], list)] if parsed else []
    )


def _parsed(told: dict[str, list[str]], field: str, kind: str) -> Any:
    """The field, all its lines taken together; `None` if it is malformed."""
    value = ", ".join(told.get(field, ()))
    if not value or len(value) > _LONGEST:
        return None
    try:
        return http_sf.parse(value.encode("ascii"), tltype=kind)
    except Exception:  # whatever a parser makes of what anybody may send
        return None


def _name(item: Any) -> str | None:
    return str(item) if isinstance(item, (str, http_sf.Token)) else None


def _whole(value: Any) -> int | None:
    is_whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST
    return int(value) if is_whole else None


def _reset(value: Any) -> float | None:
    seconds = _whole(value)
    return None if seconds is None else min(float(seconds), _YEAR)
