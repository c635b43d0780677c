"""How a caller waits for its turn: exactly as long as it was told, and no longer than it may."""

from __future__ import annotations

import math
from collections.abc import Callable

from throttle.decision import Decision
from throttle.errors import Throttled, ThrottleError


class Patience:
    """How long one caller still waits.

    Args:
        max_wait: seconds in all; `None`: as long as it takes.
        clock: monotonic seconds.
        line: whether a place in a `LeakyBucket`'s line must be within `max_wait` too.

    Raises:
        ThrottleError: a `max_wait` that is no number of seconds.
    """

    def __init__(self, max_wait: float | None, clock: Callable[[], float], *, line: bool = True) -> None:
        if max_wait is not None and (isinstance(max_wait, bool) or not isinstance(max_wait, (int, float))):
            raise ThrottleError(f"max_wait must be seconds, or None for as long as it takes, not {max_wait!r}")
        if max_wait is not None and not max_wait >= 0:
            raise ThrottleError(f"max_wait must be 0 or more seconds, not {max_wait!r}")
        self._end = math.inf if max_wait is None else clock() + max_wait
        self._clock, self._line = clock, line

    def pause(self, said: Decision) -> float:
        """Seconds to sleep before the refused question is asked again.

        Raises:
            Throttled: it would have to wait longer, or for ever.
        """
        if math.isinf(said.retry_after) or self._clock() + said.retry_after > self._end:
            raise Throttled(said)
        return said.retry_after

    def late(self, said: Decision) -> Throttled | None:
        """What to raise, once it is given back, if its place in the line is too far behind."""
        over = self._clock() + said.delay - self._end
        return Throttled(said._replace(allowed=False, retry_after=over)) if self._line and over > 0 else None


def patience(wait: bool | float, clock: Callable[[], float]) -> Patience:
    """What `wait=` of a decorator or slot means: not at all, as long as it takes, or seconds at most.

    A place in a line that a `LeakyBucket` gave is waited for in any case: that is what its depth is for.
    """
    if isinstance(wait, bool):
        return Patience(None if wait else 0, clock, line=False)
    return Patience(wait, clock)
