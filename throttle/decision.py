"""The answer to one question: allowed, or wait this long."""

from __future__ import annotations

from typing import NamedTuple


class Decision(NamedTuple):
    """What a limiter answered. True in a condition when allowed.

    Attributes:
        allowed: whether the units were taken (or, for `peek`, would have been).
        limit: capacity of the limit that refused, else of the one nearest to empty, in units.
        remaining: units that limit would still let pass now.
        retry_after: seconds until the same question would be allowed; 0 when allowed, infinite while closed.
        reset_after: seconds until that limit's bucket is full again.
        policies: the name of every limit asked, the deciding one first.
    """

    # A tuple: it is made on every decision, three times as fast as a frozen dataclass (0.4 µs).

    allowed: bool
    limit: int
    remaining: int
    retry_after: float
    reset_after: float
    policies: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.allowed
