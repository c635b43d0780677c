"""Packed commands over a client's own connections, by the public methods of its pool.

A decision waits for `Redis.execute_command` longer than for the script: it packs, wraps and measures for 10 µs of a
round trip of 100. What a client promises stays: its pool, its health checks, its retries.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import redis
from redis import connection as connections
from redis import sentinel

#: Of others, nothing is known: what they do between client and server (cache, record, fake) must go on.
POOLS = (redis.ConnectionPool, redis.BlockingConnectionPool, sentinel.SentinelConnectionPool)
CONNECTIONS = (
    connections.Connection,
    connections.SSLConnection,
    connections.UnixDomainSocketConnection,
    sentinel.SentinelManagedConnection,
    sentinel.SentinelManagedSSLConnection,
)


def wire(client: Any) -> Wire | None:
    """The client's wire; `None` if the client must be asked itself."""
    if type(client) is redis.Redis and usual(getattr(client, "connection_pool", None)) and not watched(client):
        return Wire(client)
    return None


def usual(pool: Any) -> bool:
    """Whether pool and connections are of the kinds that are known, or ours made of them (`throttle.timely`)."""
    if type(pool) not in POOLS or getattr(pool, "cache", None) is not None:
        return False
    kind = pool.connection_class
    return kind in CONNECTIONS or (kind.__name__.startswith("Timely") and kind.__bases__[-1] in CONNECTIONS)


def watched(client: Any) -> bool:
    """Whether its commands are traced or counted: by a wrapper around `execute_command`, or by redis-py itself."""
    execute = inspect.getattr_static(client, "execute_command")
    if not str(getattr(execute, "__module__", None)).startswith("redis.") or hasattr(execute, "__wrapped__"):
        return True
    try:
        from redis.observability.providers import get_observability_instance
    except ImportError:  # before 7.2
        return False
    return bool(get_observability_instance().is_enabled())


class Wire:
    """Sends packed commands where the client would; as safe with threads and after a fork as the client's pool is."""

    __slots__ = ("_client", "_lock", "_pool", "_take", "eval")

    def __init__(self, client: redis.Redis) -> None:
        self._client: Any = client
        self._pool: Any = client.connection_pool
        self._take = taking(self._pool)
        self._lock: Any = getattr(client, "single_connection_lock", None) or nullcontext()
        self.eval = client.eval  # once per server and script

    def __call__(self, packed: bytes) -> Any:
        """The reply to one command, undecoded; raises what the client would, after the retries that it would make."""
        if self._client.connection is not None:
            return self._single(packed)
        connection = self._take()
        try:
            connection.send_packed_command((packed,))
            return connection.read_response(disable_decoding=True)
        except Exception as error:
            return _again(connection, packed, error)
        finally:
            self._pool.release(connection)

    def _single(self, packed: bytes) -> Any:
        with self._lock:
            connection = self._client.connection
            try:
                connection.send_packed_command((packed,))
                return connection.read_response(disable_decoding=True)
            except Exception as error:
                return _again(connection, packed, error)
            finally:
                if getattr(
                    connection, "should_reconnect", bool
                )():  # the server moves; where there is a pool, it sees to it
                    connection.disconnect()


def taking(pool: Any) -> Callable[[], Any]:
    """The pool's get_connection; without what looks there for arguments that nobody should give any more (2 µs)."""
    take = partial(inspect.unwrap(type(pool).get_connection), pool)
    command = inspect.signature(take).parameters.get("command_name")
    # Before 5.3, redis-py wants to be told the command.
    return partial(take, "EVALSHA") if command is not None and command.default is command.empty else take


def _again(connection: Any, packed: bytes, error: Exception) -> Any:
    """What the client does once a try has failed: its retries. That try was the first; one more could take twice."""
    failed = [error]

    def attempt() -> Any:
        if failed:
            raise failed.pop()
        connection.send_packed_command((packed,))
        return connection.read_response(disable_decoding=True)

    return connection.retry.call_with_retry(attempt, lambda error: _failed(connection, error))


def _failed(connection: Any, error: Exception) -> None:
    connection.disconnect()
    # Before redis-py 6, whose Retry says how often it tries, a client repeated the errors of retry_on_error alone.
    if not hasattr(connection.retry, "get_retries") and not isinstance(error, tuple(connection.retry_on_error or ())):
        raise error
