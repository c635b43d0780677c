"""Where released tasks go: back to the broker, as they were."""

from __future__ import annotations

from typing import Any, Protocol

from amqp.exceptions import ConnectionError as AMQPConnectionError
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from throttle.entry import Due
from throttle.envelope import Envelope

#: What says that the broker cannot be reached; any other error is about the message.
OUTAGES = (OSError, OperationalError, RedisError, AMQPConnectionError)


class Publisher(Protocol):
    """Gives a released task to where it belongs."""

    #: Whether what is published is done; a Celery task is not: its start ends its way.
    final: bool

    def publish(self, envelope: Envelope, task: Due) -> None:
        """Publish, or raise."""

    def open(self) -> None:
        """Connect ahead of the first task; may raise, and is tried again by `publish`."""

    def close(self) -> None:
        """Let go of connections; also after an error."""


class CeleryPublisher:
    """Publishes released tasks to the broker as they were, never through `apply_async` again."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._connection: Any = None
        self._producer: Any = None

    final = False

    def publish(self, envelope: Envelope, task: Due) -> None:
        """Raises what kombu raises when the broker cannot be reached."""
        self.open()
        declare = [self._app.amqp.queues[envelope.queue]] if envelope.queue else []
        envelope.publish(self._producer, str(task.header), declare=declare, retry=False)

    def open(self) -> None:
        """Connect, so that the first task is not late."""
        if self._producer is None:
            self._connection = self._app.connection_for_write()
            self._producer = self._app.amqp.Producer(self._connection.default_channel, auto_declare=False)

    def close(self) -> None:
        """Drop the connection; the next publish makes a new one."""
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            connection.close()
