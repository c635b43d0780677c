"""What can go wrong, on one screen.

"Not yet" is no error: it is a `Decision` (requests) or a parked task (tasks).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from throttle.decision import Decision


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
        super().__init__(cost, capacity, key)  # result backends make it anew of these
        self.cost, self.capacity, self.key = cost, capacity, key

    def __str__(self) -> str:
        whom = f" for key {shorten(self.key)!r}" if self.key is not None else ""
        remedy = f"it could never pass; raise burst to {self.cost} or split the work"
        return f"cost {self.cost} exceeds capacity {self.capacity}{whom}: {remedy}"


class BacklogFull(ThrottleError):
    """The backlog is beyond its bound (`max_wait`, `max_backlog`): the task was not accepted.

    Attributes:
        task: the task's name.
        wait: seconds until it would have started.
        retry_after: seconds until it would be accepted, as the backlog goes down.
    """

    def __init__(self, task: str, wait: float, retry_after: float) -> None:
        super().__init__(task, wait, retry_after)  # result backends make it anew of these
        self.task, self.wait, self.retry_after = task, wait, retry_after

    def __str__(self) -> str:
        bounds = f"{self.task} would wait {self.wait:.1f} s, beyond its max_wait or max_backlog"
        return f"{bounds}; try again in {self.retry_after:.1f} s"


class Throttled(ThrottleError):
    """A limit refused a call (a decorated function's, or a `slot`), or `wait` would take longer than it may.

    Attributes:
        decision: the limiter's answer.
        retry_after: seconds until the same would be allowed; infinite while closed.
    """

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision)
        self.decision = decision

    @property
    def retry_after(self) -> float:
        """As the decision says."""
        return self.decision.retry_after

    def __str__(self) -> str:
        limit = f"{self.decision.policies[0].label}: " if self.decision.policies else ""
        if self.retry_after == float("inf"):
            return f"{limit}closed, nothing passes until its rate is changed"
        return f"{limit}no more for now; try again in {self.retry_after:.3f} s"


class StoreUnavailable(ThrottleError, ConnectionError):
    """Redis did not answer, or not in time."""


def shorten(text: str, length: int = 64) -> str:
    """`text`, cut: identities may be long, and a message is no place for all of it."""
    return text if len(text) <= length else text[: length - 1] + "…"
