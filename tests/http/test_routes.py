"""Rules that are for no route: told once, in each framework that lets its routes be known."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from flask import Blueprint, Flask
from litestar import Litestar, get
from litestar.middleware import DefineMiddleware
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route, WebSocketRoute

from tests.http import asgi_apps, django_project, wsgi_calls
from throttle.asgi import ThrottleMiddleware
from throttle.fastapi import install
from throttle.flask import Throttle
from throttle.paths import Pattern
from throttle.routes import Route as Known
from throttle.routes import unserved
from throttle.rules import Guard, Rule
from throttle.testing import fake_limiter

from django.conf.urls.i18n import i18n_patterns  # isort: skip  (after the configuration)
from django.core.checks import run_checks  # isort: skip
from django.core.wsgi import get_wsgi_application  # isort: skip
from django.http import HttpResponse  # isort: skip
from django.test import override_settings  # isort: skip
from django.urls import include, path, re_path  # isort: skip

assert django_project


@pytest.mark.parametrize(
    ("rule", "route"),
    [
        ("/sms", "/sms"), ("/sms/{id}", "/sms/<int:id>"), ("/sms/7", "/sms/{id}"), ("/api/*", "/api"), ("*", "/x"),
        ("/api/*", "/api/x/{y}"), ("/*/export", "/<customer>/export/"), ("/files/{n:path}", "/files/<path:x>"),
        ("/x", "/{all:path}"), ("/a/{x}/c", "/{y}/b/{z}"), ("/report-*", "/report-7"), ("/report-*", "/report-{n}"),
        ("/report-*", "/{n}"), ("/", "/"), ("/*", "/"), ("/a/{b}.json", "/a/{c}"), ("sms/<id>/", "/sms/<id>"),
        ("/files/{a:path}/raw", "/files/{x}/{y}/raw"), ("//sms", "/sms/"), ("/a/{b}", "/a/{b}-{c}"),
    ],
)  # fmt: skip
def test_a_rule_may_be_for_a_route(rule: str, route: str) -> None:
    assert Pattern(rule).may_be_for(route)


@pytest.mark.parametrize(
    ("rule", "route"),
    [
        ("/sms", "/smss"), ("/sms/{id}", "/sms"), ("/sms/{id}", "/sms/status"), ("/api/*", "/apis"), ("/a.b", "/aXb"),
        ("/report-*", "/rep"), ("/", "/x"), ("/a/{b}.json", "/a/{c}.xml"), ("/login/", "/account/login/"),
        ("/sms/*/x", "/sms/y"), ("/SMS", "/sms"), ("/a/{b}", "/b/{b}"), ("/x-{a}", "/y-{a}"),
    ],
)  # fmt: skip
def test_a_rule_that_is_for_another_route(rule: str, route: str) -> None:
    assert not Pattern(rule).may_be_for(route)


def test_what_is_told() -> None:
    routes = [Known("/sms", frozenset({"POST"})), Known("/sms/{id}"), Known("/health", frozenset({"GET"}))]
    rules = [
        Rule("1/s", path="/smss", methods="POST"),
        Rule("1/s", path="/sms/{x}"),
        Rule("1/s"),
        Rule("1/s", path="*"),
    ]
    assert unserved(rules, routes) == ["'POST /smss' is for no route of the app; the nearest to its path is '/sms'"]
    assert unserved([Rule("1/s", path="/health", methods="POST", name="probe")], routes) == [
        "'probe' is for no route of the app; the nearest to its path is '/health', which serves GET"
    ]
    assert unserved([Rule("1/s", path="/v1/sms")], routes, "/v1/") == []
    assert unserved(rules, []) == [], "nothing is known of its routes"


RULES = (Rule("9/s", path="/sms/{id}"), Rule("9/s", path="/smss/{id}", name="typo"), Rule("9/s"))
TEXT = "rule 'typo' is for no route of the app; the nearest to its path is "


@pytest.fixture
def guard() -> Guard:
    return Guard(fake_limiter(), *RULES)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def asked(app: Any, *scopes: dict[str, Any]) -> None:
    async def main() -> None:
        for one in scopes:
            await asgi_apps.call(app, one)

    asyncio.run(main())


LIFESPAN = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}


def begun(app: Any, **more: Any) -> None:
    """The beginning and the end of a server."""
    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        pass

    asyncio.run(app({**LIFESPAN, **more}, receive, send))


def view(*_: Any, **__: Any) -> Any:
    return PlainTextResponse("ok")


def test_fastapi_tells_when_the_server_starts(guard: Guard, caplog: pytest.LogCaptureFixture) -> None:
    app, router = FastAPI(), APIRouter(prefix="/sms")
    router.get("/{pk}")(lambda pk: "ok")
    app.include_router(router)
    install(app, guard)
    begun(app)
    assert told(caplog) == [TEXT + "'/sms/{pk}'"]
    begun(app)
    asked(app, asgi_apps.scope(path="/sms/7"))
    assert len(told(caplog)) == 1


def test_fastapi_with_a_root_path_that_the_server_says_later(caplog: pytest.LogCaptureFixture) -> None:
    app = FastAPI()
    app.get("/sms/{pk}")(lambda pk: "ok")
    install(app, Guard(fake_limiter(), Rule("9/s", path="/v1/sms/{id}", name="full"), Rule("9/s", path="/v1/sns")))
    begun(app)
    assert told(caplog) == []
    asked(app, *[asgi_apps.scope(path="/v1/sms/7", root_path="/v1")] * 2)
    assert told(caplog) == ["rule '/v1/sns' is for no route of the app; the nearest to its path is '/v1/docs'"]


def test_starlette_with_apps_within(caplog: pytest.LogCaptureFixture) -> None:
    inner = Starlette(routes=[Route("/{id}", view), WebSocketRoute("/live/ws", view)])
    app = Starlette(routes=[Mount("/sms", inner), Mount("/other", asgi_apps.hello), Route("/a", view)])
    paths = ("/sms/{id}", "/other/x/y", "/sms/live/ws", "/a", "/sms/{id}/b", "/b", "/others")
    app.add_middleware(ThrottleMiddleware, guard=Guard(fake_limiter(), *(Rule("9/s", path=path) for path in paths)))
    asked(app, asgi_apps.scope(path="/a"))
    assert [text.split("'")[1] for text in told(caplog)] == ["/sms/{id}/b", "/b", "/others"]


def test_litestar(guard: Guard, caplog: pytest.LogCaptureFixture) -> None:
    @get("/sms/{id:int}")
    async def sms(id: int) -> str:
        return "ok"

    app = Litestar(
        [sms], middleware=[DefineMiddleware(ThrottleMiddleware, guard=guard)], openapi_config=None, logging_config=None
    )
    asked(app, asgi_apps.scope(path="/sms/7"))
    assert told(caplog) == [TEXT + "'/sms/{id:int}'"]


def test_apps_that_have_no_routes_tell_nothing(guard: Guard, caplog: pytest.LogCaptureFixture) -> None:
    app = ThrottleMiddleware(asgi_apps.hello, guard)
    begun(app)
    asked(app, asgi_apps.scope(path="/x"))
    assert told(caplog) == []


def test_flask_tells_with_the_first_request(caplog: pytest.LogCaptureFixture) -> None:
    app, pages = Flask(__name__), Blueprint("pages", __name__, url_prefix="/sms")
    more = (Rule("9/s", path="/static/*"), Rule("9/s", path="/sms/{id}", methods="DELETE", name="delete"))
    Throttle(app, Guard(fake_limiter(), *RULES, *more))
    pages.add_url_rule("/<int:pk>", view_func=lambda pk: "ok")
    app.register_blueprint(pages)
    for _ in range(2):
        wsgi_calls.call(app, path="/sms/7")
    methods = ", which serves GET, HEAD, OPTIONS"
    other = f"rule 'delete' is for no route of the app; the nearest to its path is '/sms/<int:pk>'{methods}"
    assert told(caplog) == [TEXT + "'/sms/<int:pk>'", other]


# -- Django --------------------------------------------------------------------------------------------------

OURS = "throttle.django.ThrottleMiddleware"


def page(request: Any, **_: Any) -> Any:
    return HttpResponse("ok")


URLS = (
    path("sms/<int:id>/", page),
    path("shop/", include([path("<slug:name>/", page), re_path(r"^old/(?P<year>[0-9]{4})/$", page)])),
    re_path(r"^any/[a-z]+(\.json|\.xml)?$", page),
    *i18n_patterns(path("about/", page)),
)


@pytest.fixture
def project() -> Any:
    paths = ["/shop/{x}/", "/shop/old/{y}/", "/any/thing", "/de/about/", "/about/", "/*/about/", "/shop/", "/abuot/"]
    rules = [*RULES, *(Rule("9/s", path=path) for path in paths)]
    with override_settings(
        THROTTLE={"GUARD": Guard(fake_limiter(), *rules)}, ROOT_URLCONF=URLS, MIDDLEWARE=[OURS], USE_I18N=True
    ):
        yield


UNSERVED = ["typo", "/shop/", "/abuot/"]


def test_django_tells_with_the_first_request(project: Any, caplog: pytest.LogCaptureFixture) -> None:
    app = get_wsgi_application()
    assert told(caplog) == []
    for _ in range(2):
        wsgi_calls.call(app, path="/sms/7/")
    texts = [text for text in told(caplog) if "no route" in text]
    assert [text.split("'")[1] for text in texts] == UNSERVED
    assert texts[0] == TEXT + "'/sms/<int:id>/'"


def test_djangos_checks_tell_instead(project: Any, caplog: pytest.LogCaptureFixture) -> None:
    warnings = [one for one in run_checks() if one.id == "throttle.W003"]
    assert [one.msg.split("'")[1] for one in warnings] == UNSERVED
    wsgi_calls.call(get_wsgi_application(), path="/sms/7/")
    assert not [text for text in told(caplog) if "no route" in text]
