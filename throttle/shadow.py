"""Shadow mode: limits are counted as ever, on keys apart, and refuse nothing; so one sees what they would do."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from throttle.decision import Decision
from throttle.outage import Seldom

logger = logging.getLogger(__name__)


class Shadow:
    """Lets pass what was refused, and counts it.

    Args:
        scope: for the log.
        clock: monotonic seconds.
    """

    def __init__(self, scope: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._scope, self._seldom = scope, Seldom(clock)

    @property
    def count(self) -> int:
        """What would have been refused."""
        return self._seldom.count

    def of(self, said: Decision) -> Decision:
        """The same, let pass; nobody is told to wait."""
        if not said.allowed:
            self.note(f"{said.policies[0].label}, for {said.retry_after:.3f} s")
        return said._replace(allowed=True, retry_after=0.0, delay=0.0)

    def note(self, why: object) -> None:
        """Count it, and tell of it once a minute."""
        if self._seldom():
            logger.warning(
                "scope %s: in shadow mode, so nothing is refused; %d would have been so far: %s",
                self._scope, self._seldom.count, why,
            )  # fmt: skip
