"""A circuit breaker: once Redis has failed a few times in a row, one caller a second asks whether it is back."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

FAILURES = 3  #: in a row, until nobody waits for Redis any more
PROBE = 1.0  #: s between two callers that try all the same


class Breaker:
    """Closed, all may ask; open, one caller in `PROBE` seconds. What one of them hears counts for all.

    Threads may share it. The state machine is the usual one (Nygard, *Release It!*): the probe is its half-open state.

    Args:
        failures: failures in a row that open it.
        probe: seconds between two probes.
        clock: monotonic seconds.
    """

    __slots__ = ("_clock", "_failures", "_lock", "_next", "_probe", "failed", "why")

    def __init__(
        self, failures: int = FAILURES, probe: float = PROBE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._failures, self._probe, self._clock = failures, probe, clock
        self._lock, self._next = Lock(), 0.0
        #: Failures in a row; 0 tells those in a hurry that there is nothing to look after.
        self.failed = 0
        #: What the last failure was: those who are not to ask still want to know.
        self.why = ""

    @property
    def open(self) -> bool:
        """Whether callers are answered without Redis."""
        return self.failed >= self._failures

    def admits(self) -> bool:
        """Whether this caller should ask Redis."""
        if not self.open:
            return True
        if self._clock() < self._next:  # without the lock: all but one of those that come are done here
            return False
        with self._lock:
            now = self._clock()
            if now < self._next:
                return False
            self._next = now + self._probe
            return True

    def failure(self, why: object = "") -> None:
        """Redis did not answer."""
        with self._lock:
            self.why = str(why)
            self.failed += 1
            if self.failed == self._failures:
                self._next = self._clock() + self._probe

    def success(self) -> bool:
        """Redis answered; returns whether the breaker was open."""
        with self._lock:
            was_open, self.failed = self.open, 0
            return was_open
