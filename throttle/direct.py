"""Where broker and limits are the same Redis, submit publishes in the same step: one round trip, as plain Celery."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from kombu.transport import redis as kombu_redis

from throttle.envelope import HEADER, Envelope
from throttle.store import Store

#: Stands in the message for the header that only the script knows; no text from outside can hold it.
PLACEHOLDER = f"@{uuid4().hex}@"


def direct(producer: Any, store: Store, envelope: Envelope, declare: Any) -> tuple[str, str] | None:
    """The queue's key and the message as the transport would push it; `None` where only publishing will do."""
    channel = producer.channel
    if envelope.exchange or not _same_server(channel, store) or getattr(producer._batch_local, "current", None):
        return None
    for entity in declare or ():
        producer.maybe_declare(entity)
    properties = dict(envelope.properties)
    _, properties["delivery_mode"] = producer._delivery_details("", properties.get("delivery_mode"))
    headers = {**envelope.headers, HEADER: PLACEHOLDER}
    priority = properties.pop("priority", 0)
    message = channel.prepare_message(
        envelope.body, priority, envelope.content_type, envelope.content_encoding, headers, properties
    )
    captured = _Captured()
    channel.basic_publish(message, exchange="", routing_key=envelope.routing_key, _publish_batch=captured)
    return captured.push(channel.global_keyprefix)


class _Captured:
    """What kombu (5.7) calls a publish batch: it collects the transport's commands. We take them from it."""

    def __init__(self) -> None:
        self._commands: list[tuple[str, tuple[Any, ...]]] = []

    def add(self, command: str, *args: Any) -> None:
        self._commands.append((command, args))

    def push(self, prefix: str) -> tuple[str, str] | None:
        """Key and payload, if pushing is all there is to do (not where the queue expires, say)."""
        if [command for command, _ in self._commands] != ["lpush"]:
            return None
        key, payload = self._commands[0][1]
        return prefix + key, payload


def _same_server(channel: Any, store: Store) -> bool:
    known: tuple[Any, bool] | None = getattr(channel, "_throttle_same_server", None)
    if known is None or known[0] is not store:
        able = type(channel) is kombu_redis.Channel and hasattr(channel, "create_publish_batch")
        same = able and _address(channel._connparams()) == _address(_kwargs(store.client))
        known = channel._throttle_same_server = (store, same)
    return known[1]


def _kwargs(client: Any) -> dict[str, Any]:
    pool = getattr(client, "connection_pool", None)
    return dict(pool.connection_kwargs) if pool is not None else {}


def _address(params: dict[str, Any]) -> tuple[Any, ...]:
    return params.get("path") or (params.get("host"), params.get("port")), int(params.get("db") or 0)
