"""Two clocks: Redis's, which decides, and this machine's monotonic one, by which processes wait."""

from __future__ import annotations

import logging
import time

from redis.exceptions import RedisError

from throttle.store import Store

logger = logging.getLogger(__name__)

SPIN = 0.00015  #: s at the end of a wait that are not slept: a sleep ends up to 0.1 ms late
FRESH = 10.0  #: s for which a sample is good; clocks drift apart by about 0.05 ms in that time


class Clock:
    """Redis's clock as seen from here: how far it is ahead of this machine's monotonic clock."""

    def __init__(self, store: Store) -> None:
        self._store, self._ahead = store, 0
        self._sampled = float("-inf")

    def sample(self, rounds: int = 3) -> None:
        """Ask Redis for the time; the quickest answer is the most exact, to half its round trip."""
        self._sampled, best = time.monotonic(), float("inf")
        try:
            for _ in range(rounds):
                before = time.monotonic_ns() // 1000
                seconds, micros = self._store.client.time()
                after = time.monotonic_ns() // 1000
                if after - before < best:
                    best = after - before
                    self._ahead = int(seconds) * 10**6 + int(micros) - (before + after) // 2
        except (RedisError, OSError) as exc:
            logger.debug("cannot ask Redis for the time: %s", exc)

    def local(self, moment: int, most: float) -> float:
        """A moment of Redis's clock (µs) on this machine's monotonic clock (s), at most `most` s from now.

        The bound is for a clock that has stepped since the last sample.
        """
        now = time.monotonic()
        if now - self._sampled > FRESH:
            self.sample()
        return min((moment - self._ahead) / 1e6, now + most)


def sleep_until(moment: float) -> None:
    """Sleep on the monotonic clock; the last bit is spun, which is a tenth of a millisecond of work."""
    left = moment - time.monotonic()
    if left > SPIN:
        time.sleep(min(left, 60.0) - SPIN)
    while time.monotonic() < moment and left <= 60.0:
        pass
