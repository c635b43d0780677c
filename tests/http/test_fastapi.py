"""FastAPI: installed for an app, and as dependencies of routes and routers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import APIRouter, BackgroundTasks, Depends, FastAPI, HTTPException, Request, Response, WebSocket
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel

from tests.http.asgi_apps import DENIAL, Answer, call
from tests.services import RedisServer
from throttle import BacklogFull, Decision, Limiter, StoreUnavailable, ThrottleError, TokenBucket
from throttle.errors import Throttled
from throttle.fastapi import REFUSED, LimitExceeded, install, limit
from throttle.rules import Asking, Guard, Rule


@pytest.fixture
def limiter(server: RedisServer) -> Limiter:
    return Limiter(server.url(), scope="api", timeout=5)


def statuses(app: Any, *requests: dict[str, Any]) -> list[int]:
    async def main() -> list[int]:
        return [(await call(app, **request)).status for request in requests]

    return asyncio.run(main())


def one(app: Any, **request: Any) -> Answer:
    return asyncio.run(call(app, **request))


class Item(BaseModel):
    name: str


ran: list[str] = []


def routes(*dependencies: Any) -> APIRouter:
    """An endpoint of each kind."""
    router = APIRouter(dependencies=list(dependencies))

    @router.get("/dict")
    def a_dict() -> dict[str, str]:
        return {"name": "dict"}

    @router.get("/async")
    async def an_async() -> dict[str, str]:
        return {"name": "async"}

    @router.get("/model")
    def a_model() -> Item:
        return Item(name="model")

    @router.get("/response")
    def a_response() -> Response:
        return Response(b"response")

    @router.get("/stream")
    def a_stream() -> StreamingResponse:
        def parts() -> Iterator[bytes]:
            yield from (b"str", b"eam")

        return StreamingResponse(parts())

    @router.get("/background")
    def a_background(tasks: BackgroundTasks) -> dict[str, str]:
        tasks.add_task(ran.append, "background")
        return {"name": "background"}

    @router.get("/nothing", status_code=204, response_class=Response)
    def a_nothing() -> Response:
        return Response(status_code=204)

    @router.get("/missing")
    def a_missing() -> None:
        raise HTTPException(404)

    @router.websocket("/ws")
    async def a_websocket(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_text("websocket")

    return router


KINDS = {
    "/dict": 200, "/async": 200, "/model": 200, "/response": 200, "/stream": 200, "/background": 200, "/nothing": 204,
    "/missing": 404,
}  # fmt: skip


def app_with(limiter: Limiter, *rules: Rule, dependencies: Any = (), **options: Any) -> FastAPI:
    app = FastAPI()
    app.include_router(routes(*dependencies))
    install(app, Guard(limiter, *rules, **options))
    return app


@pytest.mark.parametrize("path", KINDS)
@pytest.mark.parametrize("way", ["middleware", "dependency", "both"])
def test_b102_endpoints_of_every_kind(limiter: Limiter, path: str, way: str) -> None:
    ran.clear()
    rules = [] if way == "dependency" else [Rule("2/min", key="address")]
    dependencies = [] if way == "middleware" else [Depends(limit("2/min", key="address"))]
    app = app_with(limiter, *rules, dependencies=dependencies)

    async def main() -> None:
        answers = [await call(app, path=path) for _ in range(3)]
        assert [answer.status for answer in answers] == [KINDS[path]] * 2 + [429]
        for answer in answers:
            assert answer["RateLimit"]
            assert answer["RateLimit-Policy"]
        assert not answers[0].all("Retry-After")
        assert answers[2]["Retry-After"] == "30"
        assert answers[2]["Content-Type"] == "application/problem+json"
        assert json.loads(answers[2].body)["status"] == 429

    asyncio.run(main())
    assert ran == (["background"] * 2 if path == "/background" else [])


@pytest.mark.parametrize("extensions", [{}, DENIAL])
@pytest.mark.parametrize("is_dependency", [True, False])
def test_b102_websockets(limiter: Limiter, extensions: Any, is_dependency: bool) -> None:
    rules = [] if is_dependency else [Rule("1/min")]
    app = app_with(limiter, *rules, dependencies=[Depends(limit("1/min"))] if is_dependency else [])

    async def main() -> None:
        first, second = [await call(app, path="/ws", kind="websocket", extensions=extensions) for _ in range(2)]
        assert [message["type"] for message in first.messages[:2]] == ["websocket.accept", "websocket.send"]
        assert first["RateLimit"]
        if extensions:
            assert (second.status, second["Retry-After"]) == (429, "60")
        else:
            assert [(message["type"], message.get("code")) for message in second.messages] == [
                ("websocket.close", 1008)
            ]

    asyncio.run(main())


def test_b102_the_schema_is_as_without() -> None:
    limiter = Limiter("redis://localhost:1")
    plain = FastAPI()
    plain.include_router(routes())
    limited = app_with(limiter, Rule("1/s"), dependencies=[Depends(limit("1/s", key="who"))])
    assert limited.openapi() == plain.openapi()
    told = FastAPI()
    told.include_router(routes(), responses=REFUSED)
    answers = told.openapi()["paths"]["/dict"]["get"]["responses"]
    assert "Retry-After" in answers["429"]["headers"]
    assert list(answers["429"]["content"]) == ["application/problem+json"]


# -- handlers of the app's own -------------------------------------------------------------------------------


async def house(request: Request, error: Any) -> JSONResponse:
    """As many apps have one: errors in the house's format, and nothing else of them."""
    await asyncio.sleep(0)
    return JSONResponse({"house": error.detail}, error.status_code)


@pytest.mark.parametrize("way", ["middleware", "dependency"])
@pytest.mark.parametrize("handled", [HTTPException, 429, LimitExceeded, Exception])
@pytest.mark.parametrize("is_first", [True, False])
def test_b98_what_a_client_needs_survives_handlers(limiter: Limiter, way: str, handled: Any, is_first: bool) -> None:
    app = FastAPI()
    if is_first:
        app.add_exception_handler(handled, house)
    app.include_router(routes(*([Depends(limit("1/min"))] if way == "dependency" else [])))
    install(app, Guard(limiter, *([] if way == "dependency" else [Rule("1/min")])))
    if not is_first:
        app.add_exception_handler(handled, house)

    async def main() -> None:
        first, second = [await call(app, path="/dict") for _ in range(2)]
        assert (first.status, first.all("Retry-After")) == (200, [])
        assert (second.status, second["Retry-After"], second["Cache-Control"]) == (429, "60", "no-store")
        assert second["RateLimit"].endswith(";r=0;t=60")
        is_house = way == "dependency" and (handled == 429 or (handled is LimitExceeded and not is_first))
        assert ("house" in json.loads(second.body)) is is_house

    asyncio.run(main())


def test_cors_around_it(limiter: Limiter) -> None:
    app = app_with(limiter, Rule("1/min"))
    app.add_middleware(CORSMiddleware, allow_origins=["https://example.com"], allow_methods=["*"])
    origin = [("Origin", "https://example.com")]

    async def main() -> None:
        asked = await call(
            app, method="OPTIONS", path="/dict", headers=[*origin, ("Access-Control-Request-Method", "GET")]
        )
        answers = [await call(app, path="/dict", headers=origin) for _ in range(2)]
        assert [asked.status, *(answer.status for answer in answers)] == [200, 200, 429]
        assert answers[1]["Access-Control-Allow-Origin"] == "https://example.com"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "status", "wait"),
    [
        (BacklogFull("sms", 90.0, 30.2), 503, "31"),
        (StoreUnavailable("down"), 503, "30"),
        (Throttled(Decision(False, 1, 0, 7.5, 9.0, (TokenBucket("1/s", name="inner"),))), 429, "8"),
    ],
)
@pytest.mark.parametrize("is_async", [True, False])
def test_b109_a_view_that_cannot_enqueue(
    limiter: Limiter, error: Exception, status: int, wait: str, is_async: bool
) -> None:
    app = FastAPI()

    def full() -> None:
        raise error

    async def async_full() -> None:
        raise error

    app.post("/sms")(async_full if is_async else full)
    install(app, Guard(limiter, Rule("9/min", key="address")))
    answer = one(app, method="POST", path="/sms")
    assert (answer.status, answer["Retry-After"]) == (status, wait)
    assert answer["RateLimit"]


@pytest.mark.parametrize(
    ("is_accepted", "extensions", "sent"),
    [(True, DENIAL, 1013), (False, {}, 1013), (False, DENIAL, "websocket.http.response.start")],
)
def test_b109_a_websocket_that_cannot_enqueue(limiter: Limiter, is_accepted: bool, extensions: Any, sent: Any) -> None:
    app = FastAPI()

    @app.websocket("/ws")
    async def view(websocket: WebSocket) -> None:
        if is_accepted:
            await websocket.accept()
        raise BacklogFull("sms", 90.0, 30.2)

    install(app, Guard(limiter))
    last = one(app, path="/ws", kind="websocket", extensions=extensions).messages[1 if is_accepted else 0]
    assert sent in (last["type"], last.get("code"))


# -- dependencies --------------------------------------------------------------------------------------------


def test_each_route_counts_apart_unless_named(limiter: Limiter) -> None:
    app, router, inner = FastAPI(), APIRouter(prefix="/b"), APIRouter(prefix="/{tenant}")
    apart, shared = limit("1/min"), limit("1/min", name="shared")

    def view() -> str:
        return "ok"

    inner.get("/c", dependencies=[Depends(apart)])(view)
    router.get("/a", dependencies=[Depends(apart)])(view)
    router.post("/a", dependencies=[Depends(apart)])(view)
    router.get("/s", dependencies=[Depends(shared)])(view)
    router.include_router(inner)
    app.include_router(router)
    app.get("/a", dependencies=[Depends(apart)])(view)
    app.get("/s", dependencies=[Depends(shared)])(view)
    sub = FastAPI()
    sub.get("/{any}/sub", dependencies=[Depends(apart)])(view)
    app.mount("/mounted", sub)
    install(app, Guard(limiter))
    firsts: list[dict[str, Any]] = [{"path": path} for path in ("/a", "/b/a", "/b/acme/c", "/mounted/x/sub", "/s")] + [
        {"method": "POST", "path": "/b/a"}
    ]
    assert statuses(app, *firsts) == [200] * 6
    again = [{"path": "/b/tiny/c"}, {"path": "/mounted/y/sub"}, {"path": "/b/s"}, *firsts[:2]]
    assert statuses(app, *again) == [429] * 5
    assert one(app, path="/b/tiny/c")["RateLimit"].startswith('"GET /b/{tenant}/c 1/min"')


def test_a_dependency_has_the_request_and_what_was_found_before(limiter: Limiter) -> None:
    async def current_user(request: Request) -> str:
        request.state.user = request.headers.get("x-user", "nobody")
        return str(request.state.user)

    def user(asking: Asking) -> Any:
        return getattr(asking.request.state, "user", None)

    app = FastAPI(dependencies=[Depends(current_user)])

    @app.get("/me", dependencies=[Depends(limit("1/min", key="user"))])
    def me() -> str:
        return "ok"

    install(app, Guard(limiter, user=user))
    headers = [[("X-User", name)] for name in ("ann", "bob", "ann")]
    assert statuses(app, *({"path": "/me", "headers": sent} for sent in headers)) == [200, 200, 429]


def test_layers_take_once_and_tell_together(limiter: Limiter) -> None:
    app = FastAPI()
    address = TokenBucket("9/min", 9, name="address", key="address")

    @app.get("/", dependencies=[Depends(limit(address)), Depends(limit(address, "3/min"))])
    def view() -> str:
        return "ok"

    install(app, Guard(limiter, Rule(address)))
    answer = one(app)
    assert answer["RateLimit"] == '"GET / 3/min";r=2;t=20'
    assert answer["RateLimit-Policy"] == '"GET / 3/min";q=3;w=60, "address";q=9;w=60'
    assert limiter.peek(TokenBucket("9/min", 9, name="address"), key="ip:192.0.2.1").remaining == 8


def test_without_install_a_dependency_needs_a_guard(limiter: Limiter) -> None:
    app, guard = FastAPI(), Guard(limiter)

    @app.get("/guarded", dependencies=[Depends(limit("1/min", guard=guard))])
    def guarded() -> str:
        return "ok"

    @app.get("/bare", dependencies=[Depends(limit("1/min"))])
    def bare() -> str:
        return "ok"

    first, second = one(app, path="/guarded"), one(app, path="/guarded")
    assert (first.status, first["RateLimit"]) == (200, '"GET /guarded 1/min";r=0;t=60')
    assert (second.status, second["Retry-After"]) == (429, "60")
    with pytest.raises(ThrottleError, match="install"):
        one(app, path="/bare")


def test_errors_when_it_is_written() -> None:
    with pytest.raises(ThrottleError):
        limit("10 a minute")
    with pytest.raises(ThrottleError):
        limit("10/min", key="adress")


def test_as_a_decorator_it_says_what_to_write() -> None:
    app, message = FastAPI(), r"no decorator: say @app\.get\(\"/…\", dependencies=\[Depends\(limit\(\"10/min\"\)\)\]\)"

    def view() -> str:
        return "ok"

    with pytest.raises(ThrottleError, match=message):
        limit("10/min")(view)
    with pytest.raises(ThrottleError, match=message):

        @app.get("/x")
        @limit("10/min")
        async def another(name: str) -> str:
            return name

    with pytest.raises(ThrottleError, match="is called with the Asking"):
        limit(view)


def test_dependencies_are_awaited_and_not_run_in_threads(limiter: Limiter) -> None:
    seen: list[str] = []

    def where(asking: Asking) -> str:
        seen.append(threading.current_thread().name)
        return "all"

    app = FastAPI()
    app.get("/", dependencies=[Depends(limit("9/min", key=where, guard=Guard(limiter)))])(lambda: "ok")
    assert one(app).status == 200
    assert seen == [threading.main_thread().name]
