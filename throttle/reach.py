"""How limiters of one process reach one Redis: one pool, one time budget, one breaker for all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

import redis

from throttle.breaker import Breaker
from throttle.errors import StoreUnavailable
from throttle.keys import Namer
from throttle.store import Source, Store, troubled
from throttle.timely import until

#: s before each further try, as far as the budget goes: a connection that was stale is made anew at once, and a
#: failover takes longer than any of them.
PAUSES = (0.0, 0.01, 0.04)

NOT_LATELY = "Redis has not answered lately, and is asked again once a second; {}"


class Reach:
    """Asks scripts within a time budget, and not at all while the breaker is open.

    Args:
        store: where to ask. One of its own if it came with the limiter, and then its timeout is its own affair.
        timeout: seconds one question may take, further tries included.
        breaker: another than the usual, for tests.
        sleep: for tests.
    """

    def __init__(
        self,
        store: Store,
        timeout: float = 0.25,
        breaker: Breaker | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.store, self.timeout, self.breaker, self._sleep = store, timeout, breaker or Breaker(), sleep

    def ask(self, name: str, keys: Sequence[str], text: str) -> Any:
        """The script's reply.

        Raises:
            StoreUnavailable: Redis did not answer in time, or the breaker is open.
        """
        if self.breaker.failed:
            return self._guarded(lambda: self.store.ask(name, keys, text))
        began = time.monotonic()
        try:
            return self.store.ask(name, keys, text)
        except StoreUnavailable as error:
            return self._again(lambda: self.store.ask(name, keys, text), error, began)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """The same for anything else that the store does."""
        return self._guarded(lambda: function(*args))

    def _guarded(self, call: Callable[[], Any]) -> Any:
        if not self.breaker.admits():
            raise StoreUnavailable(NOT_LATELY.format(self.breaker.why))
        began = time.monotonic()
        try:
            reply = call()
        except StoreUnavailable as error:
            return self._again(call, error, began)
        self.breaker.success()
        return reply

    def _again(self, call: Callable[[], Any], error: StoreUnavailable, began: float) -> Any:
        """Further tries after one has failed, over connections made anew."""
        end = self._end(began)
        if _busy(error):
            return self._when_free(call, error, end)
        for pause in PAUSES:
            if not troubled(error.__cause__):  # of one key or one permission, say: it would be the same again
                raise error
            self._drop()
            if self.breaker.open or time.monotonic() + pause >= end:
                break
            self._sleep(pause)
            try:
                with until(end):
                    reply = call()
            except StoreUnavailable as another:
                error = another
            else:
                self.breaker.success()
                return reply
        self.breaker.failure(error)
        raise error

    def _end(self, began: float) -> float:
        return began + self.timeout

    def _when_free(self, call: Callable[[], Any], error: StoreUnavailable, end: float) -> Any:
        """All connections of the pool are in use, which is no fault of Redis: others will let go of theirs."""
        while _busy(error) and time.monotonic() < end:
            self._sleep(0.002)
            try:
                return call()
            except StoreUnavailable as another:
                error = another
        raise error

    def _drop(self) -> None:
        """Let go of idle connections: they may lead to a server that is no master any more."""
        pool = getattr(self.store.made, "connection_pool", None)
        if pool is None:
            return
        try:
            pool.disconnect(inuse_connections=False)
        except TypeError:  # a pool that blocks, before redis-py 6, knows only all
            pool.disconnect()


def _busy(error: StoreUnavailable) -> bool:
    """Whether the pool had no connection left; redis-py has a class for it since version 7."""
    text = str(error.__cause__)
    return isinstance(error.__cause__, redis.ConnectionError) and text.startswith(("Too many conn", "No connection av"))


_reaches: WeakValueDictionary[tuple[Any, ...], Reach] = WeakValueDictionary()
_lock = Lock()


def reach(
    source: Source | Store,
    namer: Namer | None,
    timeout: float,
    now: Callable[[], int] | None,
    *,
    spread: bool = True,
) -> Reach:
    """The way to that Redis; the same for all in this process that say the same."""
    if isinstance(source, Store):
        return Reach(source, timeout)
    name = (source, timeout, now, spread, *(namer.terms if namer else ()))
    with _lock:
        made = _reaches.get(name)
        if made is None:
            store = Store(source, namer, timeout=timeout, now=now, total=True, spread=spread)
            made = _reaches[name] = Reach(store, timeout)
        return made
