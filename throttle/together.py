"""Questions of one event loop that come while Redis answers go together in the next round trip.

A round trip costs the loop system calls and turns, whether one question is in it or twenty. Those of one turn of the
loop leave at its end; those that come while a round trip is under way leave with the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from redis import exceptions
from redis.exceptions import RedisError

from throttle.pipe import Pipe

if sys.version_info >= (3, 11):
    from asyncio import timeout as time_limit
else:
    from async_timeout import timeout as time_limit  # redis-py brings it where Python does not

#: Questions in one round trip; more would make the first wait for the last.
MOST = 64

#: Seconds after its time that the look at the clock comes when the loop stood still: then that, not Redis, was late.
STALL = 0.03


class _Asked(NamedTuple):
    packed: bytes
    answer: asyncio.Future[Any]
    at: float  # s, by the loop's clock


class Together:
    """The connection that all questions of a loop share.

    Args:
        take: takes a connection of the pool, connected.
        release: gives it back.
        timeout: seconds within which an answer must come, connecting included.
    """

    def __init__(
        self, take: Callable[[], Awaitable[Any]], release: Callable[[Any], Awaitable[None]], timeout: float
    ) -> None:
        self._take, self._release, self._timeout = take, release, timeout
        self._waiting: deque[_Asked] = deque()
        self._pipe: Pipe | None = None
        self._since = math.inf  # when the first of those under way was asked
        self._leaves = False  # whether those who wait leave at the end of this turn
        self._opening: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._end: weakref.finalize[..., Any] | None = None

    def ask(self, packed: bytes) -> asyncio.Future[Any]:
        """The reply to one packed command, to be awaited. Cancelled, it leaves the others alone."""
        loop = asyncio.get_running_loop()
        asked = _Asked(packed, loop.create_future(), loop.time())
        self._waiting.append(asked)
        if not (self._leaves or self._opening or (self._pipe and self._pipe.is_busy)):
            self._leaves = True
            loop.call_soon(self._leave)
        if self._timer is None:
            self._timer = loop.call_at(asked.at + self._timeout, self._look)
        return asked.answer

    async def close(self) -> None:
        """Close the connection once nothing is under way, which takes the timeout at most."""
        while self._waiting or self._opening or (self._pipe and self._pipe.is_busy):
            await asyncio.sleep(0.001)
        if self._pipe:
            self._pipe.fail(exceptions.ConnectionError("closed"))  # no farewell: TLS would wait 30 s for the other's
        await self._let_go()

    def _leave(self) -> None:
        """Send what waits, if there is a way."""
        self._leaves = False
        batch: list[_Asked] = []
        while self._waiting and len(batch) < MOST:
            asked = self._waiting.popleft()
            if not asked.answer.done():  # else whoever asked has gone
                batch.append(asked)
        if not batch:
            return
        if self._pipe is None or not self._pipe.is_open:
            self._waiting.extendleft(reversed(batch))
            opening = asyncio.get_running_loop().create_task(self._open())
            self._opening = None if opening.done() else opening  # an eager one may be
            return
        self._since = batch[0].at
        self._pipe.send(b"".join([asked.packed for asked in batch]), [asked.answer for asked in batch])

    def _idle(self) -> None:
        """All that was under way is answered, or lost."""
        if self._waiting and not (self._leaves or self._opening):
            self._leave()

    async def _open(self) -> None:
        """A connection; those who wait leave over it, or hear why there is none."""
        failed: Exception | None = None
        try:
            async with time_limit(self._timeout):
                await self._let_go()
                self._pipe = Pipe(await self._take(), _weakly(self._idle))
            self._end = weakref.finalize(self, _abandon, self._pipe, asyncio.get_running_loop())
            self._end.atexit = False
        except asyncio.TimeoutError:
            failed = exceptions.TimeoutError(f"no connection within {self._timeout} s")
        except RedisError as exc:
            failed = exc
        except Exception as exc:  # of a credential provider, for example, whose text may be secret
            failed = exceptions.ConnectionError(f"no connection: {type(exc).__name__}")
        except BaseException:
            self._fail(exceptions.ConnectionError("the loop ended"))
            raise
        finally:
            self._opening = None
        if failed:
            self._fail(failed)
        else:
            self._leave()

    async def _let_go(self) -> None:
        """Give the connection that was lost back to the pool, which may have a place for no more than one."""
        pipe, self._pipe = self._pipe, None
        if self._end is not None:
            self._end.detach()
        if pipe is not None:
            await pipe.connection.disconnect(nowait=True)
            await self._release(pipe.connection)

    def _look(self, is_last: bool = False) -> None:
        """Nobody waits longer than the timeout, but that a loop which stood still first reads what came meanwhile."""
        loop, timer, self._timer = asyncio.get_running_loop(), self._timer, None
        now, late = loop.time(), exceptions.TimeoutError(f"no answer within {self._timeout} s")
        if timer is not None and now - timer.when() > STALL and not is_last:
            self._timer = loop.call_at(now + STALL, self._look, True)
            return
        begun = now - self._timeout
        while self._waiting and self._waiting[0].at <= begun:
            _fail(self._waiting.popleft(), late)
        if self._pipe and self._pipe.is_busy:
            if self._since <= begun:
                self._pipe.fail(late)
            else:
                self._look_at(self._since)
        if self._timer is None and self._waiting:
            self._look_at(self._waiting[0].at)

    def _look_at(self, since: float) -> None:
        self._timer = asyncio.get_running_loop().call_at(since + self._timeout, self._look)

    def _fail(self, error: Exception) -> None:
        while self._waiting:
            _fail(self._waiting.popleft(), error)


def _weakly(method: Callable[[], None]) -> Callable[[], None]:
    """The loop keeps a connection that is open, and by it whatever that calls: limiters that are dropped are to go."""
    reference = weakref.WeakMethod(method)

    def call() -> None:
        method = reference()
        if method is not None:
            method()

    return call


def _abandon(pipe: Pipe, loop: asyncio.AbstractEventLoop) -> None:
    """Nobody will ask any more, nor close it."""
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(pipe.fail, exceptions.ConnectionError("nobody asks"))


def _fail(asked: _Asked, error: Exception) -> None:
    if not asked.answer.done():
        asked.answer.set_exception(error)
