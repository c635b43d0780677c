"""A message as it is kept while it waits: all a broker was given, its body byte for byte."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kombu.compression import compress
from kombu.utils import json

from throttle.ticket import HANDED, HEADER

#: Properties that a transport sets anew for each delivery.
_PER_DELIVERY = frozenset(
    ("delivery_info", "delivery_tag", "body_encoding", "content_type", "content_encoding", "application_headers")
)


@dataclass(frozen=True, slots=True)
class Envelope:
    """One message: `body` as on the wire (serialised, compressed), and how it was addressed."""

    body: bytes
    content_type: str
    content_encoding: str
    headers: dict[str, Any]
    properties: dict[str, Any]
    exchange: str
    routing_key: str
    queue: str | None = field(default=None)

    def dump(self) -> bytes:
        """One line of JSON (kombu's, which knows dates, bytes and decimals), then the body."""
        head = (
            self.content_type, self.content_encoding, self.headers, self.properties,
            self.exchange, self.routing_key, self.queue,
        )  # fmt: skip
        return json.dumps(head).encode() + b"\n" + self.body

    @classmethod
    def load(cls, data: bytes) -> Envelope:
        """Read what `dump` wrote.

        Raises:
            ValueError: the bytes are no envelope.
        """
        head, found, body = data.partition(b"\n")
        if not found:
            raise ValueError("not an envelope: no header line")
        return cls(body, *json.loads(head))

    @classmethod
    def of(cls, message: Any) -> Envelope:
        """The envelope of a message that a kombu consumer received."""
        headers = {
            name: value for name, value in message.headers.items() if name not in (HEADER, HANDED, "redelivered")
        }
        body = message.body.encode() if isinstance(message.body, str) else bytes(message.body)
        if headers.get("compression"):  # kombu unpacked it on receipt
            body, _ = compress(body, headers["compression"])
        info = message.delivery_info or {}
        properties = {name: value for name, value in message.properties.items() if name not in _PER_DELIVERY}
        return cls(
            body, message.content_type, message.content_encoding, headers, properties,
            info.get("exchange") or "", info.get("routing_key") or "",
        )  # fmt: skip

    def publish(self, producer: Any, header: str | None, **options: Any) -> None:
        """Give it to a broker as it is, with our header if one is given."""
        headers = self.headers if header is None else {**self.headers, HEADER: header}
        properties = dict(self.properties)
        expiration = properties.pop("expiration", None)
        producer.publish(
            self.body,
            content_type=self.content_type,
            content_encoding=self.content_encoding,
            headers=headers,
            expiration=None if expiration is None else int(expiration) / 1000,
            **{"exchange": self.exchange, "routing_key": self.routing_key, **properties, **options},
        )
