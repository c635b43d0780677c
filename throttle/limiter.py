"""Limits in request code: ask, and know when to come back."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import redis

from throttle.decision import Decision
from throttle.errors import ThrottleError
from throttle.keys import Namer
from throttle.limits import TokenBucket, check_units
from throttle.store import Store


class Limiter:
    """Asks the limits of one scope; every answer is one atomic step in Redis and one round trip.

    Args:
        redis_or_url: `redis://`, `rediss://` or `unix://` URL, a `redis.Redis`, or a factory of one.
        scope: what shares buckets.
        namer: names of the keys, where another prefix is wanted.
        timeout: seconds one decision may take.
        now: test clock giving µs since the epoch.
    """

    def __init__(
        self,
        redis_or_url: str | redis.Redis | Callable[[], redis.Redis] | Store,
        scope: str = "default",
        *,
        namer: Namer | None = None,
        timeout: float = 0.25,
        now: Callable[[], int] | None = None,
    ) -> None:
        self.scope = scope
        self._store = (
            redis_or_url if isinstance(redis_or_url, Store) else Store(redis_or_url, namer, timeout=timeout, now=now)
        )
        self._prefix = self._store.namer.scope(scope) + "b:"
        self._identity = self._store.namer.identity

    def acquire(self, *limits: TokenBucket, key: object = None, cost: int = 1) -> Decision:
        """Take `cost` units from every limit, or from none; a refusal changes nothing.

        Args:
            limits: the policies; with none, or only unlimited ones, the answer is yes without Redis.
            key: whom to count apart, for limits that do not name a key of their own.
            cost: units to take.

        Raises:
            CostExceedsLimit: more than a limit can ever hold.
            InvalidRate: a cost that is no whole number.
            StoreUnavailable: Redis did not answer.
        """
        return self._ask("take", limits, key, cost)

    def peek(self, *limits: TokenBucket, key: object = None, cost: int = 1) -> Decision:
        """What `acquire` would answer, changing nothing."""
        return self._ask("peek", limits, key, cost)

    def refund(self, *limits: TokenBucket, key: object = None, cost: int = 1) -> None:
        """Give units back that were not used; never beyond full."""
        active = [limit for limit in limits if limit.rate is not None]
        args = [item for limit in active for item in (limit.interval, limit.keep, check_units(cost))]
        if active:
            self._store.run("refund", [self._bucket(limit, key) for limit in active], args)

    def reset(self, *limits: TokenBucket, key: object = None) -> None:
        """Forget what was taken: the buckets are as new."""
        active = [limit for limit in limits if limit.rate is not None]
        if active:
            self._store.client.delete(*(self._bucket(limit, key) for limit in active))

    def _bucket(self, limit: TokenBucket, key: object) -> str:
        if callable(limit.key):
            raise ThrottleError("a limit with a callable key is for tasks; give acquire() the key itself")
        whom = limit.key if limit.key is not None else key
        return f"{self._prefix}{policy(limit)}|{'-' if whom is None else self._identity(whom)}"

    def _ask(self, mode: str, limits: tuple[TokenBucket, ...], key: object, cost: int) -> Decision:
        active = [limit for limit in limits if limit.rate is not None]
        if not active:
            return Decision(True, 0, 0, 0.0, 0.0)
        args: list[Any] = [mode]
        for limit in active:
            if limit.interval:
                limit.check_cost(check_units(cost), None if key is None else str(key))
            args += (limit.interval, limit.burst, limit.fresh, limit.keep, cost)
        reply = self._store.run("acquire", [self._bucket(limit, key) for limit in active], args)
        return _decision(active, reply)


@lru_cache(1024)
def policy(limit: TokenBucket) -> str:
    """A limit's name as it stands in Redis; without one, what it says."""
    return quote(limit.name or str(limit), safe=" ,").replace(" ", "")


def _decision(limits: list[TokenBucket], reply: list[int]) -> Decision:
    allowed, wait, which = reply[0], reply[1], reply[2]
    names = tuple(limit.name or str(limit) for limit in limits)
    if which > 1:
        names = (names[which - 1], *names[: which - 1], *names[which:])
    return Decision(
        allowed == 1,
        limits[which - 1].burst,
        reply[1 + 2 * which],
        wait / 1e6 if wait >= 0 else float("inf"),
        reply[2 + 2 * which] / 1e6,
        names,
    )
