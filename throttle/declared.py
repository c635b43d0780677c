"""One scope as Redis knows it: its limits, declared there, and its scripts, called."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from redis.exceptions import NoScriptError, RedisError, ResponseError

from throttle.limits import Limit, policy_of
from throttle.quota import Quota
from throttle.scripts import script
from throttle.store import Store, translate
from throttle.windows import Counted

SCOPES_TTL = 30 * 86400  #: s that the list of scopes lasts without a scheduler, which renews it
WINDOW = 64  #: tasks released and not started, at most, per scope and waiting lane …
WINDOW_TIME = 0.25  #: … or what the rate lets start in this many seconds, where that is more


class Declared:
    """A scope's limits and keys.

    Args:
        store: where.
        scope: which.
        limits: the policies; all tasks of the scope have the same.
    """

    def __init__(self, store: Store, scope: str, limits: Sequence[Limit]) -> None:
        self.store, self.scope, self.limits = store, scope, tuple(limits)
        self.tag = store.namer.identity(scope)  # the scope as it stands in Redis
        self.keys = store.namer.backlog(scope)
        self.names = tuple(policy_of(limit, str(i)) for i, limit in enumerate(limits, 1))
        self._counted = any(isinstance(limit, Counted) for limit in limits)
        self._bucket = store.namer.scope(scope) + "b:"
        self._registered = False
        self._lock = threading.Lock()

    def declare(self, *, replace: bool) -> None:
        """Store the limits; `replace` by a worker that starts, so that a deployed change takes effect."""
        args: list[Any] = ["replace" if replace else "missing", self.window, *self._bell()]
        for name, limit in zip(self.names, self.limits, strict=True):
            wide = 0 if limit.key is not None else 1
            counted = f" {limit.declared(self._time())}" if isinstance(limit, Counted) else ""
            args += (limit.interval, limit.burst, limit.fresh, limit.keep, wide, name + counted)
        self._call("declare", args)
        self.register()

    def _time(self) -> int:
        """Redis's, µs: by it the borders of quotas are found."""
        if self.store.clock:
            return self.store.clock()
        seconds, micros = self.store.command("TIME")
        return int(seconds) * 10**6 + int(micros)

    @property
    def window(self) -> int:
        """Most tasks released and not started."""
        paced = [
            limit for limit in self.limits if limit.interval and limit.key is None and not isinstance(limit, Quota)
        ]
        rates = [1e6 / limit.interval for limit in paced]
        return max(WINDOW, int(min(rates) * WINDOW_TIME)) if rates else 16 * WINDOW

    def register(self) -> None:
        """Make the scope known to schedulers that have never heard of it."""
        with self._lock:
            if not self._registered:
                self.store.command("SADD", self.store.namer.scopes, self.scope)
                self.store.command("EXPIRE", self.store.namer.scopes, SCOPES_TTL)
                self._registered = True

    # -- calling ---------------------------------------------------------------------------------------

    def _buckets(self, keys: Sequence[str]) -> list[str]:
        """The start bucket of each limit."""
        return [f"{self._bucket}{name}|{key}" for name, key in zip(self.names, keys, strict=True)]

    def _bell(self) -> list[str]:
        return [self.store.namer.channel, self.scope]

    def _call(self, name: str, args: Sequence[Any], buckets: Sequence[str] = (), *, timed: bool = True) -> Any:
        run: Callable[..., Any] = self.store.run if timed else self.store.run_plain
        return run(name, [*self.keys, *buckets], args)

    def _declared(self, name: str, args: Sequence[Any], buckets: Sequence[str] = ()) -> Any:
        """Call a script that needs the limits; declare them if Redis does not know them (any more)."""
        self.register()
        try:
            return self._call(name, args, buckets)
        except ResponseError as exc:
            if not str(exc).startswith("UNDECLARED"):
                raise
        self.declare(replace=False)
        return self._call(name, args, buckets)

    def _pipeline(self, calls: Sequence[tuple[str, Sequence[Any]]]) -> list[Any]:
        """Several scripts in one round trip; each runs alone, and an unknown one is loaded first."""
        try:
            pipe = self.store.client.pipeline(transaction=False)
            for name, args in calls:
                pipe.evalsha(script(name).sha, len(self.keys), *self.keys, *args)
            replies = pipe.execute(raise_on_error=False)
        except RedisError as exc:
            raise translate(exc) from exc
        for i, (name, args) in enumerate(calls):
            if isinstance(replies[i], NoScriptError):
                replies[i] = self._direct(name, args)
            elif isinstance(replies[i], RedisError):
                raise translate(replies[i]) from replies[i]
        return list(replies)

    def _direct(self, name: str, args: Sequence[Any]) -> Any:
        try:
            return script(name)(self.store.client, self.keys, args)
        except RedisError as exc:
            raise translate(exc) from exc
