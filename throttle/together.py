"""Questions of one event loop that come while Redis answers go together in the next round trip.

A round trip costs the loop 100 µs or more of its own time, whether one question is in it or twenty; one that waits
for the trip under way is answered with the next. A question that comes alone leaves at once.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from redis import exceptions
from redis.exceptions import RedisError, ResponseError

if sys.version_info >= (3, 11):
    from asyncio import timeout as time_limit
else:
    from async_timeout import timeout as time_limit  # redis-py brings it where Python does not

#: Questions in one round trip; more would make the first wait for the last.
MOST = 64


class Together:
    """The connection that all questions of a loop share.

    Args:
        take: takes a connection of the pool.
        release: gives it back.
        timeout: seconds that one round trip may take.
    """

    def __init__(
        self, take: Callable[[], Awaitable[Any]], release: Callable[[Any], Awaitable[None]], timeout: float
    ) -> None:
        self._take, self._release, self._timeout = take, release, timeout
        self._waiting: list[tuple[bytes, asyncio.Future[Any]]] = []
        self._trips: asyncio.Task[None] | None = None

    async def ask(self, packed: bytes) -> Any:
        """The reply to one packed command. Cancelled, it leaves the others alone, and no reply unread."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((packed, answer))
        if self._trips is None:
            self._trips = loop.create_task(self._go())
        return await answer

    async def _go(self) -> None:
        """One trip after another, until nobody waits."""
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
                batch = [one for one in batch if not one[1].done()]
                if batch:
                    await self._trip(batch)
        finally:
            self._trips = None

    async def _trip(self, batch: list[tuple[bytes, asyncio.Future[Any]]]) -> None:
        answers = [answer for _, answer in batch]
        try:
            async with time_limit(self._timeout):
                await self._exchange(b"".join([packed for packed, _ in batch]), answers)
        except asyncio.TimeoutError:
            _fail(answers, exceptions.TimeoutError(f"no answer within {self._timeout} s"))
        except RedisError as exc:
            _fail(answers, exc)
        except Exception as exc:  # of a credential provider, for example, whose text may be secret
            _fail(answers, exceptions.ConnectionError(f"no connection: {type(exc).__name__}"))
        except BaseException:
            _fail(answers, exceptions.ConnectionError("the loop ended"))
            raise

    async def _exchange(self, packed: bytes, answers: list[asyncio.Future[Any]]) -> None:
        """The pool looks at a connection before it gives it: what was closed is replaced, what has something to read
        that nobody asked for (a proxy's word) is, too; else each would hear the answer to the question before.
        """
        connection, whole = await self._take(), False
        try:
            await connection.send_packed_command(packed)
            for answer in answers:
                await self._read(connection, answer)
            whole = True
        finally:
            if not whole:
                await connection.disconnect(nowait=True)
            await self._release(connection)

    @staticmethod
    async def _read(connection: Any, answer: asyncio.Future[Any]) -> None:
        try:
            reply = await connection.read_response(disable_decoding=True)
        except ResponseError as exc:  # of this one alone; what is wrong with the connection is raised on
            if not answer.done():
                answer.set_exception(exc)
            return
        if not answer.done():
            answer.set_result(reply)


def _fail(answers: list[asyncio.Future[Any]], exc: Exception) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_exception(exc)
