"""What can go wrong, on one screen.

"Not yet" is no error: it is a `Decision` (requests) or a parked task (tasks).
"""

from __future__ import annotations


class ThrottleError(Exception):
    """Base of all errors of this library; raised itself when something is set up wrongly."""


class InvalidRate(ThrottleError, ValueError):
    """A rate or a limit that cannot be understood or lies outside the supported range."""


class CostExceedsLimit(ThrottleError, ValueError):
    """The cost is more than the limit can ever hold, so waiting would not help.

    Attributes:
        cost: units asked for.
        capacity: units the limit holds at most (its burst).
        key: whom the limit counts apart, or `None`.
    """

    def __init__(self, cost: int, capacity: int, key: str | None = None) -> None:
        self.cost, self.capacity, self.key = cost, capacity, key
        whom = f" for key {shorten(key)!r}" if key is not None else ""
        remedy = f"it could never pass; raise burst to {cost} or split the work"
        super().__init__(f"cost {cost} exceeds capacity {capacity}{whom}: {remedy}")

    def __reduce__(self) -> tuple[type[CostExceedsLimit], tuple[int, int, str | None]]:
        return type(self), (self.cost, self.capacity, self.key)


class BacklogFull(ThrottleError):
    """The backlog is beyond its bound (`max_wait`, `max_backlog`).

    Attributes:
        wait: seconds until the task would have started, as far as known.
    """

    def __init__(self, message: str, wait: float | None = None) -> None:
        self.wait = wait
        super().__init__(message)


class StoreUnavailable(ThrottleError, ConnectionError):
    """Redis did not answer, or not in time."""


def shorten(text: str, length: int = 64) -> str:
    """`text`, cut: identities may be long, and a message is no place for all of it."""
    return text if len(text) <= length else text[: length - 1] + "…"
