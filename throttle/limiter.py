"""Limits in request code: ask, and know when to come back."""

from __future__ import annotations

import math
from collections.abc import Callable

import redis

from throttle.decision import Decision
from throttle.errors import InvalidRate, ThrottleError
from throttle.keys import Namer
from throttle.limits import TokenBucket, check_units, stored_name
from throttle.store import Store

#: The answer where there is no limit.
UNLIMITED = Decision(True, 0, 0, 0.0, 0.0)


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
        args = [item for limit in active for item in (limit.interval, limit.burst, limit.keep, check_units(cost))]
        if active:
            self._store.run("refund", [self._bucket(limit, key) for limit in active], args)

    def reset(self, *limits: TokenBucket, key: object = None) -> None:
        """Forget what was taken: the buckets are as new."""
        active = [limit for limit in limits if limit.rate is not None]
        if active:
            self._store.command("DEL", *(self._bucket(limit, key) for limit in active))

    def _ask(self, mode: str, limits: tuple[TokenBucket, ...], key: object, cost: int) -> Decision:
        if len(limits) != 1:
            return self._ask_all(mode, limits, key, cost)
        limit = limits[0]
        if not _counts(limit, key, cost):
            return UNLIMITED
        text = f"{mode} {self._store.now() or '-'} {limit.packed}{cost}"
        return _decision(limits, cost, self._store.ask("acquire", (self._bucket(limit, key),), text))

    def _ask_all(self, mode: str, limits: tuple[TokenBucket, ...], key: object, cost: int) -> Decision:
        active, buckets, texts = [], [], []
        for limit in limits:
            if _counts(limit, key, cost):
                active.append(limit)
                buckets.append(self._bucket(limit, key))
                texts.append(f"{limit.packed}{cost}")
        if len(active) < 2:
            return self._ask(mode, tuple(active), key, cost) if active else UNLIMITED
        if len(set(buckets)) < len(buckets):
            raise InvalidRate(f"{', '.join(limit.label for limit in active)}: each limit needs a name of its own")
        text = f"{mode} {self._store.now() or '-'} {';'.join(texts)}"
        which, wait, remaining, reset = map(int, self._store.ask("acquire_all", buckets, text).split())
        first = active.pop(which - 1)
        policies = (first, *active)
        return Decision(wait == 0, first.burst, remaining, wait / 1e6 if wait >= 0 else math.inf, reset / 1e6, policies)

    def _bucket(self, limit: TokenBucket, key: object) -> str:
        whom = key if limit.key is None else _whom(limit, key)
        policy = limit.__dict__.get("_policy") or _policy(limit)
        return f"{self._prefix}{policy}|{'-' if whom is None else self._identity(whom)}"


def _counts(limit: TokenBucket, key: object, cost: int) -> bool:
    """Whether there is such a limit at all; raises if it could never let the cost pass."""
    if not isinstance(limit, TokenBucket):
        raise TypeError(f'{limit!r}: say TokenBucket("5/min") for a rate')
    if limit.rate is None:
        return False
    if type(cost) is not int or not 0 <= cost <= limit.burst:
        check_units(cost)
        if limit.interval:
            limit.check_cost(cost, None if key is None else str(key))
    return True


def _whom(limit: TokenBucket, key: object) -> object:
    """Whom a limit with a key of its own counts."""
    if callable(limit.key) or "{" in str(limit.key):  # made of a task's arguments there, given here
        if key is None:
            raise ThrottleError(f"limit {limit.label!r} counts each {limit.key!r} apart: acquire() needs a key")
        return key
    return limit.key


def _policy(limit: TokenBucket) -> str:
    """A limit's name as it stands in Redis; without one, what it says. Remembered: it is asked every time."""
    policy = stored_name(limit.name or str(limit).replace(" ", ""))
    limit.__dict__["_policy"] = policy
    return policy


def _decision(limits: tuple[TokenBucket, ...], cost: int, reply: int) -> Decision:
    """What the time until the bucket is full says, as lib/gcra has it; below zero it is a refusal."""
    limit = limits[0]
    interval, burst = limit.interval, limit.burst
    if reply >= 0:
        return Decision(True, burst, max(0, burst + -reply // interval), 0.0, reply / 1e6, limits)
    reset = -1 - reply
    if not interval:
        return Decision(False, burst, 0, math.inf, reset / 1e6, limits)
    wait = reset + (cost - burst) * interval
    return Decision(False, burst, max(0, burst + -reset // interval), wait / 1e6, reset / 1e6, limits)
