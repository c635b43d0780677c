"""Limits in request code: ask, and know when to come back."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

from throttle.alive import Alive
from throttle.answers import UNLIMITED, Answers, Counting, check_timeout, outside
from throttle.calls import Calls
from throttle.decision import Decision
from throttle.errors import StoreUnavailable, ThrottleError
from throttle.keys import Namer
from throttle.question import Asked, Question, decision
from throttle.reach import reach
from throttle.store import Source, Store
from throttle.waiting import Patience, patience

F = TypeVar("F", bound=Callable[..., Any])


class Limiter(Counting):
    """Asks the limits of one scope; every answer is one atomic step in Redis and one round trip.

    Threads may share it, and a fork may inherit it. Limiters of one process with one URL or client share connections.

    Args:
        redis_or_url: `redis://`, `rediss://` or `unix://` URL, a `redis.Redis` or `redis.RedisCluster`, or a factory of
            one. Of a client its options are taken, for connections of the limiter's own that keep to `timeout`.
        scope: what shares buckets.
        namer: names of the keys, where another prefix is wanted.
        timeout: seconds one decision may wait for Redis: connecting and further tries included. A script that Redis
            has forgotten, or a quota whose borders the clock here got wrong, is one more such wait.
        on_store_error: what to do without Redis. "open": let pass, with an error in the log once a minute. "closed":
            raise `StoreUnavailable`. "local": count in this process, for its share of each limit.
        denials: refusals remembered in this process until they end (1 s at most at a time), so that who is refused
            costs Redis nothing; 0 for none. What another process gives back takes effect within 1 s.
        lease: units of a busy key that this limiter takes ahead, to answer as many requests without Redis; 0 for none.
            So many more than burst + rate·t may pass in each process; what it does not use within 0.1 s is lost.
        mode: "shadow" counts on keys of its own what it would refuse, and refuses nothing.
        spread: for Redis Cluster alone. True: each bucket has a hash slot of its own, so all nodes share the work. Then
            several limits are no single step: all are looked at, then taken one after another, and given back if one
            refuses after all. Never does more pass; others may find less than there is meanwhile, and what a lost
            connection or a killed process leaves taken comes back with time alone. False: the scope's slot has all.
        now: test clock giving µs since the epoch.
    """

    def __init__(
        self,
        redis_or_url: Source | Store,
        scope: str = "default",
        *,
        namer: Namer | None = None,
        timeout: float = 0.25,
        on_store_error: str = "open",
        denials: int = 10_000,
        lease: int = 0,
        mode: str = "enforce",
        spread: bool = True,
        now: Callable[[], int] | None = None,
    ) -> None:
        check_timeout(timeout)
        self.scope = scope
        self._reach = reach(redis_or_url, namer, timeout, now, spread=spread)
        self._store = self._reach.store
        self._answers = answers = Answers(
            self._store.namer,
            scope,
            self._store.clock,
            on_store_error=on_store_error,
            denials=denials,
            lease=lease,
            mode=mode,
        )
        self._scope = answers.scope
        self._sleep: Callable[[float], object] = time.sleep
        self._ask_script, self._denials, self._leases = self._reach.ask, answers.denials, answers.leases
        self._alive, self._question = answers.alive, answers.question if answers.shadow else answers.scope.question

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
            StoreUnavailable: Redis did not answer, if `on_store_error` is "closed".
        """
        question = self._question("take", limits, key, cost)
        if question is None:
            return UNLIMITED
        leases = self._leases
        if leases is not None and (ahead := leases.find(question) or self._ahead(question, limits, key, cost)):
            return ahead
        denials, asked = self._denials, 0
        if denials is not None:
            known = self._answers.known(question) if denials.known else None
            if known is not None:
                return known
            asked = denials.clock()
        said = self._decide(question, asked)
        if leases is not None:
            leases.note(question, said)
        return said

    def peek(self, *limits: Asked, key: object = None, cost: int = 1) -> Decision:
        """What `acquire` would answer, changing nothing."""
        question = self._question("peek", limits, key, cost)
        return UNLIMITED if question is None else self._decide(question, 0)

    def refund(self, *limits: Asked, key: object = None, cost: int = 1) -> None:
        """Give units back that were not used; never beyond full.

        Raises:
            StoreUnavailable: Redis did not answer, if `on_store_error` is "closed"; else they are lost.
        """
        question = self._scope.refund(limits, key, cost)
        if question is None:
            return
        failed = None
        try:
            reply = self._ask_script(question.script, question.keys, question.text)
            if outside(reply):
                self._again(question, reply)
        except StoreUnavailable as error:
            failed = error
        finally:
            self._answers.forget(question.keys)
        if failed:
            self._answers.without(question, failed)

    def reset(self, *limits: Asked, key: object = None) -> None:
        """Forget what was taken: the buckets are as new.

        Raises:
            StoreUnavailable: Redis did not answer, whatever `on_store_error` says: nothing was reset.
        """
        keys = self._scope.keys(limits, key)
        if keys:
            try:
                self._reach.call(self._store.command, "DEL", *keys)
            finally:
                self._answers.forget(keys)

    def wait(self, *limits: Asked, key: object = None, cost: int = 1, max_wait: float | None = None) -> Decision:
        """As `acquire`, but sleeps until it is allowed: exactly as long as it is told, then it asks again.

        Args:
            limits: as for `acquire`, as are the next two.
            key: whom to count apart.
            cost: units to take.
            max_wait: seconds it may take in all; `None`: as long as it takes.

        Raises:
            Throttled: it would take longer, as far as is known; without sleeping where the first answer says so.
                Also where it would be for ever, as a limit is closed.
        """
        return self._pass(limits, key, cost, Patience(max_wait, self._answers.clock))

    def limit(
        self, *limits: Any, key: Any = None, cost: int | str | Callable[..., int] = 1, wait: bool | float = False
    ) -> Callable[[F], F]:
        """Decorator: each call of the function takes from the limits first. An async function asks in a thread.

        Args:
            limits: as for `acquire`, or rates: of "10/min", ten may come at once.
            key: a template over the function's arguments ("{user.id}"), a value, or a callable given them.
            cost: the same, for units.
            wait: what a refusal does: raise at once (False), wait as long as it takes (True) or so many seconds.

        Raises:
            Throttled: from the call, refused.
        """

        def decorate(function: F) -> F:
            calls = Calls(function, limits, key, cost)

            def enter(args: Any, kwargs: Any) -> None:
                self._pass(*calls.asked(args, kwargs), patience(wait, self._answers.clock))

            @wraps(function)
            def waiting(*args: Any, **kwargs: Any) -> Any:
                enter(args, kwargs)
                return function(*args, **kwargs)

            @wraps(function)
            async def awaiting(*args: Any, **kwargs: Any) -> Any:
                await asyncio.to_thread(enter, args, kwargs)
                return await function(*args, **kwargs)

            return cast("F", awaiting if inspect.iscoroutinefunction(function) else waiting)

        return decorate

    @contextmanager
    def slot(self, *limits: Any, key: object = None, cost: int = 1, wait: bool | float = False) -> Iterator[Decision]:
        """Context manager: `with limiter.slot(limit, key=user):` takes first, and raises `Throttled` if refused.

        Args:
            limits: as for `acquire`, as are the next two.
            key: whom to count apart.
            cost: units to take.
            wait: as for `limit`.
        """
        yield self._pass(limits, key, cost, patience(wait, self._answers.clock))

    def _pass(self, limits: Any, key: object, cost: int, patience: Patience) -> Decision:
        """Acquired, at its moment; or raises `Throttled`."""
        while not (said := self.acquire(*limits, key=key, cost=cost)).allowed:
            self._sleep(patience.pause(said))
        if not said.delay:
            return said
        late = patience.late(said)
        if late:
            self.refund(*limits, key=key, cost=cost)
            raise late
        self._sleep(said.delay)
        return said._replace(delay=0.0)

    def _ahead(self, question: Question, limits: tuple[Asked, ...], key: object, cost: int) -> Decision | None:
        """The first answer of a new lease; `None`: none is due, or there is no room for one."""
        leases, said, failed = self._leases, None, None
        if leases is None or not (count := leases.begins(question)):
            return None
        asked = leases.clock()
        try:
            more = self._answers.question("take", limits, key, cost * count)
            said = decision(more, self._ask_script(more.script, more.keys, more.text)) if more else None
        except StoreUnavailable as error:
            failed = error
        except ThrottleError:  # a tier has changed meanwhile
            pass
        finally:
            said = leases.ends(question, said, asked)
        return self._answers.without(question, failed) if failed else said

    def _decide(self, question: Question, asked: int) -> Decision:
        try:
            reply = self._ask_script(question.script, question.keys, question.text)
            if type(reply) is not int and outside(reply):
                reply = self._again(question, reply)
        except StoreUnavailable as error:
            return self._answers.without(question, error)
        if self._alive is not None and self._alive.due():
            self._say_alive(self._alive)
        return self._answers.heard(question, reply, asked)

    def _again(self, question: Question, reply: Any) -> Any:
        """With the borders of quotas as Redis's clock has them."""
        question = self._scope.again(question, reply)
        return self._ask_script(question.script, question.keys, question.text)

    def _say_alive(self, alive: Alive) -> None:
        with contextlib.suppress(StoreUnavailable):
            alive.heard(self._reach.call(self._store.run, "alive", *alive.words()))
