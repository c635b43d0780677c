"""The connection to Redis: from a URL, a client or a factory; made when first used, once per process."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import redis
from redis.exceptions import (
    AskError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeout

from throttle.errors import StoreUnavailable, ThrottleError
from throttle.keys import Namer
from throttle.scripts import script
from throttle.timely import within
from throttle.wire import Wire, wire

logger = logging.getLogger(__name__)

#: What a server in trouble says from within a script; redis-py takes the first word off those it has a class for.
_SERVER = (BusyLoadingError, ClusterDownError, MasterDownError, OutOfMemoryError, ReadOnlyError, TryAgainError)
_SERVER_WORDS = ("READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "OOM ", "MISCONF", "NOREPLICAS")

#: What is wrong as a rule with a URL that cannot be read.
QUOTE = "quote what is special in its password, with urllib.parse.quote(password, safe='')"

SCHEMES = ("redis", "rediss", "unix", "redis+socket", "valkey", "valkeys")

#: What a store can be made from.
Source = str | redis.Redis | redis.RedisCluster | Callable[[], redis.Redis | redis.RedisCluster]


def check_url(url: str) -> str:
    """The URL as redis-py takes it.

    Raises:
        ThrottleError: if it is none that redis-py connects to; the text shows nothing of a password.
    """
    try:
        parts = urlsplit(url)
        scheme, _ = parts.scheme if "://" in url else "", parts.port
    except ValueError:  # its text would show a piece of the password
        raise ThrottleError(f"host or port of a Redis URL cannot be read; {QUOTE}") from None
    if scheme not in SCHEMES:
        found = f"{scheme}:// is no Redis URL" if scheme else "a Redis URL has a scheme"
        raise ThrottleError(f"{found}; say redis://, rediss:// or unix://")
    for word in ("NONE", "OPTIONAL", "REQUIRED"):  # kombu's spelling
        url = url.replace(f"ssl_cert_reqs=CERT_{word}", f"ssl_cert_reqs={word.lower()}")
    if scheme in ("valkey", "valkeys"):
        return scheme.replace("valkey", "redis") + url[len(scheme) :]
    if scheme == "redis+socket":  # kombu's name for it
        return url.replace("redis+socket://", "unix://", 1).replace("virtual_host=", "db=")
    return url


_NO_CLUSTER = "tasks cannot be limited on Redis Cluster yet: only a Limiter or an AsyncLimiter takes a RedisCluster"


class Store:
    """Calls scripts on one Redis, whoever the process is now (it reconnects after a fork).

    Args:
        source: URL, client, or factory of a client.
        namer: names of the keys.
        timeout: seconds one command may take.
        now: test clock giving µs since the epoch; `None`: the server's clock decides.
        options: keywords of the connection, for a URL.
        total: whether `timeout` is for all that a call does, connecting and its retries included, whatever the client
            itself would do; for those who answer requests. It tries once. And they alone may have a Redis Cluster.
        spread: whether on a cluster each bucket has a hash slot of its own, and not the scope's.
    """

    def __init__(
        self,
        source: Source,
        namer: Namer | None = None,
        *,
        timeout: float = 5.0,
        now: Callable[[], int] | None = None,
        options: Mapping[str, Any] | None = None,
        total: bool = False,
        spread: bool = True,
    ) -> None:
        if not isinstance(source, (str, redis.Redis, redis.RedisCluster)) and not callable(source):
            raise ThrottleError(f"{type(source).__name__} is no redis.Redis")
        if isinstance(source, redis.RedisCluster) and not total:
            raise ThrottleError(_NO_CLUSTER)
        self.namer = namer or Namer()
        self._source = check_url(source) if isinstance(source, str) else source
        self._timeout, self._now, self._options, self._total = timeout, now, options or {}, total
        self._spread = spread
        self._lock, self._pid = threading.Lock(), 0
        #: One connection and no pool, for a process with one thread: saves a poll of the socket per command.
        self.single = False
        self._client: Any = None
        self._wire: Wire | None = None
        #: The wire, if it has a pool: that knows of a fork by itself, and saves us the asking.
        self._pooled: Wire | None = None

    @property
    def client(self) -> Any:
        """The Redis client of this process."""
        if self._client is None or self._pid != os.getpid():
            with self._lock:
                if self._client is None or self._pid != os.getpid():
                    client = self._connect()
                    self._wire = wire(client)
                    self._pooled = self._wire if getattr(client, "connection", None) is None else None
                    self._client, self._pid = client, os.getpid()
        return self._client

    @property
    def made(self) -> Any:
        """The client, if there is one already: a factory may fail, and one more try would cost time."""
        return self._client

    def _caller(self) -> Any:
        """What scripts are called on."""
        client = self.client
        return self._wire or client

    def _connect(self) -> Any:
        client = self._plain()
        return within(client, self._timeout) if self._total else client

    def _plain(self) -> Any:
        if isinstance(self._source, str):
            return redis.Redis.from_url(
                self._source,
                socket_timeout=self._timeout,
                socket_connect_timeout=self._timeout,
                single_connection_client=self.single,
                **self._options,
            )
        made = self._source if isinstance(self._source, (redis.Redis, redis.RedisCluster)) else self._made(self._source)
        return self._cluster(made) if isinstance(made, redis.RedisCluster) else _undecoded(made)

    def _made(self, factory: Callable[[], Any]) -> Any:
        try:
            return factory()
        except RedisClusterException as exc:  # no RedisError to redis-py, but a cluster's client connects when made
            raise RedisConnectionError(str(exc)) from exc

    def _cluster(self, client: redis.RedisCluster) -> Any:
        if not self._total:
            raise ThrottleError(_NO_CLUSTER)
        from throttle.cluster import Cluster  # which has stores itself

        return Cluster(client, self.namer, self._timeout, spread=self._spread)

    @property
    def clock(self) -> Callable[[], int] | None:
        """The test clock, if there is one."""
        return self._now

    def now(self) -> str:
        """The first argument of every script: '' lets Redis read its own clock."""
        return "" if self._now is None else str(self._now())

    def run(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run one script; its first argument, the time, is added here.

        Raises:
            StoreUnavailable: Redis cannot serve now.
        """
        try:
            return script(name)(self._pooled or self._caller(), keys, (self.now(), *args))
        except RedisError as exc:
            raise translate(exc) from exc

    def run_plain(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """As `run`, for the scripts that need no time."""
        try:
            return script(name)(self._pooled or self._caller(), keys, args)
        except RedisError as exc:
            raise translate(exc) from exc

    def ask(self, name: str, keys: Sequence[str], text: str) -> Any:
        """As `run_plain` with one argument, by the shortest way: a request waits for it."""
        if self._pooled is not None and self.namer.prefix.isascii():  # what else is in a key is ASCII by itself
            try:
                return self._pooled(script(name).packed_text(keys, text))
            except NoScriptError:
                return self.command("EVAL", script(name).text, len(keys), *keys, text)
            except RedisError as exc:
                raise translate(exc) from exc
        return self.run_plain(name, keys, (text,))

    def command(self, *command: Any) -> Any:
        """One plain command, with the same errors as `run`."""
        try:
            return self.client.execute_command(*command)
        except RedisError as exc:
            raise translate(exc) from exc

    def close(self) -> None:
        """Let go of the connections; the next use makes new ones."""
        if self._client is not None and isinstance(self._source, str) and self._pid == os.getpid():
            self._client.close()
        self._client = self._wire = self._pooled = None


def _undecoded(client: Any) -> Any:
    """The client, or one like it that does not decode replies: parked messages are bytes of any kind."""
    pool = getattr(client, "connection_pool", None)
    if pool is None or not pool.connection_kwargs.get("decode_responses"):
        return client
    options = {**pool.connection_kwargs, "decode_responses": False}
    return type(client)(connection_pool=type(pool)(connection_class=pool.connection_class, **options))


def troubled(error: BaseException | None) -> bool:
    """Whether it is the server or the way to it that is in trouble, and not one key, script or permission."""
    if isinstance(error, (RedisConnectionError, RedisTimeout, *_SERVER)):
        return True
    return any(word in str(error) for word in _SERVER_WORDS)


def translate(exc: RedisError) -> Exception:
    """`StoreUnavailable`, whatever Redis's reason, but for what callers handle themselves."""
    text = str(exc)
    if text.startswith("UNDECLARED"):
        return exc
    if "not allowed from script" in text or "non deterministic" in text:
        return ThrottleError(f"this Redis does not allow TIME in scripts ({text}); version 6.2 or later does")
    if "user_script" in text and not (isinstance(exc, _SERVER) or any(word in text for word in _SERVER_WORDS)):
        logger.error("a script failed, which is a bug of celery-throttled; tasks wait meanwhile: %s", text)
    if isinstance(exc, AskError) or text.startswith(("MOVED ", "ASK ")):
        return StoreUnavailable(f"this Redis is a cluster: make the limiter from a redis.RedisCluster ({text})")
    if "can't run this command" in text or "NOPERM" in text:
        return StoreUnavailable(f"Redis's ACL forbids a command that limits need; lua/README.md lists all ({text})")
    return StoreUnavailable(f"Redis cannot serve: {text or type(exc).__name__}")
