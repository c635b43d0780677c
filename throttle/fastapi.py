"""Rules for FastAPI: for the whole app, and as dependencies of routes and routers.

    install(app, Guard(AsyncLimiter("redis://localhost", scope="api"), Rule("300/min", key="address")))

    @app.post("/sms", dependencies=[Depends(limit("10/min", key="api_key"))], responses=REFUSED)
    def send(...): ...

A refusal is an `HTTPException`, so an exception handler for 429 gets it, and the fields that it leaves out are added
to what it answers; handlers for `HTTPException` do not get it. Limits that are to be decided together belong in one
rule or one `limit(...)`: what an outer layer took is not given back when an inner one refuses.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable
from typing import Any

try:
    import http_sf  # noqa: F401 (what throttle.http needs; this extra brings both)
    from fastapi import FastAPI, HTTPException, Response, WebSocket, WebSocketException
    from fastapi.requests import HTTPConnection
    from fastapi.websockets import WebSocketState
except ImportError as missing:
    raise ImportError(
        'throttle.fastapi needs FastAPI and http-sf: pip install "celery-throttled[fastapi]"'
    ) from missing

from throttle.asgi import GUARD, POLICY_VIOLATION, ThrottleMiddleware, asking_of, template_of
from throttle.checks import the_app, the_guard
from throttle.errors import ThrottleError
from throttle.http import PROBLEM, Refusal
from throttle.rules import Asking, Guard, Limited
from throttle.views import ANSWERED, ViewLimits, answer_to

__all__ = ["REFUSED", "Limit", "LimitExceeded", "install", "limit"]

#: How a websocket ends that was accepted before it became clear that it cannot be served (IANA's registry of codes).
TRY_AGAIN_LATER = 1013

_SCHEMA = {
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "violated-policies": {"type": "array", "items": {"type": "string"}},
    },
}

#: For `responses=` of a route or router, where the schema is to tell of refusals: it does not otherwise.
REFUSED: dict[int | str, dict[str, Any]] = {
    429: {
        "description": "Too many requests; Retry-After says when to come back",
        "content": {PROBLEM: {"schema": _SCHEMA}},
        "headers": {"Retry-After": {"schema": {"type": "integer"}, "description": "seconds"}},
    }
}


class LimitExceeded(HTTPException):
    """A limit refused.

    Attributes:
        refusal: the whole answer.
    """

    def __init__(self, refusal: Refusal) -> None:
        headers = {name: value for name, value in refusal.fields.items() if name.lower() != "content-type"}
        super().__init__(refusal.status, _detail(refusal.body), headers)
        self.refusal = refusal


def _detail(body: bytes) -> str:
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, LookupError, TypeError):  # the body is `on_refused`'s, and may be anything
        return "Too many requests"


def install(app: FastAPI, guard: Guard) -> None:
    """Limit an app: its middleware, and answers to `LimitExceeded` and what the library raises in views.

    Middleware that is added later stands outside: add CORS after this, so that refusals get its headers too.
    Callables of rules find an `HTTPConnection` as `asking.request`.

    Args:
        app: not started yet.
        guard: its rules apply to every request, mounted apps and unknown paths included; it may have none.

    Raises:
        ThrottleError: something else than these.
    """
    the_app(app, FastAPI, "install(app, guard)")
    the_guard(guard, "install(app, guard)")

    async def answered(connection: Any, error: Any) -> Response | None:
        answer = _response(error.refusal if isinstance(error, LimitExceeded) else answer_to(error, guard))
        if not isinstance(connection, WebSocket):
            return answer
        if connection.application_state is WebSocketState.CONNECTING and _can_deny(connection.scope):
            await connection.send_denial_response(answer)  # older versions do not send what is returned
        else:
            await connection.close(TRY_AGAIN_LATER, "later")
        return None

    app.add_middleware(ThrottleMiddleware, guard=guard, request=HTTPConnection)
    handler: Any = answered  # for requests and websockets both, which its type cannot say
    for error in (LimitExceeded, *ANSWERED):
        app.add_exception_handler(error, handler)


def _response(answer: Refusal) -> Response:
    return Response(answer.body, answer.status, answer.fields)


class Limit:
    """What `limit` returns: a dependency.

    Args:
        limits: of the routes that it is given to.
        guard: unless said, that of `install`.
    """

    def __init__(self, limits: ViewLimits, guard: Guard | None) -> None:
        self._limits, self._guard = limits, guard
        self.__signature__ = inspect.signature(self._ask, eval_str=True)
        # Where FastAPI looks whether it must be awaited; Python, when it is called, takes the method of the class.
        self.__dict__["__call__"] = self._ask

    def __call__(self, connection: HTTPConnection, response: Response | None = None) -> Awaitable[None]:
        """Ask, for one request.

        Raises:
            ThrottleError: as a decorator it is called with a view.
        """
        if response is None:
            raise ThrottleError(
                'limit(…) is a dependency and no decorator: say @app.get("/…", dependencies=[Depends(limit("10/min"))])'
            )
        return self._ask(connection, response)

    async def _ask(self, connection: HTTPConnection, response: Response) -> None:
        scope, asking = connection.scope, asking_of(connection.scope)
        asking.request = connection
        outcome = await _guard(self._guard, scope).acheck(asking, self._limits.rule(*_route(scope)))
        if outcome.refusal is not None:
            raise _exception(scope, outcome.refusal)
        if GUARD not in scope:  # no middleware that adds them to whatever is answered
            response.headers.update(outcome.fields)


def limit(
    *limits: Limited,
    key: Any = None,
    cost: int | Callable[[Asking], Any] | None = None,
    name: str | None = None,
    guard: Guard | None = None,
) -> Limit:
    """A dependency that limits the routes it is given to, each route apart: `Depends(limit("10/min"))`.

    Args:
        limits: as `Rule` has them.
        key: as `Rule` has it.
        cost: as `Rule` has it.
        name: what the limits are called. Routes with one name share its limits; unless said, method and template.
        guard: unless said, that of `install`.

    Raises:
        ThrottleError: limits or a guard that make no sense; when asked, that there is no guard.
    """
    if guard is not None:
        the_guard(guard, "limit(…, guard=guard)")
    return Limit(ViewLimits(*limits, key=key, cost=cost, name=name), guard)


def _guard(guard: Guard | None, scope: Any) -> Guard:
    found = guard or scope.get(GUARD)
    if not isinstance(found, Guard):
        raise ThrottleError("limit() has no guard: call throttle.fastapi.install(app, guard), or say limit(guard=…)")
    return found


def _exception(scope: Any, answer: Refusal) -> Exception:
    if scope["type"] == "websocket" and not (GUARD in scope and _can_deny(scope)):
        return WebSocketException(POLICY_VIOLATION, "rate limit")
    return LimitExceeded(answer)


def _can_deny(scope: Any) -> bool:
    return "websocket.http.response" in (scope.get("extensions") or {})


def _route(scope: Any) -> tuple[str, set[str]]:
    """Template and methods of the route that was chosen; FastAPI keeps what including a router adds apart."""
    context = scope.get("fastapi", {}).get("effective_route_context")
    route = getattr(context, "starlette_route", None) or context or scope.get("route")
    template = getattr(route, "path", None) or template_of(scope, scope.get("app")) or "-"
    return template, set(getattr(route, "methods", None) or ()) - {"HEAD"}
