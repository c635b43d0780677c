"""Waits as they are written on the wire: seconds, times of day, durations; each becomes seconds from now.

| written | source |
| --- | --- |
| `30`, `0.25` | delay-seconds, RFC 9110 section 10.2.3; fractions are common |
| `Wed, 21 Oct 2026 07:28:00 GMT` | RFC 9110 section 5.6.7, and next its two obsolete forms |
| `Wednesday, 21-Oct-26 07:28:00 GMT`, `Wed Oct 21 07:28:00 2026` | |
| `2026-10-21T07:28:00Z` | RFC 3339 |
| `1792567680`, `1792567680123` | seconds, milliseconds since 1970 |
| `12ms`, `6m0s`, `1h2m3.5s` | Go's durations |

Negative numbers (`-1` is used for "unknown") and anything else are no wait.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone

#: A number beyond this is a time, not a wait: 10**9 s are 31 years, and as a time the year 2001.
EPOCH = 10**9
#: A time beyond this is in milliseconds: in seconds it would be the year 33658.
MILLISECONDS = 10**12

_MONTHS = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6,
    "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12,
}  # fmt: skip
_CLOCK = r"(?P<clock>\d\d:\d\d:\d\d)"
_FLAGS = re.ASCII | re.IGNORECASE
_DATES = (
    re.compile(rf"[a-z]{{3}}, (?P<day>\d\d?) (?P<month>[a-z]{{3}}) (?P<year>\d{{4}}) {_CLOCK} GMT", _FLAGS),
    re.compile(rf"[a-z]{{6,9}}, (?P<day>\d\d)-(?P<month>[a-z]{{3}})-(?P<year>\d\d) {_CLOCK} GMT", _FLAGS),
    re.compile(rf"[a-z]{{3}} (?P<month>[a-z]{{3}}) (?P<day>[ \d]\d) {_CLOCK} (?P<year>\d{{4}})", _FLAGS),
)
_RFC_3339 = re.compile(
    rf"(?P<year>\d{{4}})-(?P<month>\d\d)-(?P<day>\d\d)[T ]{_CLOCK}(?P<fraction>\.\d{{1,12}})?"
    r"(?P<zone>Z|(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d))",
    _FLAGS,
)
_NUMBER = re.compile(r"\d{1,400}(\.\d{1,20})?", re.ASCII)
_DURATION = re.compile(r"(?:\d{1,15}(?:\.\d{1,15})?(?:h|ms|m|us|µs|μs|ns|s))+", re.ASCII)
_PIECE = re.compile(r"([\d.]+)([^\d.]+)", re.ASCII)
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}


def seconds_until(text: str, now: float) -> float | None:
    """Seconds from now, 0 for what is over, infinite for what is beyond all numbers; `None` if it is no wait.

    Args:
        text: one field value.
        now: seconds since the epoch.
    """
    if _NUMBER.fullmatch(text):
        number = float(text)
        if number <= EPOCH:
            return number
        return max(0.0, (number / 1000 if number > MILLISECONDS else number) - now)
    if _DURATION.fullmatch(text):
        return sum(float(count) * _UNITS[unit] for count, unit in _PIECE.findall(text))
    moment = moment_of(text, now)
    return None if moment is None else max(0.0, moment - now)


def moment_of(text: str, now: float) -> float | None:
    """An HTTP-date or RFC 3339 time as seconds since the epoch; `None` if it is neither."""
    try:
        for date in _DATES:
            if match := date.fullmatch(text):
                return _time(_year(match["year"], now), _MONTHS[match["month"].lower()], match)
        if match := _RFC_3339.fullmatch(text):
            east = int(match["hours"] or 0) * 3600 + int(match["minutes"] or 0) * 60
            local = _time(int(match["year"]), int(match["month"]), match) + float(match["fraction"] or 0)
            return local + east if match["sign"] == "-" else local - east
    except (KeyError, ValueError):  # no such month, no such day
        pass
    return None


def _time(year: int, month: int, match: re.Match[str]) -> float:
    hour, minute, second = map(int, match["clock"].split(":"))
    leap = second == 60  # which datetime does not know
    moment = datetime(year, month, int(match["day"]), hour, minute, second - leap, tzinfo=timezone.utc)
    return moment.timestamp() + leap


def _year(digits: str, now: float) -> int:
    """Of two digits, the year that is at most 50 years in the future (RFC 9110 section 5.6.7)."""
    if len(digits) == 4:
        return int(digits)
    this = int(1970 + now / 31556952)  # s in a year of the calendar's cycle
    year = this - this % 100 + int(digits)
    return year - 100 if year > this + 50 else year + 100 if year <= this - 50 else year
