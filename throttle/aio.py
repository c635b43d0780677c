"""`AsyncLimiter`: the limiter of request code that runs in an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, TypeVar, cast

from throttle.alive import Alive
from throttle.answers import UNLIMITED, Answers, Counting, check_timeout, outside
from throttle.calls import Calls
from throttle.decision import Decision
from throttle.errors import StoreUnavailable, ThrottleError
from throttle.keys import Namer
from throttle.loops import AsyncReach, Source
from throttle.question import Asked, Question, decision
from throttle.waiting import Patience, patience

F = TypeVar("F", bound=Callable[..., Any])


class AsyncLimiter(Counting):
    """As `Limiter`, awaited; see there for what the methods promise. It may be used from one event loop after another.

    Args:
        redis_or_url: URL, `redis.asyncio.Redis` or `RedisCluster`, or a factory of one. Of a client its options are
            taken, for connections of the limiter's own in each loop.
        scope, namer, timeout, on_store_error, denials, lease, mode, spread, now: as for `Limiter`.
    """

    def __init__(
        self,
        redis_or_url: Source,
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
        self.scope, self._now = scope, now
        self._reach = AsyncReach(redis_or_url, timeout, spread=spread)
        self._answers = answers = Answers(
            namer or Namer(),
            scope,
            now,
            on_store_error=on_store_error,
            denials=denials,
            lease=lease,
            mode=mode,
        )
        self._scope, self._denials, self._leases = answers.scope, answers.denials, answers.leases
        self._sleep: Callable[[float], Awaitable[object]] = asyncio.sleep

    async def acquire(self, *limits: Asked, key: object = None, cost: int = 1) -> Decision:
        """Take `cost` units from every limit, or from none; a refusal changes nothing."""
        question = self._answers.question("take", limits, key, cost)
        if question is None:
            return UNLIMITED
        leases = self._leases
        if leases is not None and (ahead := leases.find(question) or await self._ahead(question, limits, key, cost)):
            return ahead
        known = self._answers.known(question)
        if known is not None:
            return known
        said = await self._decide(question, 0 if self._denials is None else self._denials.clock())
        if leases is not None:
            leases.note(question, said)
        return said

    async def peek(self, *limits: Asked, key: object = None, cost: int = 1) -> Decision:
        """What `acquire` would answer, changing nothing."""
        question = self._answers.question("peek", limits, key, cost)
        return UNLIMITED if question is None else await self._decide(question, 0)

    async def refund(self, *limits: Asked, key: object = None, cost: int = 1) -> None:
        """Give units back that were not used; never beyond full."""
        question = self._scope.refund(limits, key, cost)
        if question is None:
            return
        failed = None
        try:
            await self._ask(question)
        except StoreUnavailable as error:
            failed = error
        finally:
            self._answers.forget(question.keys)
        if failed:
            self._answers.without(question, failed)

    async def reset(self, *limits: Asked, key: object = None) -> None:
        """Forget what was taken: the buckets are as new."""
        keys = self._scope.keys(limits, key)
        if keys:
            try:
                await self._reach.command("DEL", *keys)
            finally:
                self._answers.forget(keys)

    async def wait(self, *limits: Asked, key: object = None, cost: int = 1, max_wait: float | None = None) -> Decision:
        """As `acquire`, but sleeps until it is allowed; raises `Throttled` where that would take over `max_wait` s."""
        return await self._pass(limits, key, cost, Patience(max_wait, self._answers.clock))

    def limit(
        self, *limits: Any, key: Any = None, cost: int | str | Callable[..., int] = 1, wait: bool | float = False
    ) -> Callable[[F], F]:
        """Decorator: each call of the async function takes from the limits first, or raises `Throttled`."""

        def decorate(function: F) -> F:
            if not inspect.iscoroutinefunction(function):
                raise TypeError(f"{function!r} is not async: decorate it with the limit() of a Limiter")
            calls = Calls(function, limits, key, cost)

            @wraps(function)
            async def awaiting(*args: Any, **kwargs: Any) -> Any:
                await self._pass(*calls.asked(args, kwargs), patience(wait, self._answers.clock))
                return await function(*args, **kwargs)

            return cast("F", awaiting)

        return decorate

    @asynccontextmanager
    async def slot(
        self, *limits: Any, key: object = None, cost: int = 1, wait: bool | float = False
    ) -> AsyncIterator[Decision]:
        """Context manager: `async with limiter.slot(limit, key=user):` takes first, or raises `Throttled`."""
        yield await self._pass(limits, key, cost, patience(wait, self._answers.clock))

    async def aclose(self) -> None:
        """Close the connections of the running loop; the next question makes new ones."""
        await self._reach.aclose()

    async def __aenter__(self) -> AsyncLimiter:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def _pass(self, limits: Any, key: object, cost: int, patience: Patience) -> Decision:
        """Acquired, at its moment; or raises `Throttled`."""
        while not (said := await self.acquire(*limits, key=key, cost=cost)).allowed:
            await self._sleep(patience.pause(said))
        if not said.delay:
            return said
        late = patience.late(said)
        if late:
            await self.refund(*limits, key=key, cost=cost)
            raise late
        await self._sleep(said.delay)
        return said._replace(delay=0.0)

    async def _ahead(self, question: Question, limits: tuple[Asked, ...], key: object, cost: int) -> Decision | None:
        """The first answer of a new lease; `None`: none is due, or there is no room for one."""
        leases, said, failed = self._leases, None, None
        if leases is None or not (count := leases.begins(question)):
            return None
        asked = leases.clock()
        try:
            more = self._answers.question("take", limits, key, cost * count)
            said = decision(more, await self._ask(more)) if more else None
        except StoreUnavailable as error:
            failed = error
        except ThrottleError:  # a tier has changed meanwhile
            pass
        finally:
            said = leases.ends(question, said, asked)
        return self._answers.without(question, failed) if failed else said

    async def _decide(self, question: Question, asked: int) -> Decision:
        try:
            reply = await self._ask(question)
        except StoreUnavailable as error:
            return self._answers.without(question, error)
        alive = self._answers.alive
        if alive is not None and alive.due():
            await self._say_alive(alive)
        return self._answers.heard(question, reply, asked)

    async def _ask(self, question: Question) -> Any:
        reply = await self._reach.ask(question.script, question.keys, question.text)
        if outside(reply):
            question = self._scope.again(question, reply)
            reply = await self._reach.ask(question.script, question.keys, question.text)
        return reply

    async def _say_alive(self, alive: Alive) -> None:
        keys, words = alive.words()
        now = "" if self._now is None else str(self._now())
        with contextlib.suppress(StoreUnavailable):
            alive.heard(await self._reach.ask("alive", keys, now, *words))
