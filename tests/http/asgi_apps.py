"""A client for ASGI apps in this process, and the smallest of apps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple

PEER = ("192.0.2.1", 50000)
DENIAL = {"websocket.http.response": {}}


class Answer(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    messages: list[dict[str, Any]]

    def all(self, name: str) -> list[str]:
        return [value for field, value in self.headers if field.lower() == name.lower()]

    def __getitem__(self, name: Any) -> Any:
        [value] = self.all(name)  # exactly one
        return value


def scope(
    method: str = "GET", path: str = "/", headers: Iterable[tuple[str, str]] = (), kind: str = "http", **more: Any
) -> dict[str, Any]:
    lines = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    made = {
        "type": kind, "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": method,
        "path": path, "raw_path": b"/", "query_string": b"", "root_path": "", "headers": lines, "client": PEER,
        "server": ("testserver", 80), "scheme": "http" if kind == "http" else "ws", "extensions": {}, "state": {},
    }  # fmt: skip
    if kind == "websocket":
        del made["method"]
        made["subprotocols"] = []
    return {**made, **more}


async def call(app: Any, made: dict[str, Any] | None = None, body: bytes = b"", **request: Any) -> Answer:
    """One request, or one handshake; an error of the app's is raised here."""
    made = made or scope(**request)
    sent: list[dict[str, Any]] = []
    first = {"type": "http.request", "body": body, "more_body": False}
    waiting = [first] if made["type"] == "http" else [{"type": "websocket.connect"}]

    async def receive() -> dict[str, Any]:
        if waiting:
            return waiting.pop(0)
        if made["type"] == "websocket":
            return {"type": "websocket.disconnect", "code": 1000}
        return await asyncio.Event().wait()  # type: ignore[return-value]  # the client stays

    async def send(message: Any) -> None:
        sent.append(dict(message))

    await app(made, receive, send)
    return answer(sent)


def answer(sent: list[dict[str, Any]]) -> Answer:
    starts = [message for message in sent if "headers" in message or message["type"].endswith("start")]
    start = starts[0] if starts else {}
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start.get("headers", ())]
    return Answer(start.get("status", 0), headers, b"".join(message.get("body", b"") for message in sent), sent)


async def hello(scope: Any, receive: Any, send: Any) -> None:
    """An app that says hello to all."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": "hello"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"hello"})
