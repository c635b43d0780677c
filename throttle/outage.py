"""What a limiter answers while Redis does not: let pass, raise, or count for this process alone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Lock

from throttle.decision import Decision
from throttle.errors import StoreUnavailable, ThrottleError
from throttle.local import Local
from throttle.question import UNLIMITED, Question

logger = logging.getLogger(__name__)

#: What a limiter may do without Redis.
WAYS = ("open", "closed", "local")

EVERY = 60.0  #: s between two lines of the log about one thing

_TEXTS = {
    "open": "scope %s: Redis does not answer, so NOTHING IS LIMITED (%d decisions so far): %s",
    "closed": "scope %s: Redis does not answer, so all that is limited fails (%d decisions so far): %s",
    "local": "scope %s: Redis does not answer, so this process counts for itself (%d decisions so far): %s",
}


class Seldom:
    """Says whether a thing is to be logged: once a minute.

    Args:
        clock: monotonic seconds.
    """

    __slots__ = ("_clock", "_lock", "_next", "count")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock, self._next = clock, Lock(), float("-inf")
        #: How often it was the case.
        self.count = 0

    def __call__(self) -> bool:
        """It is the case once more."""
        with self._lock:
            self.count += 1
            now = self._clock()
            if now < self._next:
                return False
            self._next = now + EVERY
            return True


class Outage:
    """The failure policy of one limiter.

    Args:
        way: "open": all passes. "closed": `StoreUnavailable`. "local": this process keeps to its share of each
            limit, as many processes as were last known to be at it.
        scope: for the log.
        clock: monotonic seconds.
        now: test clock, µs.
    """

    def __init__(
        self,
        way: str,
        scope: str,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], int] | None = None,
    ) -> None:
        if way not in WAYS:
            raise ThrottleError(f"on_store_error={way!r}: say {', '.join(map(repr, WAYS))}")
        self.way, self._scope, self._seldom = way, scope, Seldom(clock)
        self.local = Local(now) if way == "local" else None

    @property
    def count(self) -> int:
        """Questions that Redis did not answer."""
        return self._seldom.count

    def answer(self, question: Question, error: StoreUnavailable) -> Decision:
        """The answer without Redis; raises the error where that is the policy."""
        self.note(error)
        if self.way == "closed":
            raise error
        return self.local.decide(question) if self.local else UNLIMITED

    def note(self, error: StoreUnavailable) -> None:
        """Count it, and tell of it once a minute."""
        if self._seldom():
            logger.error(_TEXTS[self.way], self._scope, self._seldom.count, error)
