"""A connection of redis-py's, read by callback: no task, stream or timer for each answer.

redis-py connects and greets (TLS, passwords, Sentinel, Unix sockets), and closes. In between, replies are handed over
as they come: with 16 askers a limited request took 55 µs of an event loop's time when they were read through its
streams, and takes 40.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from redis import exceptions
from redis.exceptions import ResponseError

from throttle.store import troubled


class Pipe(asyncio.Protocol):
    """Sends packed commands, and gives each its reply.

    Args:
        connection: of redis-py's, connected.
        idle: called when no answer is to come any more, the connection being lost or not.
    """

    def __init__(self, connection: Any, idle: Callable[[], None]) -> None:
        self.connection, self._idle = connection, idle
        self.is_open = True  #: else nothing more may be asked
        self._parse_error = connection._parser.parse_error
        self._transport = connection._writer.transport
        self._stream = self._transport.get_protocol()
        self._answers: deque[asyncio.Future[Any]] = deque()
        self._unread = b""
        self._transport.set_protocol(self)

    @property
    def is_busy(self) -> bool:
        """Whether answers are to come."""
        return bool(self._answers)

    def send(self, packed: bytes, answers: list[asyncio.Future[Any]]) -> None:
        """Commands, and where their replies go."""
        self._answers.extend(answers)
        self._transport.write(packed)

    def fail(self, error: Exception) -> None:
        """Let go of the connection now: no answer to come can be trusted."""
        answers, self._answers, self.is_open = self._answers, deque(), False
        self._transport.abort()
        for answer in answers:
            if not answer.done():
                answer.set_exception(error)
        self._idle()

    # -- called by the event loop ------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Replies, and pieces of them."""
        data, at = self._unread + data, 0
        try:
            while at < len(data):
                reply, at = read(data, at)
                self._answer(reply)
        except Short:
            self._unread = data[at:]
            return
        except Exception as exc:  # whatever it is: nothing that follows can be told from it
            self.fail(exceptions.ConnectionError(f"an answer that makes no sense: {exc}"))
            return
        self._unread = b""
        if not self._answers:
            if not self.is_open:
                self._transport.abort()
            self._idle()

    def _answer(self, reply: Any) -> None:
        if not self._answers:  # a proxy's word: whoever asks next would hear it as the answer
            raise ValueError("nobody asked")
        answer = self._answers.popleft()
        if answer.done():  # whoever asked has gone
            return
        if not isinstance(reply, ResponseError):
            answer.set_result(reply)
            return
        try:
            error = self._parse_error(str(reply))
        except Exception:  # MOVED without a place, for example
            error = reply
        if troubled(error):  # a master no more, for example: its name may lead to another now
            self.is_open = False
        answer.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """The other end, or we, have closed it."""
        self._stream.connection_lost(exc)  # redis-py, closing it, waits for that
        self.fail(exceptions.ConnectionError("the connection was closed"))

    def pause_writing(self) -> None:
        """As the stream does it."""
        self._stream.pause_writing()

    def resume_writing(self) -> None:
        """As the stream does it."""
        self._stream.resume_writing()


class Short(Exception):
    """The rest of a reply is still to come."""


def read(data: bytes, at: int) -> tuple[Any, int]:
    """The reply (RESP) that begins at `at`: a number, bytes, a list, `None` or a `ResponseError`; and where it ends.

    Raises:
        Short: it is not all there.
        ValueError: it is none that scripts give.
    """
    end = data.find(b"\r\n", at)
    if end < 0:
        raise Short
    kind, line, end = data[at : at + 1], data[at + 1 : end], end + 2
    if kind == b":":
        return int(line), end
    if kind == b"$":
        return _text(data, end, int(line))
    if kind == b"*":
        return _list(data, end, int(line))
    if kind == b"-":
        return ResponseError(line.decode(errors="replace")), end
    if kind in (b"+", b"_"):
        return line or None, end
    raise ValueError(f"its type is {kind!r}")


def _text(data: bytes, at: int, size: int) -> tuple[bytes | None, int]:
    if size < 0:
        return None, at
    end = at + size
    if len(data) < end + 2:
        raise Short
    return data[at:end], end + 2


def _list(data: bytes, at: int, count: int) -> tuple[list[Any] | None, int]:
    items: list[Any] = []
    for _ in range(count):
        item, at = read(data, at)
        items.append(item)
    return (None if count < 0 else items), at
