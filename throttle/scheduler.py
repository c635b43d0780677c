"""The leaky-bucket scheduler: releases what is due. Any number may run; one leads and does the work."""

from __future__ import annotations

import logging
import math
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any
from uuid import uuid4

from redis.exceptions import RedisError, ResponseError

from throttle.backlog import Backlog
from throttle.declared import SCOPES_TTL
from throttle.entry import Due
from throttle.envelope import Envelope
from throttle.errors import StoreUnavailable, ThrottleError
from throttle.publisher import OUTAGES, Publisher
from throttle.scripts import script
from throttle.store import Store, translate

logger = logging.getLogger(__name__)

LEAD = 2.5  #: s a leader's lease lasts: after its death releases go on within 3 s
RENEW = 0.8 * LEAD
ROUND = 0.008  #: s between two looks at one scope: at 1,000/s it takes 8 tasks at a time
CONFIRM = 1.0  #: s within which a published task is confirmed (its claim lasts 5)
SWEEP = 30.0  #: s between looks for scopes that a lost notification did not tell of

UNREADABLE = "scope %s: task %s waits in a form unknown here, tried again in 5 s; is this version the older one? %s"
UNPUBLISHED = "scope %s: task %s is refused by the broker, tried again in 5 s; see its queue and its message: %r"


class Scheduler:
    """Releases the due tasks of every scope of one Redis.

    Args:
        store: where the backlogs are.
        publisher: where released tasks go.
        known: backlogs this process can declare, should Redis not know their limits.
        leader_key: the lease, where schedulers with another target compete among themselves.
        serves: whether a scope is this scheduler's business (a smoother's goes to its own target).
    """

    def __init__(
        self,
        store: Store,
        publisher: Publisher,
        known: Callable[[], Iterable[Backlog]] = tuple,
        *,
        leader_key: str | None = None,
        serves: Callable[[str], bool] = lambda scope: True,
    ) -> None:
        self.store, self.publisher = store, publisher
        self._known, self._serves = known, serves
        self._leader_key = leader_key or store.namer.leader
        self._me = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.leading, self._left = False, 0
        self._scopes: dict[str, _Scope] = {}
        self._pubsub: Any = None

    # -- life ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Run in a thread of its own."""
        self._thread = threading.Thread(target=self.run, name="throttle-scheduler", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Finish the round, give up the lead, and end."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def run(self) -> None:
        """Lead when possible, else wait for the leader's lease to end; until `stop`."""
        pause, failures = 0.0, 0
        while not self._stop.wait(pause):
            try:
                pause = self._lead_on() if self._take_lead() else self._leaders_lease()
                failures = 0
            except (StoreUnavailable, RedisError, OSError) as exc:
                failures += 1
                pause = min(2.0, 0.1 * 2**failures) * random.uniform(0.5, 1)  # noqa: S311 - spreads a fleet
                log = logger.warning if failures % 30 == 1 else logger.debug  # about once a minute
                log("scheduler: no waiting task is released until Redis serves: %s", exc)
                self._drop()
            except Exception:
                pause = 1.0
                logger.exception("scheduler: an error that should not be; waiting tasks stay in Redis, next try in 1 s")
                self._drop()
        self._resign()

    # -- leading ---------------------------------------------------------------------------------------

    def _lead(self, mode: str = "take") -> list[int]:
        try:
            args = [self._me, int(LEAD * 1000), mode]
            reply: list[int] = script("lead")(self.store.client, [self._leader_key], args)
        except RedisError as exc:
            raise translate(exc) from exc
        return reply

    def _take_lead(self) -> bool:
        leads, left = self._lead()
        self.leading, self._left = leads == 1, left
        return self.leading

    def _leaders_lease(self) -> float:
        return max(0.05, self._left / 1000) + random.uniform(0.01, 0.1)  # noqa: S311 - so that two do not collide

    def _lead_on(self) -> float:
        """Do the work until the lead is lost or `stop`; returns how long to wait then."""
        logger.info("scheduler: this process now releases the waiting tasks, as %s", self._me)
        self._scopes.clear()
        self._open_publisher()
        self._listen()
        renew, sweep = time.monotonic() + RENEW, 0.0
        while not self._stop.is_set():
            now = time.monotonic()
            if now >= renew:
                if not self._take_lead():
                    return self._leaders_lease()
                renew = now + RENEW
            if now >= sweep:
                self._discover()
                sweep = now + SWEEP
            for scope in [scope for scope in self._scopes.values() if scope.due <= now]:
                self._serve(scope)
            first = min((scope.due for scope in self._scopes.values()), default=sweep)
            self._await(min(first, renew, sweep))
        return 0.0

    def _discover(self) -> None:
        pipe = self.store.client.pipeline(transaction=False)
        members, _ = pipe.smembers(self.store.namer.scopes).expire(self.store.namer.scopes, SCOPES_TTL).execute()
        names = {name.decode() if isinstance(name, bytes) else name for name in members}
        for backlog in self._known():
            if self._serves(backlog.scope):
                self._scopes.setdefault(backlog.scope, _Scope(backlog))
        for name in names:
            if name not in self._scopes and self._serves(name):
                self._scopes[name] = _Scope(Backlog(self.store, name, ()))

    def _serve(self, scope: _Scope) -> None:
        """One look at one scope: confirm, recover, release, publish."""
        now = time.monotonic()
        recover = now >= scope.recover
        try:
            wait, _, due, lease = scope.backlog.release(
                published=scope.unconfirmed, recover=recover, final=self.publisher.final
            )
        except ResponseError as exc:
            if not str(exc).startswith("UNDECLARED"):
                raise
            scope.due = now + SWEEP
            if scope.backlog.limits:
                scope.backlog.declare(replace=False)
                scope.due = now
            return
        scope.served, scope.recover = now, now + lease / 1e6 if lease >= 0 else math.inf
        scope.unconfirmed = []
        scope.due = now + max(ROUND, wait / 1e6)
        for i, task in enumerate(due):
            if not self._publish(scope, task):
                scope.backlog.recover([lost.id for lost in due[i:]])
                scope.due = time.monotonic() + scope.back_off()
                return
        if due:
            scope.failures = 0
            scope.due = min(scope.due, now + CONFIRM)

    def _publish(self, scope: _Scope, task: Due) -> bool:
        try:
            envelope = Envelope.load(task.message)
        except (ValueError, TypeError) as exc:
            logger.error(UNREADABLE, scope.backlog.scope, task.id, exc)  # noqa: TRY400
            return True
        try:
            self.publisher.publish(envelope, task)
        except Exception as exc:
            self._close_publisher()
            if not isinstance(exc, OUTAGES):  # it is the message: tried again when its lease ends, in 5 s
                logger.error(UNPUBLISHED, scope.backlog.scope, task.id, exc)  # noqa: TRY400
                return True
            scope.failures += 1
            log = logger.warning if scope.failures == 1 else logger.debug
            log("scope %s: its tasks stay in Redis until the broker can be reached: %r", scope.backlog.scope, exc)
            return False
        scope.unconfirmed.append(task)
        return True

    # -- waiting ---------------------------------------------------------------------------------------

    def _listen(self) -> None:
        self._drop()
        channel = self.store.namer.channel
        self._pubsub = self.store.client.pubsub(ignore_subscribe_messages=True)
        try:
            self._pubsub.subscribe(channel)
            self._pubsub.get_message(timeout=1.0)
        except ResponseError as exc:
            logger.warning(
                "scheduler: may not SUBSCRIBE to %s, so tasks may start %.0f s late: %s", channel, SWEEP, exc
            )
            self._pubsub = None

    def _await(self, until: float) -> None:
        """Sleep until then, or until a producer tells of something earlier."""
        while not self._stop.is_set():
            left = until - time.monotonic()
            if left <= 0:
                return
            if self._pubsub is None:
                self._stop.wait(min(left, 0.25))
                continue
            message = self._pubsub.get_message(timeout=min(left, 0.5))
            if message and message["type"] == "message":
                self._notified(message["data"])
                return

    def _notified(self, data: bytes | str) -> None:
        name = data.decode() if isinstance(data, bytes) else data
        if not self._serves(name):
            return
        scope = self._scopes.get(name)
        if scope is None:
            known = {backlog.scope: backlog for backlog in self._known()}
            scope = self._scopes[name] = _Scope(known.get(name) or Backlog(self.store, name, ()))
        if not scope.failures:  # a broker that refuses is not asked sooner
            scope.due = scope.served + ROUND

    # -- letting go ------------------------------------------------------------------------------------

    def _drop(self) -> None:
        self.leading = False
        pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None:
            try:
                pubsub.close()
            except (RedisError, OSError) as exc:
                logger.debug("closing the subscription: %s", exc)

    def _open_publisher(self) -> None:
        try:
            self.publisher.open()
        except Exception as exc:
            logger.debug("connecting the publisher: %r", exc)
            self._close_publisher()

    def _close_publisher(self) -> None:
        try:
            self.publisher.close()
        except Exception as exc:
            logger.debug("closing the publisher: %r", exc)

    def _resign(self) -> None:
        try:
            for scope in self._scopes.values():
                if self.publisher.final:
                    scope.backlog.forget(*((task.id, task.ticket) for task in scope.unconfirmed), done=True)
                else:
                    scope.backlog.confirm((task.id, task.ticket) for task in scope.unconfirmed)
            self._lead("resign")
        except (ThrottleError, RedisError, OSError) as exc:
            logger.debug("resigning: %s", exc)
        self._drop()
        self._close_publisher()


class _Scope:
    """What the leader remembers of a scope between two looks."""

    __slots__ = ("backlog", "due", "failures", "recover", "served", "unconfirmed")

    def __init__(self, backlog: Backlog) -> None:
        self.backlog = backlog
        self.due = self.served = self.recover = 0.0
        self.unconfirmed: list[Due] = []
        self.failures = 0

    def back_off(self) -> float:
        """Seconds to leave a broker alone that refuses: 0.2, 0.4 … 5."""
        return float(min(5.0, 0.1 * 2 ** min(self.failures, 10)))
