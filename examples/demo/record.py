"""What the provider saw, asked of it while the demo runs, and what follows from it."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import NamedTuple

from examples.demo.processes import Failure


class Arrival(NamedTuple):
    """One SMS, as the provider saw it; `early` is by how many seconds it came before its turn."""

    number: str
    at: float
    accepted: bool
    early: float


@dataclass(frozen=True)
class Record:
    """The provider's record of one run.

    Attributes:
        expected: the numbers to which SMS were submitted.
        arrivals: what arrived, in that order.
        now: the time, by the provider's clock.
    """

    expected: tuple[str, ...]
    arrivals: tuple[Arrival, ...]
    now: float

    @property
    def accepted(self) -> int:
        return sum(arrival.accepted for arrival in self.arrivals)

    @property
    def refused(self) -> int:
        return len(self.arrivals) - self.accepted

    @property
    def waiting(self) -> int:
        """SMS that have not arrived; at the end: that were lost."""
        return len(set(self.expected) - {arrival.number for arrival in self.arrivals})

    @property
    def duplicated(self) -> int:
        return len(self.arrivals) - len({arrival.number for arrival in self.arrivals})

    @property
    def rate(self) -> float:
        """Arrivals in the last second."""
        return float(sum(arrival.at > self.now - 1 for arrival in self.arrivals))

    @property
    def early(self) -> float:
        """Seconds by which the earliest of the accepted came before its turn."""
        return max((arrival.early for arrival in self.arrivals if arrival.accepted), default=0.0)

    def steady_rate(self, burst: int) -> float:
        """Arrivals per second from first to last, those of the burst not counted."""
        times = [arrival.at for arrival in self.arrivals]
        if len(times) <= burst or times[-1] == times[0]:
            return 0.0
        return (len(times) - burst) / (times[-1] - times[0])

    def per_second(self) -> list[tuple[int, int]]:
        """(accepted, refused) in each second.

        The seconds begin half an emission interval (50 ms) before the first arrival: SMS come on the tenths,
        and one that comes on the dot must not fall on an edge.
        """
        seconds: list[list[int]] = []
        for arrival in self.arrivals:
            at = int(arrival.at - self.arrivals[0].at + 0.05)
            seconds.extend([0, 0] for _ in range(at + 1 - len(seconds)))
            seconds[at][not arrival.accepted] += 1
        return [(accepted, refused) for accepted, refused in seconds]


class Recorder:
    """Asks the provider at `address` for its record."""

    def __init__(self, address: str, expected: list[str]) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=10)
        self._expected = tuple(expected)

    def read(self) -> Record:
        """Raises `Failure` if the provider does not answer."""
        try:
            self._connection.request("GET", "/arrivals")
            said = json.load(self._connection.getresponse())
        except (OSError, http.client.HTTPException) as exc:
            raise Failure(f"the SMS provider does not answer: {exc!r}") from exc
        return Record(self._expected, tuple(Arrival(*arrival) for arrival in said["arrivals"]), said["now"])
