"""Two clocks: Redis's, which decides, and this machine's monotonic one, by which processes wait."""

from __future__ import annotations

import logging
import math
import time

from redis.exceptions import RedisError

from throttle.store import Store

logger = logging.getLogger(__name__)

SPIN = 0.00015  #: s at the end of a wait that are not slept: a sleep ends up to 0.1 ms late
FRESH = 10.0  #: s for which what is known is good enough for a wait that need not be exact
SLEW = 500e-6  #: s per s that two clocks may drift apart: what Linux slews a clock by at most


class Clock:
    """Redis's clock as seen from here: between which bounds it is ahead of this machine's monotonic clock.

    Each answer that tells Redis's time gives two, as it was given after the question and before it was heard
    (Marzullo's intersection, as NTP has it); the quickest answers narrow them most, and the slow ones do no harm.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known = (-math.inf, math.inf, -math.inf)  #: ahead at least, at most (s); as of (monotonic, s)
        self._usual = 0.001  #: s between the bounds, as a rule

    def hear(self, asked: float, heard: float, now: int) -> None:
        """Redis's time was `now` (µs) at some moment between these two (monotonic, s)."""
        least, most, last = self._known
        after, before = now / 1e6 - heard, now / 1e6 - asked
        drift = SLEW * max(0.0, heard - last)
        least, most = max(least - drift, after), min(most + drift, before)
        if least > most:  # a clock was set, or another server answers
            least, most = after, before
        self._known = (least, most, heard)
        self._usual = min(most - least, 1.02 * self._usual)  # a route that became longer is the rule fifty answers on

    def forget(self) -> None:
        """Another server may answer from now on: it is known by its own answers."""
        self._known = (-math.inf, math.inf, -math.inf)

    def sample(self, rounds: int = 3) -> None:
        """Ask Redis for the time."""
        try:
            for _ in range(rounds):
                asked = time.monotonic()
                seconds, micros = self._store.client.time()
                self.hear(asked, time.monotonic(), int(seconds) * 10**6 + int(micros))
        except (RedisError, OSError) as exc:
            logger.debug("cannot ask Redis for the time: %s", exc)

    def local(self, moment: int, most: float) -> float:
        """A moment of Redis's clock (µs) on this machine's monotonic clock (s), at most `most` s from now.

        The bound is for a clock that has stepped since it was last heard.
        """
        now = time.monotonic()
        if now - self._known[2] > FRESH:
            self.sample()
        ahead, behind, heard = self._known
        told = moment / 1e6 - (ahead + behind) / 2 if heard > -math.inf else math.inf
        return min(told, now + most)

    def due(self, moment: int) -> tuple[float, float]:
        """The same for a moment just heard: not before it, whatever is not known; and when it may already have been.

        The two are the same while no more is unknown than the rule is, for that the others do not know either.
        """
        least, most, _ = self._known
        due = moment / 1e6 - least
        return due, due - max(0.0, most - least - self._usual)


def sleep_until(moment: float) -> None:
    """Sleep on the monotonic clock; the last bit is spun, which is a tenth of a millisecond of work."""
    left = moment - time.monotonic()
    if left > SPIN:
        time.sleep(min(left, 60.0) - SPIN)
    while time.monotonic() < moment and left <= 60.0:
        pass
