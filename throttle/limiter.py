"""Limits in request code: ask, and know when to come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis

from throttle.decision import Decision
from throttle.keys import Namer
from throttle.question import OUTSIDE, UNLIMITED, Asked, Question, Scope, decision
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
        self._scope = Scope(self._store.namer, scope, self._store.clock)

    def acquire(self, *limits: Asked, key: object = None, cost: int = 1) -> Decision:
        """Take `cost` units from every limit, or from none; a refusal changes nothing.

        Args:
            limits: limits, or limits for keys of their own (`limit.of(key)`), or callables that are given the key
                and return a limit; with none, or only unlimited ones, the answer is yes without Redis.
            key: whom to count apart, for limits that do not name a key of their own.
            cost: units to take.

        Raises:
            CostExceedsLimit: more than a limit can ever hold.
            InvalidRate: a cost that is no whole number.
            StoreUnavailable: Redis did not answer.
        """
        question = self._scope.question("take", limits, key, cost)
        return UNLIMITED if question is None else decision(question, self._ask(question))

    def peek(self, *limits: Asked, key: object = None, cost: int = 1) -> Decision:
        """What `acquire` would answer, changing nothing."""
        question = self._scope.question("peek", limits, key, cost)
        return UNLIMITED if question is None else decision(question, self._ask(question))

    def refund(self, *limits: Asked, key: object = None, cost: int = 1) -> None:
        """Give units back that were not used; never beyond full."""
        question = self._scope.refund(limits, key, cost)
        if question:
            self._ask(question)

    def reset(self, *limits: Asked, key: object = None) -> None:
        """Forget what was taken: the buckets are as new."""
        keys = self._scope.keys(limits, key)
        if keys:
            self._store.command("DEL", *keys)

    def _ask(self, question: Question) -> Any:
        reply = self._store.ask(question.script, question.keys, question.text)
        if type(reply) is bytes and reply.startswith(OUTSIDE):
            question = self._scope.again(question, reply)
            reply = self._store.ask(question.script, question.keys, question.text)
        return reply
