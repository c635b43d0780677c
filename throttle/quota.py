"""A quota: so much per hour, day, week or calendar month, in a time zone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from typing import ClassVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from throttle.errors import InvalidRate
from throttle.rates import Rate
from throttle.windows import Counted

#: Seconds of each period, a month as thirty days: what HTTP fields show as its window.
PERIODS = {"hour": 3600, "day": 86400, "week": 7 * 86400, "month": 30 * 86400}

MOST = 10**12
BORDERS = 64


@dataclass(frozen=True, init=False, repr=False)
class Quota(Counted):
    """So many units in each hour, day, week (from Monday) or month of the calendar, in a time zone.

    What a plan allows, not how fast: a refusal says so. Days and months are those of the zone, so a day may
    have 23 or 25 hours.

    Args:
        count: units per period; `None` is no limit, `0` is closed.
        per: "hour", "day", "week" or "month".
        tz: an IANA name ("Europe/Berlin") or a `tzinfo`; UTC unless said.
        key, name: as for other limits.

    Raises:
        InvalidRate: a count, period or zone that is none.
    """

    kind: ClassVar[str] = "quota"

    quota: int = field(init=False, repr=False)  # what tells two apart, as there is no rate
    per: str = field(default="month", kw_only=True)
    tz: str | tzinfo = field(default="UTC", kw_only=True)

    def __init__(
        self,
        count: int | None,
        per: str = "month",
        *,
        tz: str | tzinfo = "UTC",
        key: str | int | Callable[..., object] | None = None,
        name: str | None = None,
    ) -> None:
        if per not in PERIODS:
            raise InvalidRate(f"{per!r} is no period of a quota; say {', '.join(map(repr, PERIODS))}")
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST):
            raise InvalidRate(f"a quota is a whole number of units from 0 to {MOST}, not {count!r}")
        object.__setattr__(self, "per", per)
        object.__setattr__(self, "tz", tz)
        object.__setattr__(self, "_zone", _zone(tz))
        object.__setattr__(self, "_borders", (0, 0, 0))
        rate = None if count is None else Rate.parse(0)  # a month has no rate: `quota` and `per` say it
        self._settle(rate, count or 0, PERIODS[per] * 10**6, key, name)

    def borders(self, now: int) -> tuple[int, int, int]:
        """Where the period of `now` (µs since the epoch) begins and ends, and where the next one ends."""
        known: tuple[int, int, int] = self.__dict__["_borders"]
        if known[0] <= now < known[1]:
            return known
        begin = self._begin(now)
        end = self._next(begin)
        found = (begin, end, self._next(end))
        self.__dict__["_borders"] = found
        return found

    def asked(self, now: int) -> str:
        """With the borders around `now`; should that not be the time of Redis, it says so."""
        begin, end, after = self.borders(now)
        return f"quota {self.quota} {begin} {end} {after} "

    @property
    def interval(self) -> int:
        """For tasks: released unpaced, until it turns out to be used up."""
        return 1 if self.quota else 0

    @property
    def terms(self) -> tuple[object, ...]:
        """As of the others, and its calendar."""
        return (*super().terms, self.per, str(self.tz))

    def declared(self, now: int) -> str:
        """With the borders of the next periods: five years of months, or two days and a half of hours."""
        borders = [*self.borders(now)[:2]]
        while len(borders) < BORDERS:
            borders.append(self._next(borders[-1]))
        return f"quota {self.quota} {' '.join(map(str, borders))}"

    def _begin(self, now: int) -> int:
        at = datetime.fromtimestamp(now // 10**6, self.__dict__["_zone"])
        if self.per == "hour":  # of the zone: some are half an hour off
            offset = at.utcoffset() or timedelta()
            return now - (now + round(offset.total_seconds()) * 10**6) % (3600 * 10**6)
        day = at.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
        if self.per == "week":
            day -= timedelta(days=day.weekday())  # on the calendar: a day of 25 hours is one day
        if self.per == "month":
            day = day.replace(day=1)
        return round(day.timestamp()) * 10**6

    def _next(self, begin: int) -> int:
        """From its middle on, one and a half periods later is the next one, however long days and months are."""
        if self.per == "hour":
            return begin + 3600 * 10**6
        middle = {"day": 12, "week": 84, "month": 15 * 24}[self.per]
        length = {"day": 24, "week": 168, "month": 31 * 24}[self.per]
        return self._begin(begin + (middle + length) * 3600 * 10**6)

    def __repr__(self) -> str:
        said = [repr(None if self.rate is None else self.quota), repr(self.per)]
        said += [f"tz={self.tz!r}"] if str(self.tz) != "UTC" else []
        said += [f"{name}={value!r}" for name in ("key", "name") if (value := getattr(self, name)) is not None]
        return f"Quota({', '.join(said)})"

    def __str__(self) -> str:
        zone = f", {self.tz}" if str(self.tz) != "UTC" else ""
        return f"{self.quota} per {self.per}{zone}" if self.rate is not None else "no limit"


def _zone(tz: str | tzinfo) -> tzinfo:
    if hasattr(tz, "localize"):  # pytz: midnight would have the offset of now
        raise InvalidRate(f"{tz!r} is of pytz, which keeps no offset right; say its name, as in tz='Europe/Berlin'")
    if isinstance(tz, tzinfo):
        return tz
    try:
        return ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError) as exc:
        raise InvalidRate(f"{tz!r} is no time zone here: say an IANA name, as in tz='Europe/Berlin'") from exc
