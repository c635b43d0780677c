"""Connections that keep to a time budget, connecting and greeting the server included.

A client's own timeouts are per step (connect, HELLO, AUTH, SELECT, the command), and its retries multiply them: a
Redis that is 200 ms away takes a second to connect to. Those who answer requests have a total to keep.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from inspect import signature
from types import BuiltinFunctionType
from typing import Any

import redis
from redis import sentinel
from redis.backoff import NoBackoff
from redis.exceptions import TimeoutError as RedisTimeout
from redis.retry import Retry

from throttle import wire

#: What a connection must not do of itself: it would take time that is not there, or look at the clock of another.
_NOT_OURS = ("connection_pool", "retry_on_timeout", "health_check_interval")


class _Until(threading.local):
    moment: float | None = None


_until = _Until()


@contextmanager
def until(moment: float) -> Iterator[None]:
    """What this thread connects within ends at that moment of the monotonic clock, not a whole budget from now."""
    _until.moment = moment
    try:
        yield
    finally:
        _until.moment = None


class Timely:
    """Mixin of a connection: connecting, greeting and the first answer all end within one `socket_timeout`.

    After that its timeout alone is enough, and costs nothing.
    """

    _sock: Any
    _watch: Any = None  # polls its socket
    socket_timeout: Any
    socket_connect_timeout: Any

    def connect(self) -> None:
        """As the client's; a pool calls it before every command."""
        if self._sock is not None:
            return
        budget = self.socket_timeout
        moment = _until.moment or time.monotonic() + budget
        self.socket_connect_timeout = max(0.001, min(budget, moment - time.monotonic()))
        greeted: list[bool] = []
        self.__dict__["read_response"] = partial(self._read_until, moment, greeted)
        try:
            super().connect()  # type: ignore[misc]
        except BaseException:
            self.__dict__.pop("read_response", None)
            raise
        greeted.append(True)
        self._watch = _watch(self._sock)

    def can_read(self, timeout: float = 0) -> bool:
        """As the client's, which a pool asks before every command: it tries to read, for 3 µs of a decision."""
        if timeout or self._watch is None or self._watch.poll(0):
            return bool(super().can_read(timeout))  # type: ignore[misc]
        return False

    def _read_until(self, moment: float, greeted: list[bool], *args: Any, **options: Any) -> Any:
        if greeted:  # the first answer to a command: from the next one on, the timeout is enough
            self.__dict__.pop("read_response", None)
        left = moment - time.monotonic()
        if left <= 0:
            self.disconnect()  # type: ignore[attr-defined]
            raise RedisTimeout(f"connected, but not within {self.socket_timeout} s")
        self._sock.settimeout(left)
        said = super().read_response(*args, **options)  # type: ignore[misc]
        if greeted and self._sock is not None:
            self._sock.settimeout(self.socket_timeout)
        return said


def _watch(sock: Any) -> Any:
    """What tells whether there is something to read; `None` where that is not all in the socket, or not ours to ask."""
    if _POLL is None or type(sock) is not socket.socket:  # TLS keeps some itself; gevent's sockets are its own
        return None
    watch = _POLL()
    watch.register(sock, select.POLLIN)
    return watch


#: gevent's is no built-in, and slower than what it would save.
_POLL = select.poll if isinstance(getattr(select, "poll", None), BuiltinFunctionType) else None


@cache
def timely(connection: type[Any]) -> type[Any]:
    """The same class of connections, but timely."""
    return type(f"Timely{connection.__name__}", (Timely, connection), {})


def within(client: Any, budget: float) -> Any:
    """A client like it that answers or fails within `budget` seconds, and tries once; of an unknown kind, itself.

    It has a pool of its own, of the same kind and size, so that neither gets in the other's way. Not within the
    budget: the look-up of a host's name, and what a Sentinel takes, whose client has timeouts of its own.
    """
    pool: Any = getattr(client, "connection_pool", None)
    if type(client) is not redis.Redis or not wire.usual(pool):
        return client
    options = {name: value for name, value in pool.connection_kwargs.items() if not tuning(name)}
    options["socket_timeout"] = min(options.get("socket_timeout") or budget, budget)
    options.update(
        socket_connect_timeout=budget, retry=Retry(NoBackoff(), 0), retry_on_error=[], decode_responses=False,
        max_connections=pool.max_connections, connection_class=timely(pool.connection_class),
        **unmaintained(pool.connection_class),
    )  # fmt: skip
    if isinstance(pool, redis.BlockingConnectionPool):
        options["timeout"] = min(pool.timeout or budget, budget / 5)  # the rest is for the question itself
    if isinstance(pool, sentinel.SentinelConnectionPool):
        options.update(is_master=pool.is_master, check_connection=pool.check_connection)
        return redis.Redis(connection_pool=type(pool)(pool.service_name, pool.sentinel_manager, **options))
    return redis.Redis(connection_pool=type(pool)(**options))


def tuning(name: str) -> bool:
    """Whether a connection's option is not for those who keep to a budget."""
    return name in _NOT_OURS or name.startswith(("maint_", "orig_"))


def unmaintained(connection: type[Any]) -> dict[str, Any]:
    """No longer timeouts while a server is maintained, where connections have them (asyncio's since redis-py 8)."""
    made = [vars(base)["__init__"] for base in connection.__mro__ if "__init__" in vars(base)]
    if not any("maint_notifications_config" in signature(init).parameters for init in made):
        return {}
    from redis.maint_notifications import MaintNotificationsConfig

    return {"maint_notifications_config": MaintNotificationsConfig(enabled=False)}
