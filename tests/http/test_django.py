"""Django: the middleware, the decorator, the setting; under WSGI and under ASGI."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from hypothesis import given, settings

from tests.http import asgi_apps, django_project, wsgi_calls
from tests.http.django_project import lookups
from tests.services import RedisServer
from throttle import Limiter, ThrottleError
from throttle.asgi import ThrottleMiddleware as AsgiMiddleware
from throttle.http import Refusal
from throttle.rules import Guard, Rule
from throttle.wsgi import ThrottleMiddleware as WsgiMiddleware

from django.core.asgi import get_asgi_application  # isort: skip  (after the configuration)
from django.core.checks import run_checks  # isort: skip
from django.core.exceptions import ImproperlyConfigured  # isort: skip
from django.core.wsgi import get_wsgi_application  # isort: skip
from django.test import override_settings  # isort: skip

Ask = Callable[..., Any]
LOGIN = "tests.http.django_project.Login"
OURS = "throttle.django.ThrottleMiddleware"


@pytest.fixture
def configured(server: RedisServer) -> Iterator[Callable[..., None]]:
    """Overrides the setting THROTTLE for one test."""
    overrides: list[Any] = []

    def configure(*rules: Any, middleware: tuple[str, ...] = (LOGIN, OURS), **more: Any) -> None:
        said = {"REDIS": server.url(), "RULES": list(rules), "TIMEOUT": 5, **more}
        overrides.append(override_settings(THROTTLE=said, MIDDLEWARE=list(middleware)))
        overrides[-1].enable()

    yield configure
    for override in reversed(overrides):
        override.disable()
    lookups.clear()


def over_wsgi(*requests: dict[str, Any], outer: Any = None) -> list[Any]:
    app = get_wsgi_application()
    app = WsgiMiddleware(app, outer) if outer else app
    return [wsgi_calls.call(app, **{"valid": False, **request}) for request in requests]


def over_asgi(*requests: dict[str, Any], outer: Any = None) -> list[Any]:
    async def main() -> list[Any]:
        app: Any = get_asgi_application()
        app = AsgiMiddleware(app, outer) if outer else app
        return [await asgi_apps.call(app, **request) for request in requests]

    return asyncio.run(main())


@pytest.fixture(params=[over_wsgi, over_asgi])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Requests in one of the two ways."""
    return request.param  # type: ignore[no-any-return]


def paths(*paths: str, **more: Any) -> list[dict[str, Any]]:
    return [{"path": path, **more} for path in paths]


def statuses(answers: list[Any]) -> list[int]:
    return [answer.status for answer in answers]


# -- the middleware ------------------------------------------------------------------------------------------


def test_rules_know_routes(configured: Ask, ask: Ask) -> None:
    configured({"limits": "2/min", "key": ("address", "route")})
    answers = ask(*paths("/sms/1/", "/sms/2/", "/sms/3/", "/", "/x/1", "/x/2", "/x/3"))
    assert statuses(answers) == [200, 200, 429, 200, 404, 404, 429], "unknown paths are one route"
    assert answers[2]["Retry-After"] == "30"
    assert answers[2]["Content-Type"] == "application/problem+json"
    assert json.loads(answers[2].body)["title"] == "Rate exceeded"
    assert answers[0]["RateLimit"] == '"2/min, burst 2";r=1;t=30'
    for answer in answers:
        assert len(answer.all("Retry-After")) == (answer.status == 429)
        assert answer["RateLimit-Policy"]


def test_templates_as_django_writes_them(configured: Ask, ask: Ask) -> None:
    configured({"limits": "1/min", "path": "sms/<int:id>/"}, {"limits": "1/min", "path": "/old/<year>/"})
    assert statuses(ask(*paths("/sms/1/", "/sms/2/", "/", "/", "/old/1999/", "/old/2000/"))) == [
        200, 429, 200, 200, 200, 429,
    ]  # fmt: skip


def test_unknown_paths_mint_no_keys(server: RedisServer, configured: Ask, ask: Ask) -> None:
    configured({"limits": "999/min", "key": "route"})
    assert set(statuses(ask(*paths(*[f"/{number}" for number in range(50)])))) == {404}
    assert len(list(server.client().scan_iter())) == 1


def test_exempt_paths_and_callers(configured: Ask, ask: Ask) -> None:
    configured({"limits": "1/min"}, EXEMPT=["/health/", lambda asking: asking.header("x-probe") == "yes"])
    answers = ask(*paths("/health/", "/health/"), {"headers": [("X-Probe", "yes")]}, *paths("/", "/"))
    assert statuses(answers) == [200, 200, 200, 200, 429]
    assert not answers[0].all("RateLimit")


def test_users_are_counted_apart(configured: Ask, ask: Ask) -> None:
    configured({"limits": "1/min", "key": "user"})
    users = [{"headers": [("X-User", user)]} if user else {} for user in ("ann", "ann", "bob", "", "")]
    assert statuses(ask(*users)) == [200, 429, 200, 200, 429]


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
def test_users_are_looked_up_only_where_a_rule_asks(configured: Ask, ask: Ask) -> None:
    configured({"limits": "9/min", "key": "address"}, {"limits": "9/min", "key": "user", "path": "/sms/<id>/"})
    ask(*paths("/", "/stream/", "/x"))
    assert lookups == []
    ask(*paths("/sms/7/"))
    assert len(lookups) == 1


def test_a_user_of_ones_own(configured: Ask) -> None:
    configured({"limits": "1/min", "key": "user"}, USER=lambda asking: asking.header("x-tenant"))
    tenants = [{"headers": [("X-Tenant", tenant)]} for tenant in ("a", "a", "b")]
    assert statuses(over_wsgi(*tenants)) == [200, 429, 200]


def test_what_views_raise_is_answered(configured: Ask, ask: Ask) -> None:
    configured({"limits": "9/min"})
    for answer in ask(*paths("/full/", "/afull/")):
        assert (answer.status, answer["Retry-After"]) == (503, "8")
        assert json.loads(answer.body)["title"] == "Too much work is waiting"
        assert answer["RateLimit"]


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
def test_b102_streams_are_streams(configured: Ask, ask: Ask) -> None:
    configured({"limits": "9/min"})
    [answer] = ask(*paths("/stream/"))
    assert answer.body == b"ab"
    assert answer["RateLimit"]
    if messages := getattr(answer, "messages", None):
        assert [message["body"] for message in messages if message.get("body")] == [b"a", b"b"]


def test_stacked_it_takes_once_and_tells_once(server: RedisServer, configured: Ask, ask: Ask) -> None:
    rule = {"limits": "3/min", "key": "address", "name": "all"}
    configured(rule, middleware=(OURS, OURS))
    outer = Guard(
        Limiter(server.url(), "django", timeout=5),
        Rule(**{**rule, "limits": "3/min"}) if 0 else Rule("3/min", key="address", name="all"),
    )
    answers = ask(*paths("/", "/", "/", "/"), outer=outer)
    assert statuses(answers) == [200, 200, 200, 429]
    for answer in answers:
        assert answer["RateLimit"]
        assert answer["RateLimit-Policy"]
    assert len(list(server.client().scan_iter())) == 1


def test_b104_addresses(server: RedisServer, configured: Ask, ask: Ask) -> None:
    configured({"limits": "999/min", "key": "address"})
    ask(*[{"headers": [("X-Forwarded-For", f"203.0.113.{number}")]} for number in range(100)])
    assert len(list(server.client().scan_iter())) == 1
    configured({"limits": "1/min", "key": "address", "name": "trusting"}, IDENTITY={"trusted_proxies": 1})
    evil = [{"headers": [("X-Forwarded-For", f"198.51.100.{n}, 203.0.113.7")]} for n in range(2)]
    assert statuses(ask(*evil)) == [200, 429]


def test_b105_one_warning(configured: Ask, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("throttle.http.identity._warned", [])
    configured({"limits": "9/min", "key": "address"})
    over_wsgi(*[{"REMOTE_ADDR": "10.0.0.1", "headers": [("X-Forwarded-For", "203.0.113.7")]}] * 3)
    assert len([record for record in caplog.records if "trusted_proxies" in record.getMessage()]) == 1


def test_an_answer_of_ones_own(configured: Ask, ask: Ask) -> None:
    configured({"limits": "1/min"}, ON_REFUSED=lambda asking, decision: Refusal(420, {}, b"calm"))
    _, refused = ask({}, {})
    assert (refused.status, refused.body, refused["Retry-After"]) == (420, b"calm", "60")


def test_head_is_refused_without_a_body(configured: Ask, ask: Ask) -> None:
    configured({"limits": "1/min"})
    _, refused = ask({}, {"method": "HEAD"})
    assert (refused.status, refused.body) == (429, b"")


def sync_only(get_response: Any) -> Any:
    """Middleware as people write it: everything outside it runs in threads, also under ASGI."""
    return lambda request: get_response(request)


def test_between_middleware_that_is_not_async(configured: Ask, ask: Ask) -> None:
    inner = f"{__name__}.sync_only"
    for order in ((LOGIN, OURS, inner), (inner, LOGIN, OURS)):
        configured({"limits": "1/min", "key": "user", "name": order[0]}, middleware=order)
        assert statuses(ask(*paths("/", "/async/"))) == [200, 429]


def renaming(get_response: Any) -> Any:
    """Middleware that changes what the client sent."""

    def middleware(request: Any) -> Any:
        request.META["HTTP_X_PLAN"] = "pro"
        assert request.headers["X-Plan"] == "pro"
        return get_response(request)

    return middleware


def test_headers_stay_as_later_middleware_writes_them(configured: Ask, ask: Ask) -> None:
    configured({"limits": [(by_plan, "address")]}, middleware=(OURS, f"{__name__}.renaming"))
    assert statuses(ask({}, {})) == [200, 429]


@pytest.mark.parametrize("policy", ["open", "closed"])
def test_b43_redis_stops_and_starts(own_server: RedisServer, configured: Ask, ask: Ask, policy: str) -> None:
    configured({"limits": "1/min"}, REDIS=own_server.url(), ON_STORE_ERROR=policy, TIMEOUT=0.25)
    assert statuses(ask({}, {})) == [200, 429]
    own_server.stop()
    configured({"limits": "1/min"}, REDIS=own_server.url(), ON_STORE_ERROR=policy, TIMEOUT=0.25)
    for answer in ask({}, {}, *paths("/limited/")):
        assert answer.status == (200 if policy == "open" else 503)
        assert answer.all("Retry-After") == ([] if policy == "open" else ["30"])
        assert not answer.all("RateLimit")
    own_server.start()
    until = time.monotonic() + 2
    while 429 not in (seen := statuses(ask({}, {}))) and time.monotonic() < until:
        time.sleep(0.05)
    assert 429 in seen


# -- the decorator -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("middleware", [(LOGIN, OURS), (LOGIN,)])
@pytest.mark.parametrize(
    "path",
    [
        "/limited/", "/alimited/", "/class/decorated/", "/class/alimited/", "/class/adecorated/", "/class/amethod/",
        "/drf/above/", "/drf/below/", "/ninja/limited", "/ninja/alimited",
    ],
)  # fmt: skip
def test_b103_views_of_every_kind(configured: Ask, ask: Ask, path: str, middleware: tuple[str, ...]) -> None:
    configured({"limits": "9/min", "key": "address"}, middleware=middleware)
    answers = ask(*paths(path, path, path))
    assert statuses(answers) == [200, 200, 429]
    if path.startswith("/ninja") and OURS not in middleware:
        return  # without it a view's success, which is no response yet, is not told of
    assert answers[0]["RateLimit"].startswith(f'"{path} 2/min";r=1')
    assert answers[2]["Retry-After"] == "30"
    assert not answers[1].all("Retry-After")


@pytest.mark.parametrize("path", ["/async/", "/alimited/", "/class/adecorated/", "/limited/", "/drf/function/"])
def test_b103_nothing_blocks_the_loop(server: RedisServer, configured: Ask, path: str) -> None:
    """Redis takes 0.4 s to answer, and the loop goes on."""
    configured({"limits": "9/min", "key": "user"})

    async def main() -> float:
        app = get_asgi_application()
        await asgi_apps.call(app, path=path)
        server.client().execute_command("CLIENT", "PAUSE", "400", "ALL")
        asked = asyncio.create_task(asgi_apps.call(app, path=path))
        begun = last = time.monotonic()
        longest = 0.0
        while not asked.done():
            await asyncio.sleep(0.005)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        assert asked.result().status == 200
        assert time.monotonic() - begun > 0.3, "it was Redis that took long"
        return longest

    assert asyncio.run(main()) < 0.2


def test_methods_and_routes_of_a_view(configured: Ask, ask: Ask) -> None:
    configured()
    posts = paths(*["/class/limited/"] * 3, method="POST")
    assert statuses(ask(*posts, *paths(*["/class/limited/"] * 3))) == [200, 200, 429, 200, 200, 200]
    routes = ask(*paths("/limited/1/", "/limited/2/", "/limited/3/", "/limited/"))
    assert statuses(routes) == [200, 200, 429, 200], "each route of a view apart"


def test_decorated_users(configured: Ask, ask: Ask) -> None:
    configured()
    for path in ("/class/decorated/", "/class/alimited/"):
        users = [{"path": path, "headers": [("X-User", user)]} for user in ("ann", "ann", "ann", "bob")]
        assert statuses(ask(*users)) == [200, 200, 429, 200]


def test_a_decorated_function_that_is_no_view() -> None:
    from throttle.django import limit

    with pytest.raises(ThrottleError, match="no request"):
        limit("1/min")(lambda number: number)(7)


# -- the setting ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (None, "it is missing"),
        ({"RULES": []}, "REDIS: say where it is"),
        ({"REDIS": "http://x"}, "REDIS: .*redis://"),
        ({"REDIS": "redis://x", "RULE": []}, "'RULE' is no setting; did you mean 'RULES'"),
        ({"REDIS": "redis://x", "RULES": ["10/min"]}, r"RULES\[0\]: '10/min' is no rule"),
        ({"REDIS": "redis://x", "RULES": [{"limits": "10 apples"}]}, r"RULES\[0\]: '10 apples' is not a rate"),
        ({"REDIS": "redis://x", "RULES": [{"limits": "9/s", "key": "ip"}]}, r"RULES\[0\]: key 'ip' is none of"),
        ({"REDIS": "redis://x", "RULES": [{"limits": "9/s", "metods": "GET"}]}, r"RULES\[0\]: .*metods"),
        ({"REDIS": "redis://x", "RULES": [{"limits": "no.such.tier"}]}, r"RULES\[0\]: No module named 'no'"),
        ({"REDIS": "redis://x", "IDENTITY": {"trusted_proxies": "x"}}, "IDENTITY: trusted_proxies"),
        ({"REDIS": "redis://x", "EXEMPT": ["robots.txt"]}, "EXEMPT: 'robots.txt' is no callable .*begins with"),
        ({"REDIS": "redis://x", "STYLE": "draft-99"}, "draft-99"),
        ({"REDIS": "redis://x", "FIELDS": {"rest": 1}}, "rest"),
        ({"REDIS": "redis://x", "EXEMPT": ["/{a}{b}"]}, "EXEMPT: path '/{a}{b}'"),
        ({"REDIS": "redis://x", "RULES": 7}, r"RULES: 7 is no list: say \[\{"),
        ({"REDIS": "redis://x", "EXEMPT": 7}, "EXEMPT: 7 is no list"),
        ({"REDIS": "redis://x", "RULES": [{"limits": "9/s", "methods": 7}]}, r"RULES\[0\]: methods 7"),
        ({"REDIS": "redis://x", "RULES": [{"limits": "9/s", "path": 7}]}, r"RULES\[0\]: path 7 is no text"),
        ({"REDIS": "redis://x", "IDENTITY": 7}, "IDENTITY: 'int' object is not a mapping"),
        ({"REDIS": "redis://x", "SCOPE": 7}, "IDENTITY: pepper and scope must be texts"),
        ({"REDIS": "redis://x", "USER": "who"}, "user 'who' is no callable: say a function"),
        ({"GUARD": 7}, "GUARD 7 is no Guard"),
        ({"GUARD": Guard(Limiter("redis://localhost")), "RULES": []}, "RULES is for the guard made here"),
    ],
)
def test_what_makes_no_sense_is_told_when_the_server_starts(said: Any, problem: str) -> None:
    with override_settings(THROTTLE=said, MIDDLEWARE=[OURS]):
        with pytest.raises(ImproperlyConfigured, match=problem):
            get_wsgi_application()
        errors = [error for error in run_checks() if error.id == "throttle.E001"]
        assert errors, "and by manage.py check"


def test_all_problems_are_told_at_once() -> None:
    with override_settings(THROTTLE={"RULES": [{"limits": "x"}, 7], "SCOP": "a"}, MIDDLEWARE=[OURS]):
        assert len([error for error in run_checks() if error.id == "throttle.E001"]) == 4


def test_warnings() -> None:
    auth = [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
    ]
    said = {"REDIS": "redis://localhost", "RULES": [{"limits": "9/s", "key": "user"}]}

    def warned(middleware: list[str]) -> list[str]:
        with override_settings(THROTTLE=said, MIDDLEWARE=middleware):
            return [str(one.id) for one in run_checks() if str(one.id).startswith("throttle.W")]

    assert warned([]) == ["throttle.W001"]
    assert warned([OURS, *auth]) == ["throttle.W002"]
    assert warned([*auth, OURS]) == []


def client() -> Any:
    return redis.Redis.from_url(os.environ["TEST_REDIS_URL"])


def test_a_factory_of_clients(server: RedisServer, configured: Ask, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_REDIS_URL", server.url())
    for named in (client, f"{__name__}.client"):
        configured({"limits": "1/min", "name": str(type(named))}, REDIS=named)
        assert statuses(ask({}, {})) == [200, 429]


def by_plan(asking: Any) -> str:
    return "2/min" if asking.header("x-plan") == "pro" else "1/min"


def test_dotted_paths(configured: Ask, ask: Ask) -> None:
    configured({"limits": [(f"{__name__}.by_plan", "address"), ("99/min", None)]})
    pro = {"headers": [("X-Plan", "pro")]}
    assert statuses(ask(pro, pro, pro)) == [200, 200, 429]


def test_a_guard_of_ones_own(server: RedisServer, configured: Ask, ask: Ask) -> None:
    guard = Guard(Limiter(server.url(), timeout=5), Rule("1/min"))
    with override_settings(THROTTLE={"GUARD": guard}, MIDDLEWARE=[OURS]):
        assert statuses(ask({}, {})) == [200, 429]


# -- whatever is sent ----------------------------------------------------------------------------------------


def test_random_requests_are_answered_and_mint_no_keys(server: RedisServer, configured: Ask) -> None:
    configured(
        {"limits": "100000/min", "key": "route", "name": "route"},
        {"limits": "5/min", "key": "address", "path": "/sms/<int:id>/", "name": "sms"},
    )
    app = get_wsgi_application()

    @settings(max_examples=2000, deadline=None)
    @given(wsgi_calls.requests("/", "/sms/7/", "/limited/", "/health/", "/class/limited/", "//sms//7/"))
    def all_of_them(request: dict[str, Any]) -> None:
        answer = wsgi_calls.call(app, valid=False, **request)
        assert answer.status in (200, 400, 404, 405, 429)
        assert len(answer.all("RateLimit")) <= 1
        assert len(answer.all("Retry-After")) == (answer.status == 429)

    all_of_them()
    # ten routes at most, "-" among them; six peers that are told apart, for sms, the function, its route, the class
    assert len(list(server.client().scan_iter())) <= 10 + 4 * 6


assert django_project
