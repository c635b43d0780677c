"""Rules for any ASGI app: FastAPI, Starlette, Litestar, or none of them.

    app = ThrottleMiddleware(app, guard)                 # around everything
    app.add_middleware(ThrottleMiddleware, guard=guard)  # Starlette, FastAPI: within their error handling
    Litestar(..., middleware=[DefineMiddleware(ThrottleMiddleware, guard=guard)])

Responses, streams and background tasks pass as they are: fields are added to the first message of an answer, and
nothing is buffered. Responses of layers that stand outside this one, CORS for example, are theirs.

A websocket is refused before it is accepted: with the whole answer where the server has the extension
`websocket.http.response` (uvicorn and hypercorn do), else closed with 1008, which clients see as a 403.

`BacklogFull`, `StoreUnavailable` and `Throttled` that the app raises before it answers are answered, if they get here:
Starlette lets them through to middleware that was added to the app; Litestar needs an exception handler for them, that
says `throttle.views.answer_to(exc, guard)`.

Source: the ASGI specification 3.0, with its extension "Websocket Denial Response".
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from typing import Any

from throttle.asking import Asking, Ledger
from throttle.checks import callable_with, the_app, the_guard
from throttle.http import Refusal
from throttle.routes import Route, tell_unserved
from throttle.rules import Guard
from throttle.views import ANSWERED, answer_to

__all__ = ["GUARD", "ThrottleMiddleware", "asking_of", "refuse", "template_of"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]  # frameworks have types of their own for the three

#: Where layers further in find the guard: a key of the scope.
GUARD = "throttle.guard"

#: "Policy violation" (RFC 6455 section 7.4.1).
POLICY_VIOLATION = 1008

_FIRST = {"http.response.start": 200, "websocket.http.response.start": 403, "websocket.accept": 101}


class ThrottleMiddleware:
    """Refuses what a guard refuses, and tells the rest what is left.

    Args:
        app: any ASGI app.
        guard: with an `AsyncLimiter`; a `Limiter` waits in a thread.
        request: makes of a scope what callables of rules find as `asking.request`; the scope itself unless said.

    Raises:
        ThrottleError: something else than these.
    """

    def __init__(self, app: App, guard: Guard, request: Callable[[Any], Any] | None = None) -> None:
        call = "ThrottleMiddleware(app, guard)"
        self.app, self.guard, self._request = the_app(app, None, call), the_guard(guard, call), request
        if request is not None:
            callable_with("request", request, "scope")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if not self.guard.is_told:  # when the server starts, if it tells of that
            app = _routing(scope, self.app)
            root = scope.get("root_path") or getattr(app, "root_path", "")
            tell_unserved(self.guard, lambda: _routes(app), root or (None if scope["type"] == "lifespan" else ""))
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        scope[GUARD] = self.guard
        asking = asking_of(scope, self.app)
        if self._request is not None:
            asking.request = self._request(scope)
        answer = _Answer(asking.ledger, send)
        try:
            outcome = await self.guard.acheck(asking)
            if outcome.refusal is None:
                await self.app(scope, receive, answer.send)
            else:
                await refuse(scope, receive, send, outcome.refusal)
        except ANSWERED as error:
            if answer.begun:
                raise
            await refuse(scope, receive, answer.send, answer_to(error, self.guard))


class _Answer:
    """Passes an answer on, with the fields that it misses."""

    __slots__ = ("_ledger", "_send", "begun")

    def __init__(self, ledger: Ledger, send: Send) -> None:
        self._ledger, self._send, self.begun = ledger, send, False

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind in _FIRST:
            self.begun = True
            message = self._told(message, message.get("status", _FIRST[kind]))
        await self._send(message)

    def _told(self, message: Message, status: int) -> Message:
        if not self._ledger.fields:
            return message
        headers = list(message.get("headers") or ())
        missing = self._ledger.missing([str(name, "latin-1") for name, _ in headers], status)
        return {**message, "headers": headers + _pairs(missing)} if missing else message


def asking_of(scope: Scope, app: Any = None) -> Asking:
    """An ASGI connection as limits see it.

    Args:
        scope: of type "http" or "websocket"; the request's ledger is kept in it.
        app: where to look for routes, if the scope does not say.
    """
    client = scope.get("client")
    return Asking(
        method=scope.get("method", "GET"),  # the handshake of a websocket is a GET
        path=scope["path"],
        peer=client[0] if client else None,
        headers=scope["headers"],
        route=scope.get("path_template"),  # Litestar's; its middleware runs after routing
        root=scope.get("root_path") or "",
        request=scope,
        find_route=lambda: template_of(scope, _routing(scope, app)),
        ledger=Ledger.of(scope),
    )


async def refuse(scope: Scope, receive: Receive, send: Send, answer: Refusal) -> None:
    """Send a refusal, for HTTP or in place of accepting a websocket."""
    prefix = ""
    if scope["type"] == "websocket":
        if "websocket.http.response" not in (scope.get("extensions") or {}):
            await send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": "rate limit"})
            return
        prefix = "websocket."
    length = {"Content-Length": str(len(answer.body))}
    headers = _pairs({**answer.fields, **length})
    await send({"type": f"{prefix}http.response.start", "status": answer.status, "headers": headers})
    body = b"" if scope.get("method") == "HEAD" else answer.body
    await send({"type": f"{prefix}http.response.body", "body": body})


def _pairs(fields: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in fields.items()]


# -- routes --------------------------------------------------------------------------------------------------


def template_of(scope: Scope, app: Any) -> str | None:
    """The template of the route that Starlette's routing would choose; `None` if none, or of another kind."""
    with contextlib.suppress(Exception):  # of a router: that is for it to tell, when it is asked
        return _find(getattr(app, "routes", ()), dict(scope))
    return None


def _routing(scope: Scope, app: Any) -> Any:
    """Whatever knows the routes, if anything does."""
    return app if hasattr(app, "routes") else scope.get("app")


def _routes(app: Any, prefix: str = "") -> Iterator[Route]:
    for route in _flat(getattr(app, "routes", ())):
        template = prefix + str(getattr(route, "path", ""))
        methods = frozenset(getattr(route, "methods", None) or ())
        if getattr(route, "routes", None):  # of an app that is mounted here
            yield from _routes(route, template)
        else:
            yield Route(template, methods) if methods else Route(template + "/*")  # apps of other kinds, websockets


def _find(routes: Iterable[Any], scope: Scope) -> str | None:
    partial: str | None = None
    for route in _flat(routes):
        match, inner = route.matches(scope)
        if not match.value:
            continue
        template = str(getattr(route, "path", ""))
        if hasattr(route, "routes"):  # of an app that is mounted here
            template += _find(route.routes, {**scope, **inner}) or "/*"
        if match.value == 2:  # of path and method
            return template
        partial = partial or template
    return partial


def _flat(routes: Iterable[Any]) -> Iterable[Any]:
    """FastAPI's newer versions keep included routers as they are, and what including adds in contexts."""
    for route in routes:
        contexts = getattr(route, "effective_route_contexts", None)
        if callable(contexts):
            yield from (getattr(context, "starlette_route", None) or context for context in contexts())
        else:
            yield route
