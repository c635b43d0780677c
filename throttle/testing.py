"""For tests: a clock you set, a store without a server on the very same Lua, an off switch, and oracles.

Needs the extra `testing` (fakeredis with lupa).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

from throttle.aio import AsyncLimiter
from throttle.errors import ThrottleError
from throttle.keys import Namer
from throttle.limiter import Limiter
from throttle.limits import TokenBucket
from throttle.store import Store

#: 2100-01-01. A test clock must be ahead of the real one, by which Redis expires keys.
EPOCH = 4_102_444_800.0


class FakeClock:
    """A clock that stands still until told.

    Args:
        start: seconds since the epoch.
    """

    def __init__(self, start: float = EPOCH) -> None:
        self._micros = round(start * 1e6)

    def advance(self, seconds: float) -> None:
        """Move on, or back if negative."""
        self._micros += round(seconds * 1e6)

    def tick(self, micros: int = 1) -> None:
        """Move by single microseconds."""
        self._micros += micros

    def __call__(self) -> int:
        """Microseconds since the epoch."""
        return self._micros


def fake_store(clock: FakeClock | None = None, **options: Any) -> Store:
    """A store in this process, running the same Lua as in production.

    With a clock, time is what it says. Without one, it is the (possibly frozen: freezegun) time of Python.
    """
    try:
        import fakeredis
    except ImportError as exc:
        raise ThrottleError("fake_store needs fakeredis: pip install 'celery-throttled[testing]'") from exc

    return Store(fakeredis.FakeRedis(**options), Namer(), now=clock)


def fake_limiter(clock: FakeClock | None = None, scope: str = "test") -> Limiter:
    """A `Limiter` that needs no Redis. With a clock, its `wait` moves that on instead of sleeping."""
    limiter = Limiter(fake_store(clock), scope)
    if clock is not None:
        limiter._sleep = clock.advance
    return limiter


def fake_async_limiter(clock: FakeClock | None = None, scope: str = "test") -> AsyncLimiter:
    """The same for an `AsyncLimiter`."""
    import fakeredis

    limiter = AsyncLimiter(fakeredis.FakeAsyncRedis(), scope, now=clock)

    async def advance(seconds: float) -> None:
        cast("FakeClock", clock).advance(seconds)

    if clock is not None:
        limiter._sleep = advance
    return limiter


@contextmanager
def unthrottled(app: Any) -> Iterator[None]:
    """The off switch: within it, the app's tasks are sent and run as if undecorated."""
    from dataclasses import replace

    from throttle.deployment import _deployments, deployment

    try:
        place: Any = deployment(app)
    except ThrottleError:  # no Redis is configured, and none is needed
        _deployments[app] = cast("Any", SimpleNamespace(settings=SimpleNamespace(enabled=False)))
        try:
            yield
        finally:
            _deployments.pop(app)
        return
    before, place.settings = place.settings, replace(place.settings, enabled=False)
    try:
        yield
    finally:
        place.settings = before


def excess(starts: Iterable[float], limit: TokenBucket, tolerance: float = 0.0) -> int:
    """Starts that break the bound: for every interval of length t, starts ≤ burst + rate·t.

    Args:
        starts: seconds, as the downstream saw them; any order.
        limit: the limit they should have kept to.
        tolerance: seconds by which the observer's own times may be off.
    """
    interval, tat, broken = limit.interval / 1e6, float("-inf"), 0
    for start in sorted(starts):
        if tat - (limit.burst - 1) * interval > start + tolerance:
            broken += 1
        tat = max(tat, start) + interval
    return broken
