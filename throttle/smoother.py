"""Queue smoothing for downstream systems that are not Celery: one queue in, another out, at a limit's pace."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from kombu import Connection, Consumer, Producer, Queue
from kombu.exceptions import OperationalError

from throttle.address import Address, connection_of, of_broker
from throttle.backlog import AHEAD, Backlog
from throttle.clock import Clock, sleep_until
from throttle.entry import Due, Entry
from throttle.envelope import Envelope
from throttle.errors import StoreUnavailable, ThrottleError
from throttle.keys import Namer
from throttle.limits import TokenBucket
from throttle.scheduler import Scheduler
from throttle.settings import MISSING
from throttle.store import Store

logger = logging.getLogger(__name__)

#: What the scopes of smoothers begin with; the schedulers of Celery workers leave them alone.
SCOPE = "queue:"

TARDY = 0.0005  #: s that count as in time
PREFETCH = 100  #: messages in hand at once; each is parked and acknowledged before the next


class Smoother:
    """Takes messages from `source`, parks what exceeds the limits, and lets it out to `target` at their pace.

    Messages are untouched (body, headers, properties) and acknowledged only once parked. What is let out is
    with the broker of `target` when it leaves here: whoever consumes it sees the limit's pace as long as it
    keeps up. Any number of smoothers may serve one source. A stall of more than 25 ms between taking a
    message out and publishing it brings the next one closer by the excess; a crash between publishing and
    the next look, 1 s at most, publishes those messages again.

    Args:
        connection: kombu `Connection` or URL of the broker.
        source, target: kombu `Queue` or name.
        limits: the policies, all or nothing. A key must be a value or a callable given the message.
        redis: URL, client or factory for the backlog; the broker's URL if that is Redis.
        prefix: what all keys in Redis begin with.

    Raises:
        ThrottleError: no limit, no Redis, or a key that is a template (there are no arguments to name).
    """

    def __init__(
        self,
        connection: Connection | str,
        source: Queue | str,
        target: Queue | str,
        *limits: TokenBucket,
        redis: Any = None,
        prefix: str = "throttle",
    ) -> None:
        self._connection = connection_of(lambda: Connection(connection)) if isinstance(connection, str) else connection
        self._source, self._target = _queue(source), _queue(target)
        if self._source.name == self._target.name:
            raise ThrottleError(f"source and target are both {self._target.name!r}: nothing would ever leave")
        if not limits or not all(isinstance(limit, TokenBucket) for limit in limits):
            raise ThrottleError('a smoother needs a limit: Smoother(url, "in", "out", TokenBucket("10/s"))')
        where = Address(redis) if redis else _redis_of(self._connection)
        self._store = Store(where.source, Namer(prefix), options=where.options)
        scope = f"{SCOPE}{self._source.name}>{self._target.name}"
        self._backlog = Backlog(self._store, scope, limits)
        for limit in limits:
            limit.check_cost(1)
            if limit.depth:
                raise ThrottleError(f"{limit!r}: what waits is in the smoother's backlog; leave out the depth")
            if isinstance(limit.key, str) and "{" in limit.key:
                raise ThrottleError(f"key {limit.key!r}: a smoother's key is a value or a callable given the message")
        publisher = _QueuePublisher(self._connection.clone(), self._target, Clock(self._store))
        leader = f"{self._store.namer.leader}:{self._store.namer.identity(scope)}"
        self._scheduler = Scheduler(
            self._store, publisher, lambda: [self._backlog], leader_key=leader, serves=lambda name: name == scope
        )
        self._stop, self._failures = threading.Event(), 0

    def depth(self) -> int:
        """Messages that wait."""
        return self._backlog.depth()

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop`, through failures of broker and Redis."""
        self._scheduler.start()
        passing: tuple[type[BaseException], ...] = (
            *self._connection.recoverable_connection_errors, OperationalError, StoreUnavailable,
        )  # fmt: skip
        try:
            while not self._stop.is_set():
                try:
                    self._backlog.declare(replace=True)
                    self._consume(ready)
                except passing as exc:
                    self._tell(exc)
                    self._stop.wait(1.0)
        finally:
            self._scheduler.stop()

    def stop(self) -> None:
        """Finish the message in hand and end; what waits stays in Redis."""
        self._stop.set()

    def _tell(self, exc: BaseException) -> None:
        self._failures += 1
        log = logger.warning if self._failures % 60 == 1 else logger.debug  # once a minute
        log("smoother %s: messages wait until broker and Redis serve: %s", self._backlog.scope, exc)

    def _consume(self, ready: Callable[[], None]) -> None:
        with self._connection.clone() as connection:
            queue = self._source(connection.default_channel)
            queue.declare()
            consumer = Consumer(
                connection.default_channel, [queue], on_message=self._park, prefetch_count=PREFETCH, auto_declare=False
            )
            with consumer:
                self._failures = 0
                ready()
                while not self._stop.is_set():
                    try:
                        connection.drain_events(timeout=0.5)
                    except TimeoutError:
                        connection.heartbeat_check()

    def _park(self, message: Any) -> None:
        entry = self._entry(message)
        redelivered = bool((message.delivery_info or {}).get("redelivered"))
        self._backlog.park(entry, redelivered=redelivered)
        message.ack()

    def _entry(self, message: Any) -> Entry:
        identity = self._store.namer.identity
        keys = []
        for limit in self._backlog.limits:
            key = limit.key(message) if callable(limit.key) else limit.key
            keys.append("-" if key is None else identity(key))
        apart = [key for limit, key in zip(self._backlog.limits, keys, strict=True) if limit.key is not None]
        lane = identity(",".join(apart)) if len(apart) > 1 else "".join(apart) or "-"
        id = str(message.properties.get("message_id") or message.headers.get("id") or message.delivery_tag)
        return Entry(id, lane, tuple(keys), (1,) * len(keys), Envelope.of(message).dump())


class _QueuePublisher:
    """Publishes to one queue, whatever exchange the message once came through."""

    def __init__(self, connection: Any, target: Any, clock: Clock) -> None:
        self._connection, self._target, self._clock = connection, target, clock
        self._producer: Any = None
        self._shift = 0.0

    final = True

    def publish(self, envelope: Envelope, task: Due) -> None:
        """At its slot, untouched: not even our own header is added."""
        slot = self._clock.local(task.slot, AHEAD / 1e6)
        sleep_until(slot + self._shift)
        self.open()
        # One that leaves late must not bring the next closer: all after it leave as much later.
        late = time.monotonic() - slot
        if late > self._shift + TARDY:
            self._shift = min(late, AHEAD / 1e6)
        envelope.publish(
            self._producer, None, exchange="", routing_key=self._target.name, declare=[self._target], retry=False
        )

    def open(self) -> None:
        """Connect, so that the first message is not late."""
        if self._producer is None:
            self._producer = Producer(self._connection.default_channel, auto_declare=False)
            self._producer.maybe_declare(self._target)

    def close(self) -> None:
        """Drop the connection; the next publish makes a new one."""
        self._producer = None
        self._connection.release()


def _queue(queue: Any) -> Any:
    return Queue(queue, routing_key=queue) if isinstance(queue, str) else queue


def _redis_of(connection: Any) -> Address:
    found = of_broker(connection)
    if found is None:
        raise ThrottleError(MISSING.replace("throttle_redis_url, as in app.conf.throttle_redis_url =", "redis="))
    return found
