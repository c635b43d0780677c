"""The grammar of rates: "10/s", "5/30s", "100 per 2 hours", (100, 7200), timedelta; None and 0."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction

from throttle.errors import InvalidRate

#: Supported range: from one per 366 days to 10**6 per second. Outside it a whole number of
#: microseconds, which is what Redis keeps, can no longer tell one rate from another.
SLOWEST = 366 * 86400 * 10**6  # µs per unit
FASTEST = 1  # µs per unit

UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86400),
    **dict.fromkeys(("w", "week", "weeks"), 7 * 86400),
}
_RATE = re.compile(
    r"\s*(?P<count>\d{1,18}(?:\.\d{1,40})?)\s*(?:/|\s+per\s+)\s*"
    r"(?P<times>\d{1,18}(?:\.\d{1,40})?)?\s*(?P<unit>[a-z]+)\s*",
    re.ASCII | re.IGNORECASE,
)
_COUNT = re.compile(r"\d{1,18}(\.\d{1,40})?", re.ASCII)
EXAMPLES = '"10/s", "5/30s", "100 per 2 hours", (100, 7200)'

#: What `Rate.parse` takes.
RateLike = "str | int | float | tuple[float, float | timedelta] | Rate | None"


@dataclass(frozen=True, slots=True)
class Rate:
    """`count` units per `period` seconds; a count of 0 is closed. Prints itself as people say it."""

    count: Fraction
    period: Fraction

    @classmethod
    def parse(cls, rate: object) -> Rate | None:
        """Understand a rate; `None` is no limit, `0` is closed.

        Raises:
            InvalidRate: naming the text and showing what is accepted.
        """
        if rate is None or isinstance(rate, Rate):
            return rate
        if isinstance(rate, str):
            return cls._from_text(rate)
        if isinstance(rate, tuple) and len(rate) == 2 and not any(isinstance(n, Fraction) for n in rate):
            return cls._checked(rate[0], rate[1], rate)
        if isinstance(rate, (int, float)) and not isinstance(rate, bool) and rate == 0:
            return cls(Fraction(0), Fraction(1))
        raise InvalidRate(
            f"{rate!r} is not a rate; {_remedy(rate) or f'say {EXAMPLES}, None (no limit) or 0 (closed)'}"
        )

    @classmethod
    def _from_text(cls, text: str) -> Rate:
        if text.strip() == "0":
            return cls(Fraction(0), Fraction(1))
        match = _RATE.fullmatch(text) if text.isascii() else None
        unit = UNITS.get(match["unit"].lower()) if match else None
        if match is None or unit is None:
            raise InvalidRate(f"{text!r} is not a rate; {_remedy(text, match) or f'say {EXAMPLES}'}")
        return cls._checked(Fraction(match["count"]), Fraction(match["times"] or 1) * unit, text)

    @classmethod
    def _checked(cls, count: object, period: object, said: object) -> Rate:
        if isinstance(period, timedelta):
            period = period.total_seconds()
        numbers = (count, period)
        if any(isinstance(n, bool) or not isinstance(n, (int, float, Fraction)) for n in numbers):
            raise InvalidRate(f"{said!r} is not a rate; say {EXAMPLES}")
        if not (0 <= count < 10**18 and 0 < period < 10**18):  # type: ignore[operator]
            raise InvalidRate(f"{said!r} is not a rate: a count of at least 0 per a period above 0")
        rate = cls(Fraction(str(count)), Fraction(str(period)))
        if rate.count and not FASTEST <= Fraction(rate.period * 10**6, 1) / rate.count <= SLOWEST:
            raise InvalidRate(f"{said!r} is outside the supported range, 1 per 366 days to 1000000 per second")
        return rate

    @property
    def interval(self) -> int:
        """Emission interval in whole microseconds, rounded up (never faster than said); 0 when closed.

        The rounding costs at most 1 % up to 10,000/s; above that, rates whose interval is no whole
        number of microseconds run slower than said (300,000/s becomes 250,000/s).
        """
        return math.ceil(self.period * 10**6 / self.count) if self.count else 0

    def __str__(self) -> str:
        if not self.count:
            return "0"
        for unit, seconds in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
            if self.period == seconds:
                return f"{_plain(self.count)}/{unit}"
        return f"{_plain(self.count)}/{_plain(self.period)}s"


def _remedy(said: object, match: re.Match[str] | None = None) -> str:
    """What whoever wrote this most likely meant; '' if there is no telling."""
    if match:
        return f"{match['unit']!r} is no unit: say s, min, h, day or week"
    count = str(said).strip() if isinstance(said, (str, int, float)) and not isinstance(said, bool) else ""
    return f'a count needs a unit: did you mean "{count}/s"?' if _COUNT.fullmatch(count) else ""


def _plain(number: Fraction) -> str:
    """The number in decimal digits, all of them: what is printed can be parsed again."""
    places = 0
    while (number * 10**places).denominator != 1:
        places += 1
    digits = str((number * 10**places).numerator).zfill(places + 1)
    return digits[: len(digits) - places] + ("." + digits[-places:] if places else "")
