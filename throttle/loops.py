"""How an `AsyncLimiter` reaches Redis: a client for each event loop, one time budget, one breaker."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import redis.asyncio as aioredis
from redis import exceptions
from redis.asyncio import connection as connections
from redis.asyncio import sentinel
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from throttle.breaker import Breaker
from throttle.errors import StoreUnavailable, ThrottleError
from throttle.reach import NOT_LATELY, PAUSES
from throttle.scripts import Script, packed, script
from throttle.store import check_url, translate, troubled
from throttle.timely import tuning, unmaintained
from throttle.together import STALL, Together
from throttle.wire import taking, watched

if sys.version_info >= (3, 11):
    from asyncio import timeout as time_limit
else:
    from async_timeout import timeout as time_limit  # redis-py brings it where Python does not

POOLS = (connections.ConnectionPool, connections.BlockingConnectionPool, sentinel.SentinelConnectionPool)

#: What an `AsyncLimiter` can be made from.
Source = str | aioredis.Redis | aioredis.RedisCluster | Callable[[], aioredis.Redis | aioredis.RedisCluster]

CLIENTS = (aioredis.Redis, aioredis.RedisCluster)


class _Made(NamedTuple):
    """A client, and what asks over its connections by the short way (`None`: it must be asked itself)."""

    client: Any
    together: Together | None


class AsyncReach:
    """Asks scripts within a time budget, and not at all while the breaker is open. Starts no thread.

    A connection belongs to the loop that made it, so each loop has a client of its own. A call that is cancelled
    leaves no connection that still has an answer to come: redis-py closes that one.

    Args:
        source: URL, client, or factory of a client.
        timeout: seconds one question may take, further tries included.
        breaker: another than the usual, for tests.
        spread: whether on a Redis Cluster each bucket has a hash slot of its own, and not the scope's.
    """

    def __init__(
        self, source: Source, timeout: float = 0.25, breaker: Breaker | None = None, *, spread: bool = True
    ) -> None:
        what: Any = source
        if not isinstance(what, (str, *CLIENTS)) and not callable(what):
            name = f"{type(what).__module__}.{type(what).__name__}"
            raise ThrottleError(f"{name} is no redis.asyncio.Redis, nor a URL or a factory of one")
        self._source = check_url(source) if isinstance(source, str) else source
        self.timeout, self.breaker, self._sleep = timeout, breaker or Breaker(), asyncio.sleep
        self._made: WeakKeyDictionary[Any, _Made] = WeakKeyDictionary()
        self._lock, self._counted = Lock(), RedisError()
        self._spread = spread

    @property
    def client(self) -> Any:
        """The client of the running loop."""
        return self._here().client

    def _here(self) -> _Made:
        loop = asyncio.get_running_loop()
        return self._made.get(loop) or self._make(loop)

    def _make(self, loop: Any) -> _Made:
        client = self._connect()
        ours = type(client) is aioredis.Redis and type(client.connection_pool) in POOLS and not watched(client)
        pool = client.connection_pool if ours else None
        together = Together(taking(pool), pool.release, self.timeout) if pool else None
        with self._lock:  # threads may have loops that come and go
            for ended in [known for known in self._made if known.is_closed()]:  # what was made for it keeps it alive
                self._made.pop(ended, None)
            made = self._made[loop] = _Made(client, together)
        return made

    async def ask(self, name: str, keys: Sequence[str], *args: Any) -> Any:
        """The script's reply.

        Raises:
            StoreUnavailable: Redis did not answer in time, or the breaker is open.
        """
        return await self._answered(partial(self._run, script(name), keys, args))

    async def command(self, *command: Any) -> Any:
        """One plain command, with the same errors."""
        return await self._answered(partial(self._sent, command))

    async def _answered(self, call: Callable[[], Awaitable[Any]]) -> Any:
        if self.breaker.failed and not self.breaker.admits():
            raise StoreUnavailable(NOT_LATELY.format(self.breaker.why))
        begun = time.monotonic()
        try:
            reply = await call()
        except RedisError as error:
            reply = await self._again(call, error, begun + self.timeout)
        if self.breaker.failed:
            self.breaker.success()
        return reply

    async def _again(self, call: Callable[[], Awaitable[Any]], error: RedisError, end: float) -> Any:
        """Further tries as long as the budget lasts, where Redis or the way to it is in trouble."""
        for pause in PAUSES:
            if not troubled(error):
                raise translate(error) from error
            await self._drop()
            if self.breaker.open or time.monotonic() + pause >= end:
                break
            await self._sleep(pause)
            try:
                return await _within(end - time.monotonic(), call())
            except RedisError as another:
                error = another
        if time.monotonic() < end + STALL and error is not self._counted:
            self._counted = error  # all that were under way have the same
            self.breaker.failure(translate(error))
        raise translate(error) from error

    async def _run(self, made: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        here = self._here()
        try:
            if here.together:
                return await here.together.ask(made.packed(keys, args))
            return await _within(self.timeout, here.client.evalsha(made.sha, len(keys), *keys, *args))
        except NoScriptError:
            return await self._sent(("EVAL", made.text, len(keys), *keys, *args))

    async def _sent(self, command: Sequence[Any]) -> Any:
        """One way for all: a pool of one connection has no other."""
        here = self._here()
        if here.together:
            return await here.together.ask(packed(*command))
        return await _within(self.timeout, here.client.execute_command(*command))

    async def _drop(self) -> None:
        """Let go of idle connections: they may lead to a server that is no master any more."""
        pool = getattr(self.client, "connection_pool", None)
        if pool is not None:
            await pool.disconnect(inuse_connections=False)

    async def aclose(self) -> None:
        """Close the running loop's connections once nothing is under way; the next question makes new ones."""
        with self._lock:
            made = self._made.pop(asyncio.get_running_loop(), None)
        if made is not None and made.together is not None:
            await made.together.close()
        if made is not None and made.client is not self._source:
            with contextlib.suppress(exceptions.TimeoutError):
                await _within(self.timeout, made.client.connection_pool.disconnect())

    def _connect(self) -> Any:
        if isinstance(self._source, str):
            return _ours(aioredis.Redis.from_url(self._source))
        client = self._source if isinstance(self._source, CLIENTS) else self._source()
        return self._cluster(client) if isinstance(client, aioredis.RedisCluster) else _ours(client)

    def _cluster(self, client: aioredis.RedisCluster) -> Any:
        from throttle.cluster_aio import AsyncCluster  # which has reaches itself

        self.breaker = Breaker(failures=sys.maxsize)  # each node has its own
        return AsyncCluster(client, self.timeout, spread=self._spread)


async def _within(seconds: float, answer: Awaitable[Any]) -> Any:
    try:
        async with time_limit(seconds):
            return await answer
    except asyncio.TimeoutError:
        raise exceptions.TimeoutError(f"no answer within {seconds:.3f} s") from None


def _ours(client: Any) -> Any:
    """A client like it, for this loop, that tries once and does not decode; of an unknown kind, itself."""
    pool: Any = getattr(client, "connection_pool", None)
    if type(client) is not aioredis.Redis or type(pool) not in POOLS:
        return client
    options = {name: value for name, value in pool.connection_kwargs.items() if not tuning(name)}
    options.update(  # no timeouts: whoever waits for all of it looks at the clock
        socket_timeout=None, socket_connect_timeout=None, retry=Retry(NoBackoff(), 0), retry_on_error=[],
        decode_responses=False, max_connections=pool.max_connections, connection_class=pool.connection_class,
        **unmaintained(pool.connection_class),
    )  # fmt: skip
    if isinstance(pool, connections.BlockingConnectionPool):
        options["timeout"] = pool.timeout
    if isinstance(pool, sentinel.SentinelConnectionPool):
        options.update(is_master=pool.is_master, check_connection=pool.check_connection)
        return aioredis.Redis(connection_pool=type(pool)(pool.service_name, pool.sentinel_manager, **options))
    return aioredis.Redis(connection_pool=type(pool)(**options))
