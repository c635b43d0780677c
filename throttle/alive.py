"""How many processes ask the limits of one scope: each says every ten seconds that it does."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from typing import Any

from throttle.local import Local

EVERY = 10.0  #: s between two words of one process
SPAN = 30.0  #: s after which a silent one does not count any more

_PROCESS = secrets.token_hex(6)  # with the pid, which forks do not share; of a container's first one it is always 1


class Alive:
    """Says so with the first question of each ten seconds: it needs no thread, and an idle process is silent.

    Args:
        prefix: what the keys of the scope begin with.
        local: who wants to know how many there are.
        clock: monotonic seconds.
    """

    def __init__(self, prefix: str, local: Local, clock: Callable[[], float] = time.monotonic) -> None:
        self._key, self._local = f"{prefix}alive", local
        self._clock, self._next = clock, float("-inf")

    def due(self) -> bool:
        """Whether to say so now; whoever is told yes does."""
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + EVERY
        return True

    def words(self) -> tuple[list[str], tuple[str, str]]:
        """The keys and arguments of the script, but for the time."""
        return [self._key], (f"{_PROCESS}.{os.getpid()}", f"{SPAN * 1e6:.0f}")

    def heard(self, processes: Any) -> None:
        """What the script answered."""
        self._local.processes = max(1, int(processes))
