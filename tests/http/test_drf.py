"""Throttle classes of Django REST framework, with its own exception handler and with others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings

from tests.http import django_project, wsgi_calls
from tests.services import RedisServer
from throttle import CostExceedsLimit, Limiter, SlidingLog, StoreUnavailable, ThrottleError
from throttle.rules import Guard, Rule

from django.core.checks import run_checks  # isort: skip  (after the configuration)
from django.core.exceptions import ImproperlyConfigured  # isort: skip
from django.core.wsgi import get_wsgi_application  # isort: skip
from django.test import override_settings  # isort: skip
from rest_framework.response import Response  # isort: skip
from rest_framework.test import APIRequestFactory, force_authenticate  # isort: skip
from rest_framework.views import APIView  # isort: skip
from rest_framework.views import exception_handler as standard  # isort: skip

from throttle.drf import AnonRateThrottle, RateThrottle, ScopedRateThrottle, UserRateThrottle, exception_handler  # isort: skip

OURS = "throttle.django.ThrottleMiddleware"
URLS = "tests.http.django_urls"
RATES = {"anon": "3/min", "user": "3/m", "export": ["2/min", "9/day"], "open": None}
Configure = Callable[..., None]


@pytest.fixture(autouse=True)
def configure(server: RedisServer) -> Iterator[Configure]:
    overrides: list[Any] = []

    def configure(middleware: bool = False, rules: Any = (), ROOT_URLCONF: str = URLS, **rest: Any) -> None:
        said = {"REDIS": server.url(), "RULES": rules, "TIMEOUT": 5}
        framework = {"DEFAULT_THROTTLE_RATES": RATES, "DEFAULT_AUTHENTICATION_CLASSES": [], **rest}
        more = {"MIDDLEWARE": [OURS] if middleware else [], "REST_FRAMEWORK": framework}
        more["ROOT_URLCONF"] = ROOT_URLCONF
        overrides.append(override_settings(THROTTLE=said, **more))
        overrides[-1].enable()

    configure()
    yield configure
    for override in reversed(overrides):
        override.disable()


def ask(*requests: dict[str, Any]) -> list[Any]:
    app = get_wsgi_application()
    return [wsgi_calls.call(app, valid=False, **request) for request in requests]


def statuses(answers: list[Any]) -> list[int]:
    return [answer.status for answer in answers]


@pytest.mark.parametrize("middleware", [False, True])
def test_refused_with_the_frameworks_own_answer(configure: Configure, middleware: bool) -> None:
    configure(middleware)
    answers = ask(*[{"path": "/drf/anon/"}] * 4)
    assert statuses(answers) == [200, 200, 200, 429]
    assert answers[0]["RateLimit"] == '"anon 3/min";r=2;t=20'
    assert not answers[2].all("Retry-After")
    assert answers[3]["Retry-After"] == "20"
    assert answers[3]["RateLimit"] == '"anon 3/min";r=0;t=20'
    assert answers[3]["Cache-Control"] == "no-store"
    assert json.loads(answers[3].body) == {"detail": "Request was throttled. Expected available in 20 seconds."}


def test_all_throttles_of_a_view_are_one_decision(server: RedisServer) -> None:
    exports = ask(*[{"path": "/drf/export/", "method": "POST"}] * 4)
    assert statuses(exports) == [202, 202, 429, 429]
    policies = exports[2]["RateLimit-Policy"]
    assert policies.startswith('"export 2/min";q=2;w=60')
    assert all(name in policies for name in ("user 3/min", "export 9/d"))
    assert exports[2]["Retry-After"] == "30"
    user = Rule("3/min", key="user", name="user").limits[0][0]
    peeked = Limiter(server.url(), "django").peek(user, key="ip:192.0.2.1")
    assert peeked.remaining == 1, "the refused ones took nothing from the throttle that would have let them pass"


@pytest.mark.parametrize("path", ["/drf/function/", "/drf/items/7/"])
def test_functions_and_viewsets(path: str) -> None:
    answers = ask(*[{"path": path}] * 3)
    assert statuses(answers) == [200, 200, 429]
    assert answers[0]["RateLimit"] == '"PerMinute 2/min";r=1;t=30'


def envelope(exc: Exception, context: Any) -> Any:
    """One that wraps everything, and forgets the fields."""
    response = standard(exc, context)
    return None if response is None else Response({"error": response.data}, status=response.status_code)


def success(exc: Exception, context: Any) -> Any:
    response = standard(exc, context)
    return None if response is None else Response({"code": response.status_code}, status=200)


@pytest.mark.parametrize("middleware", [False, True])
def test_b98_custom_exception_handlers(configure: Configure, middleware: bool) -> None:
    configure(middleware, EXCEPTION_HANDLER=f"{__name__}.envelope")
    answer = ask(*[{"path": "/drf/anon/"}] * 4)[3]
    assert (answer.status, answer["Retry-After"]) == (429, "20")
    assert answer["RateLimit"]
    assert answer["Cache-Control"] == "no-store"
    assert "error" in json.loads(answer.body)
    configure(middleware, EXCEPTION_HANDLER=f"{__name__}.success")
    answer = ask(*[{"path": "/drf/anon/"}] * 4)[3]
    assert (answer.status, answer.all("Retry-After")) == (200, [])


def test_backlog_full(configure: Configure) -> None:
    configure(middleware=True)
    [answer] = ask({"path": "/drf/full/", "method": "POST"})
    assert (answer.status, answer["Retry-After"]) == (503, "8")
    configure(EXCEPTION_HANDLER="throttle.drf.exception_handler")
    [answer] = ask({"path": "/drf/full/", "method": "POST"})
    assert (answer.status, answer["Retry-After"]) == (503, "8")
    assert "So much work is waiting" in json.loads(answer.body)["detail"]


def test_other_errors_are_the_frameworks() -> None:
    assert exception_handler(ZeroDivisionError(), {}) is None


def view_with(*throttles: type, **attributes: Any) -> Any:
    class Made(APIView):
        throttle_classes = throttles

        def get(self, request: Any) -> Response:
            return Response("ok")

    for name, value in attributes.items():
        setattr(Made, name, value)
    return Made.as_view()


def get(view: Any, user: str | None = None) -> Any:
    request = APIRequestFactory().get("/made")
    if user:
        force_authenticate(request, django_project.User(user))
    return view(request)


def test_users_and_anonymous(configure: Configure) -> None:
    view = view_with(AnonRateThrottle, UserRateThrottle)
    assert [get(view, "ann").status_code for _ in range(4)] == [200, 200, 200, 429]
    assert get(view, "ann").headers["RateLimit-Policy"] == '"user 3/min";q=3;w=60'
    assert get(view, "bob").status_code == 200
    assert get(view).headers["RateLimit-Policy"].count(";q=3") == 2


def test_limits_of_every_kind(configure: Configure) -> None:
    class Log(RateThrottle):
        scope, rate = "log", SlidingLog("2/min")

    class Tiers(RateThrottle):
        rate = staticmethod(lambda asking: "2/min" if asking.user == "ann" else "1/min")

    class Costly(RateThrottle):
        rate, cost = "5/min", 3

    for throttle, passing in ((Log, 2), (Tiers, 2), (Costly, 1)):
        view = view_with(throttle)
        assert [get(view, "ann").status_code for _ in range(3)] == [200] * passing + [429] * (3 - passing)
    assert [get(view_with(Tiers), "bob").status_code for _ in range(2)] == [200, 429]


def test_no_rate_is_no_limit_and_no_scope_is_an_error() -> None:
    class Open(RateThrottle):
        scope = "open"

    class Lost(RateThrottle):
        scope = "lost"

    assert [get(view_with(Open)).status_code for _ in range(5)] == [200] * 5
    assert get(view_with(ScopedRateThrottle)).status_code == 200
    with pytest.raises(ImproperlyConfigured, match=r"DEFAULT_THROTTLE_RATES\['lost'\]"):
        get(view_with(Lost))


class Down:
    scope = "django"

    def __init__(self, error: Exception) -> None:
        self.error = error

    def acquire(self, *limits: Any, **_: Any) -> Any:
        raise self.error


def test_a_store_that_is_down_and_a_cost_that_never_passes() -> None:
    with override_settings(THROTTLE={"GUARD": Guard(Down(StoreUnavailable("down")))}):
        answer = get(view_with(UserRateThrottle))
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "30")
    with override_settings(THROTTLE={"GUARD": Guard(Down(CostExceedsLimit(5, 3)))}):
        answer = get(view_with(UserRateThrottle))
        assert (answer.status_code, "Retry-After" in answer.headers) == (413, False)


def test_middleware_and_throttles_that_are_equal_take_once(server: RedisServer, configure: Configure) -> None:
    configure(middleware=True, rules=[{"limits": "3/min", "key": "address", "name": "anon"}])
    answers = ask(*[{"path": "/drf/anon/"}] * 4)
    assert statuses(answers) == [200, 200, 200, 429]
    assert answers[0]["RateLimit"] == '"anon 3/min";r=2;t=20'
    assert len(list(server.client().scan_iter())) == 1


def test_random_requests_are_answered_and_mint_no_keys(server: RedisServer, configure: Configure) -> None:
    configure(middleware=True)
    app = get_wsgi_application()

    @settings(max_examples=2000, deadline=None)
    @given(wsgi_calls.requests("/drf/anon/", "/drf/export/", "/drf/function/", "/drf/items/", "/drf/full/"))
    def all_of_them(request: dict[str, Any]) -> None:
        answer = wsgi_calls.call(app, valid=False, **request)
        assert answer.status in (200, 202, 400, 404, 405, 406, 429, 503)
        assert answer.status != 503 or "full" in request["path"]
        assert len(answer.all("RateLimit")) <= 1
        assert len(answer.all("Retry-After")) == (answer.status in (429, 503))

    all_of_them()
    # anon, user, export twice, PerMinute; six peers that are told apart
    assert len(list(server.client().scan_iter())) <= 5 * 6


# -- format suffixes -----------------------------------------------------------------------------------------

SUFFIXED = ("/router/items.json", "/router/items.json/", "/plain/items.json")


@pytest.mark.parametrize("path", SUFFIXED)
def test_a_format_suffix_does_not_escape_a_rule(configure: Configure, path: str) -> None:
    configure(True, [{"limits": "2/min", "path": "/*/items/", "name": "items"}], ROOT_URLCONF="tests.http.drf_urls")
    plain = path.partition(".")[0] + "/" * path.startswith("/router")
    answers = ask({"path": plain}, {"path": path}, {"path": plain}, {"path": path})
    assert statuses(answers) == [200, 200, 429, 429]


def test_a_format_suffix_is_no_other_route(configure: Configure, server: RedisServer) -> None:
    configure(True, [{"limits": "2/min", "key": "route"}], ROOT_URLCONF="tests.http.drf_urls")
    paths = ("/router/items/7.json", "/router/items/7/", "/router/items/8.json", "/router/items/8.json/")
    assert statuses(ask(*({"path": path} for path in paths))) == [200, 200, 429, 429]
    assert len(list(server.client().scan_iter())) == 1


def test_a_dot_that_is_no_format_suffix(configure: Configure) -> None:
    rules = [{"limits": "1/min", "path": "/router/items/", "name": "items"}]
    configure(True, rules, ROOT_URLCONF="tests.http.drf_urls")
    paths = (
        "/router/items/",
        "/other.json",
        "/other.json",
        "/router/items.unknown/x",
        "/router/items.b.c",
        "/.json",
        "/.",
    )
    assert [status for status in statuses(ask(*({"path": path} for path in paths))) if status == 429] == []
    assert statuses(ask({"path": "/router/items.json"})) == [429]


def test_a_decorated_view_counts_both_as_one(configure: Configure) -> None:
    configure(ROOT_URLCONF="tests.http.drf_urls")
    assert statuses(ask({"path": "/plain/limited"}, {"path": "/plain/limited.json"}, {"path": "/plain/limited"})) == [
        200, 200, 429,
    ]  # fmt: skip


# -- wrongly said --------------------------------------------------------------------------------------------


def test_a_class_that_makes_no_sense_is_refused_when_it_is_written() -> None:
    with pytest.raises(ThrottleError, match="is not a rate"):
        type("Wrong", (RateThrottle,), {"rate": "10 apples"})
    with pytest.raises(ThrottleError, match="key 'adress' is none of"):
        type("Wrong", (UserRateThrottle,), {"key": "adress"})
    with pytest.raises(ThrottleError, match="no number of units"):
        type("Wrong", (ScopedRateThrottle,), {"cost": "5"})


def test_rates_that_make_no_sense_are_told_by_the_checks(configure: Configure) -> None:
    configure(DEFAULT_THROTTLE_RATES={"anon": "3/min", "user": "10 apples", "export": [7]})
    told = [error.msg for error in run_checks() if error.id == "throttle.E002"]
    assert [one.partition(": ")[2].partition(":")[0] for one in told] == ["'user'", "'export'"]
    assert "10 apples" in told[0]
