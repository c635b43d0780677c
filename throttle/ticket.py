"""What travels with a message: our one header on the wire, and what the gate hands to the pool process."""

from __future__ import annotations

from typing import Any, NamedTuple

#: The only thing that a wait adds to a message.
HEADER = "throttle"

#: Our header of a message published while Redis did not answer: it may be parked as well.
MAYBE = "?"

#: Where a request holds what the gate handed over; never on the wire.
HANDED = "throttle_handed"


class Ticket(NamedTuple):
    """Says which release a message is: "<number> <slot> <scope> <entry id>".

    Attributes:
        number: of the release; only the copy with the current one may start.
        slot: µs since the epoch, by Redis's clock, from when it may start.
        scope: as it stands in Redis.
        id: of the entry; may hold spaces, so it is last.
    """

    number: str
    slot: int
    scope: str
    id: str

    def __str__(self) -> str:
        return f"{self.number} {self.slot} {self.scope} {self.id}"

    @classmethod
    def parse(cls, header: Any) -> Ticket | None:
        """Read a header; `None` for none, and for what is none of ours."""
        parts = header.split(" ", 3) if isinstance(header, str) and header.isprintable() else ()
        if len(parts) < 4 or not all(_digits(part) for part in parts[:2]):
            return None
        return cls(parts[0], int(parts[1]), parts[2], parts[3])


class Handed(NamedTuple):
    """From gate to pool process.

    Attributes:
        moment: monotonic; when the task may start, or, if calm, until when.
        calm: its start is charged already.
        original: body, content type and encoding, and names of the headers, should a calm one come too late.
        full: seconds that it would wait, and that the backlog is beyond its bounds: the task fails.
    """

    moment: float
    calm: bool = False
    original: tuple[Any, ...] | None = None
    full: tuple[float, float] | None = None


def stripped(headers: dict[str, Any] | None) -> dict[str, Any]:
    """Headers without ours: Celery hands those of a task on to its retries."""
    return {name: value for name, value in (headers or {}).items() if name not in (HEADER, HANDED)}


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 18
