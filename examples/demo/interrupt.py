"""Ctrl-C and kill end the demo at its next pause, at most 0.1 s later; so no process starts unnoticed."""

from __future__ import annotations

import signal
import time

_received: list[int] = []


class Interrupted(Exception):
    """The demo is to end.

    Attributes:
        exit_code: as a shell reports a process that this signal ended.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.exit_code = 128 + signum


def watch() -> None:
    """From now on signals are noted; a second Ctrl-C does not stop the clearing up."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signal.signal(getattr(signal, name), lambda signum, _: _received.append(signum))


def pause(seconds: float = 0.05) -> None:
    """Sleep. All waiting in the demo is done here.

    Raises:
        Interrupted: a signal has come.
    """
    time.sleep(seconds)
    if _received:
        raise Interrupted(_received[0])
