"""The middleware around plain ASGI apps, Starlette and Litestar."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from litestar import Litestar, Request, get
from litestar import Response as LitestarResponse
from litestar.middleware import DefineMiddleware
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Host, Mount, Route, WebSocketRoute

from tests.http.asgi_apps import DENIAL, call, hello, scope
from tests.services import RedisServer
from throttle import AsyncLimiter, BacklogFull, Decision, Limiter, StoreUnavailable, TokenBucket
from throttle.asgi import ThrottleMiddleware, template_of
from throttle.errors import Throttled
from throttle.http import Identity, Refusal, refusal
from throttle.rules import Asking, Guard, Rule

FIELDS = ("RateLimit", "RateLimit-Policy")


@pytest.fixture
def limiter(server: RedisServer) -> Limiter:
    return Limiter(server.url(), scope="api", timeout=5)


def test_passed_and_refused(limiter: Limiter) -> None:
    app = ThrottleMiddleware(hello, Guard(limiter, Rule("2/min", key="address")))

    async def main() -> None:
        first, _, third = [await call(app) for _ in range(3)]
        assert (first.status, first.body) == (200, b"hello")
        assert first["RateLimit"] == '"2/min, burst 2";r=1;t=30'
        assert first["RateLimit-Policy"] == '"2/min, burst 2";q=2;w=60'
        assert not first.all("Retry-After")
        assert third.status == 429
        assert third["Retry-After"] == "30"
        assert third["Content-Type"] == "application/problem+json"
        assert third["Content-Length"] == str(len(third.body))
        assert (await call(app, client=("192.0.2.2", 1))).status == 200
        assert (await call(app, client=None)).status == 200, "over a Unix socket there is no address"

    asyncio.run(main())


def test_head_is_refused_without_a_body(limiter: Limiter) -> None:
    app = ThrottleMiddleware(hello, Guard(limiter, Rule("1/min", methods="GET")))

    async def main() -> None:
        await call(app)
        answer = await call(app, method="HEAD")
        assert (answer.status, answer.body) == (429, b"")
        assert int(answer["Content-Length"]) > 0

    asyncio.run(main())


def test_stacked_twice_it_takes_once_and_tells_once(limiter: Limiter) -> None:
    guard = Guard(limiter, Rule("5/min", key="address"))
    again = Guard(limiter, Rule("5/min", key="address"), Rule("3/min", path="/"))
    app = ThrottleMiddleware(ThrottleMiddleware(ThrottleMiddleware(hello, again), guard), guard)

    async def main() -> None:
        answers = [await call(app) for _ in range(4)]
        assert [answer.status for answer in answers] == [200, 200, 200, 429]
        for answer in answers:
            for field in FIELDS:
                assert answer[field]  # one of each
        assert answers[0]["RateLimit"] == '"/ 3/min";r=2;t=20'
        assert answers[3]["RateLimit"] == '"/ 3/min";r=0;t=20'
        assert answers[3]["Retry-After"] == "20"

    asyncio.run(main())
    assert limiter.peek(TokenBucket("5/min", 5), key="ip:192.0.2.1").remaining == 1


def test_fields_of_the_app_stay(limiter: Limiter) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"RateLimit", b'"own";r=1'), (b"retry-after", b"9")]
        await send({"type": "http.response.start", "status": 429, "headers": headers})
        await send({"type": "http.response.body"})

    answer = asyncio.run(call(ThrottleMiddleware(app, Guard(limiter, Rule("2/min")))))
    assert answer["RateLimit"] == '"own";r=1'
    assert answer["Retry-After"] == "9"
    assert not answer.all("RateLimit-Policy"), "it would be of other limits"


def test_lifespan_and_what_else_there_is_pass_untouched(limiter: Limiter) -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((dict(scope), receive, send))

    made: dict[str, Any] = {"type": "lifespan", "asgi": {}}
    asyncio.run(ThrottleMiddleware(app, Guard(limiter, Rule("1/min")))(made, "receive", "send"))  # type: ignore[arg-type]
    assert seen == [(made, "receive", "send")]


@pytest.mark.parametrize("extensions", [{}, None, DENIAL])
def test_websockets_are_refused_before_they_are_accepted(limiter: Limiter, extensions: Any) -> None:
    app = ThrottleMiddleware(hello, Guard(limiter, Rule("1/min", path="/ws")))

    async def main() -> None:
        accepted = await call(app, kind="websocket", path="/ws", extensions=extensions)
        assert [message["type"] for message in accepted.messages] == ["websocket.accept", "websocket.send"]
        assert accepted["RateLimit"] == '"/ws 1/min";r=0;t=60'
        refused = await call(app, kind="websocket", path="/ws", extensions=extensions)
        if extensions:
            assert refused.messages[0]["type"] == "websocket.http.response.start"
            assert refused.status == 429
            assert refused["Retry-After"] == "60"
            assert refused.body
        else:
            assert refused.messages == [{"type": "websocket.close", "code": 1008, "reason": "rate limit"}]

    asyncio.run(main())


# -- failures ------------------------------------------------------------------------------------------------


THROTTLED = Throttled(Decision(False, 1, 0, 7.5, 9.0, (TokenBucket("1/s", name="inner"),)))


@pytest.mark.parametrize(
    ("error", "status", "wait"),
    [(BacklogFull("sms", 90.0, 30.2), 503, "31"), (StoreUnavailable("down"), 503, "30"), (THROTTLED, 429, "8")],
)
def test_b109_what_the_app_raises_before_it_answers(limiter: Limiter, error: Exception, status: int, wait: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise error

    answer = asyncio.run(call(ThrottleMiddleware(app, Guard(limiter, Rule("9/min")))))
    assert (answer.status, answer["Retry-After"]) == (status, wait)
    assert answer["Content-Type"] == "application/problem+json"
    assert answer["RateLimit"], "it was counted"


def test_what_the_app_raises_after_it_has_begun_is_the_servers(limiter: Limiter) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise BacklogFull("sms", 90.0, 30.2)

    with pytest.raises(BacklogFull):
        asyncio.run(call(ThrottleMiddleware(app, Guard(limiter, Rule("9/min")))))


@pytest.mark.parametrize(
    ("policy", "statuses"), [("open", [200] * 4), ("closed", [503] * 4), ("local", [200, 200, 429, 429])]
)
@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
def test_b43_a_store_that_is_down(kind: Any, policy: str, statuses: list[int]) -> None:
    limiter = kind("redis://localhost:1", scope="down", on_store_error=policy)
    app = ThrottleMiddleware(hello, Guard(limiter, Rule("2/min", key="address")))

    async def main() -> None:
        answers = [await call(app) for _ in range(4)]
        assert [answer.status for answer in answers] == statuses
        assert [bool(answer.all("Retry-After")) for answer in answers] == [status != 200 for status in statuses]

    asyncio.run(main())


def test_many_at_once(server: RedisServer) -> None:
    app = ThrottleMiddleware(hello, Guard(AsyncLimiter(server.url(), timeout=5), Rule("10/min", key="address")))

    async def main() -> list[int]:
        return [answer.status for answer in await asyncio.gather(*(call(app) for _ in range(30)))]

    assert asyncio.run(main()).count(200) == 10


def test_on_refused_is_awaited(limiter: Limiter) -> None:
    async def custom(asking: Asking, decision: Decision) -> Refusal:
        await asyncio.sleep(0)
        return Refusal(429, {"Content-Type": "text/plain"}, asking.path.encode())

    app = ThrottleMiddleware(hello, Guard(limiter, Rule("0"), on_refused=custom))
    answer = asyncio.run(call(app, path="/sms"))
    assert (answer.status, answer.body) == (429, b"/sms")
    assert answer["Content-Type"] == "text/plain"
    assert answer["Retry-After"]


# -- who asks ------------------------------------------------------------------------------------------------


@pytest.fixture
def unwarned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("throttle.http.identity._warned", [])


@pytest.mark.usefixtures("unwarned")
def test_b105_one_warning_where_a_proxy_is_not_trusted(limiter: Limiter, caplog: pytest.LogCaptureFixture) -> None:
    headers = [("X-Forwarded-For", "203.0.113.9")]
    made: dict[str, Any] = {"headers": headers, "client": ("10.0.0.7", 1)}
    caplog.set_level(logging.WARNING, "throttle.http.identity")

    async def many(identity: Identity) -> None:
        app = ThrottleMiddleware(hello, Guard(limiter, Rule("99/min", key="address"), identity=identity))
        for _ in range(5):
            await call(app, **made)

    asyncio.run(many(Identity(trusted_proxies=1)))
    assert not caplog.records
    asyncio.run(many(Identity()))
    assert len(caplog.records) == 1
    assert "trusted_proxies" in caplog.text


def test_b104_rotating_addresses_in_a_header_are_one_client(limiter: Limiter, server: RedisServer) -> None:
    app = ThrottleMiddleware(hello, Guard(limiter, Rule("9/min", key="address"), identity=Identity(0)))

    async def main() -> list[int]:
        return [(await call(app, headers=[("X-Forwarded-For", f"203.0.113.{i}")])).status for i in range(20)]

    assert asyncio.run(main()).count(200) == 9
    assert len(server.client().keys()) == 1


# -- Starlette -----------------------------------------------------------------------------------------------


async def item(request: Any) -> Response:
    return JSONResponse(request.path_params)


async def full(request: Any) -> Response:
    raise BacklogFull("sms", 90.0, 30.0)


ROUTES = [
    Route("/items/{id:int}", item),
    Route("/items/{name}", item, methods=["POST"]),
    Route("/full", full),
    Mount("/v1", routes=[Route("/items/{id}", item), Mount("/deep/{tenant}", routes=[Route("/x", item)])]),
    Mount("/foreign/{x}", app=hello),
    Host("api.example.com", app=Starlette(routes=[Route("/hosted/{id}", item)])),
    WebSocketRoute("/ws/{room}", hello),
]


@pytest.mark.parametrize(
    ("made", "template"),
    [
        (scope(path="/items/7"), "/items/{id:int}"),
        (scope("POST", "/items/x"), "/items/{name}"),
        (scope("POST", "/items/7"), "/items/{name}"),
        (scope("DELETE", "/items/7"), "/items/{id:int}"),
        (scope(path="/v1/items/7"), "/v1/items/{id}"),
        (scope(path="/v1/deep/acme/x"), "/v1/deep/{tenant}/x"),
        (scope(path="/v1/nothing/here"), "/v1/*"),
        (scope(path="/foreign/1/a/b"), "/foreign/{x}/*"),
        (scope(path="/root/items/7", root_path="/root"), "/items/{id:int}"),
        (scope(path="/hosted/7", headers=[("host", "api.example.com")]), "/hosted/{id}"),
        (scope(path="/ws/1", kind="websocket"), "/ws/{room}"),
        (scope(path="/nothing"), None),
    ],
)
def test_templates_of_starlettes_routes(made: dict[str, Any], template: str | None) -> None:
    before = dict(made)
    assert template_of(made, Starlette(routes=ROUTES)) == template
    assert made == before


def test_templates_of_apps_without_routes() -> None:
    assert template_of(scope(), hello) is None
    assert template_of(scope(), None) is None
    assert template_of(scope(), Litestar([])) is None


@pytest.mark.parametrize("is_outside", [True, False])
def test_keys_by_route_do_not_grow_with_paths(limiter: Limiter, server: RedisServer, is_outside: bool) -> None:
    guard = Guard(limiter, Rule("9/min", key="route"), Rule("5/min", path="/v1/items/{id}"))
    middleware = [] if is_outside else [Middleware(ThrottleMiddleware, guard=guard)]
    app: Any = Starlette(routes=ROUTES, middleware=middleware)
    app = ThrottleMiddleware(app, guard) if is_outside else app

    async def main() -> list[int]:
        for i in range(10):
            await call(app, path=f"/no/{i}")
        await call(app, path="/items/7")
        return [(await call(app, path=f"/v1/items/{i}")).status for i in range(6)]

    assert asyncio.run(main()) == [200] * 5 + [429]
    assert len(server.client().keys()) == 4


def test_b109_from_within_starlette(limiter: Limiter) -> None:
    guard = Guard(limiter)
    app = Starlette(routes=ROUTES, middleware=[Middleware(ThrottleMiddleware, guard=guard)])
    assert asyncio.run(call(app, path="/full")).status == 503


def test_streams_are_not_buffered_and_background_tasks_run(limiter: Limiter) -> None:
    steps: list[str] = []

    async def parts() -> AsyncIterator[bytes]:
        for part in (b"a", b"b", b"c"):
            steps.append(part.decode())
            yield part

    async def stream(request: Any) -> Response:
        return StreamingResponse(parts(), background=BackgroundTask(steps.append, "background"))

    routes = [Route("/", stream)]
    app = Starlette(routes=routes, middleware=[Middleware(ThrottleMiddleware, guard=Guard(limiter, Rule("9/min")))])

    async def main() -> None:
        async def send(message: Any) -> None:
            steps.append(f"<{message.get('body', b'').decode()}>")

        async def receive() -> Any:
            await asyncio.sleep(60)

        await app(scope(), receive, send)

    asyncio.run(main())
    assert steps == ["<>", "a", "<a>", "b", "<b>", "c", "<c>", "<>", "background"]


def test_around_and_within_middleware_that_replaces_the_scope(limiter: Limiter) -> None:
    async def plain(request: Any, call_next: Any) -> Response:
        return await call_next(request)  # type: ignore[no-any-return]

    guard = Guard(limiter, Rule("2/min"))
    one = Middleware(ThrottleMiddleware, guard=guard)
    app = Starlette(routes=ROUTES, middleware=[one, Middleware(BaseHTTPMiddleware, dispatch=plain), one])

    async def main() -> list[int]:
        return [(await call(app, path="/items/7")).status for _ in range(3)]

    assert asyncio.run(main()) == [200, 200, 429]


# -- Litestar ------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # how parameters are declared changes between versions
def test_litestar(limiter: Limiter, server: RedisServer) -> None:
    @get("/items/{id:int}")
    async def litestar_item(id: int) -> dict[str, int]:
        return {"id": id}

    @get("/full")
    async def litestar_full() -> None:
        raise BacklogFull("sms", 90.0, 30.0)

    def answered(request: Request[Any, Any, Any], error: BacklogFull) -> LitestarResponse[bytes]:
        answer = refusal(error)
        return LitestarResponse(answer.body, status_code=answer.status, headers=answer.fields)

    guard = Guard(limiter, Rule("3/min", path="/items/{item}", key=("address", "route")))
    app = Litestar(
        [litestar_item, litestar_full],
        middleware=[DefineMiddleware(ThrottleMiddleware, guard=guard)],
        exception_handlers={BacklogFull: answered},
    )

    async def main() -> None:
        answers = [await call(app, path=path) for path in ("/items/1", "//items//2/", "/items/3/", "/items/4")]
        assert [answer.status for answer in answers] == [200, 200, 200, 429]
        assert answers[0]["RateLimit"] == '"/items/{item} 3/min";r=2;t=20'
        assert answers[3]["Retry-After"] == "20"
        assert (await call(app, path="/full")).status == 503

    asyncio.run(main())
    assert len(server.client().keys()) == 1


@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
def test_b103_nothing_blocks_the_loop(server: RedisServer, caplog: pytest.LogCaptureFixture, kind: Any) -> None:
    app = ThrottleMiddleware(hello, Guard(kind(server.url(), timeout=5), Rule("9/min", key="address")))

    async def main() -> None:
        await call(app)  # connects, and imports what it needs
        asyncio.get_running_loop().slow_callback_duration = 0.1
        caplog.clear()
        server.client().execute_command("CLIENT", "PAUSE", 200)  # whoever waits for Redis waits for this long
        await asyncio.gather(*(call(app) for _ in range(5)))

    def blocked() -> bool:
        asyncio.run(main(), debug=True)
        return any("took" in record.message for record in caplog.records)

    with caplog.at_level(logging.WARNING, "asyncio"):
        assert not all(blocked() for _ in range(3)), "a busy machine blocks now and then, a blocking call each time"


def test_plain_text_and_empty_answers(limiter: Limiter) -> None:
    async def empty(request: Any) -> Response:
        return Response(status_code=304)

    routes = [Route("/empty", empty), Route("/text", lambda request: PlainTextResponse("text"))]
    app = ThrottleMiddleware(Starlette(routes=routes), Guard(limiter, Rule("9/min")))

    async def main() -> None:
        for path, status in (("/empty", 304), ("/text", 200), ("/no", 404)):
            answer = await call(app, path=path)
            assert answer.status == status
            assert answer["RateLimit"]
            assert not answer.all("Retry-After")

    asyncio.run(main())


def test_a_module_imports_its_framework_only_when_imported_itself() -> None:
    frameworks = "{'fastapi', 'starlette', 'litestar', 'flask', 'django', 'rest_framework', 'werkzeug'}"
    code = (
        "import sys, throttle; before = set(sys.modules)\n"  # kombu looks for Django
        f"import throttle.asgi, throttle.rules; assert not {frameworks} & set(sys.modules) - before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
