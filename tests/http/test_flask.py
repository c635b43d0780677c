"""Flask: the app, views, method views and blueprints."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flask import Blueprint, Flask, Response, abort, jsonify, request, stream_with_context
from flask.views import MethodView
from hypothesis import given, settings
from werkzeug.exceptions import HTTPException, TooManyRequests

from tests.http.wsgi_calls import Answer, call, requests
from tests.services import RedisServer
from throttle import BacklogFull, CostExceedsLimit, Decision, Limiter, StoreUnavailable, ThrottleError, TokenBucket
from throttle.errors import Throttled
from throttle.flask import Throttle, limit
from throttle.http import Refusal
from throttle.rules import Guard, Rule
from throttle.wsgi import ThrottleMiddleware

FIELDS = ("RateLimit", "RateLimit-Policy")


@pytest.fixture
def limiter(server: RedisServer) -> Limiter:
    return Limiter(server.url(), scope="site", timeout=5)


def made(limiter: Any, *rules: Rule, **settings: Any) -> Flask:
    app = Flask(__name__)
    Throttle(app, Guard(limiter, *rules, **settings))

    @app.route("/sms/<int:id>", methods=["GET", "POST"])
    def sms(id: int) -> dict[str, int]:
        return {"id": id}

    @app.get("/")
    def root() -> str:
        return "root"

    return app


def statuses(app: Any, count: int, **request: Any) -> list[int]:
    return [call(app, **request).status for _ in range(count)]


# -- the app -------------------------------------------------------------------------------------------------


def test_rules_of_the_app_know_routes(limiter: Limiter) -> None:
    app = made(limiter, Rule("2/min", key=("address", "route")))
    assert statuses(app, 2, path="/sms/1") == [200, 200]
    refused = call(app, path="/sms/2")
    assert (refused.status, refused["Retry-After"]) == (429, "30")
    assert refused["Content-Type"] == "application/problem+json"
    assert json.loads(refused.body)["title"] == "Rate exceeded"
    assert call(app)["RateLimit"] == '"2/min, burst 2";r=1;t=30'
    unknown = [call(app, path=f"/unknown/{number}") for number in range(3)]
    assert [answer.status for answer in unknown] == [404, 404, 429], "unknown paths are one route"
    assert unknown[0]["RateLimit"]


def test_unknown_paths_mint_no_keys(server: RedisServer, limiter: Limiter) -> None:
    app = made(limiter, Rule("999/min", key="route"))
    assert {call(app, path=f"/{number}").status for number in range(50)} == {404}
    assert len(list(server.client().scan_iter())) == 1


def test_exempt_paths(limiter: Limiter) -> None:
    app = made(limiter, Rule("1/min"), exempt=["/static/*", "/sms/<int:id>"])
    assert statuses(app, 3, path="/sms/7") == [200] * 3
    assert not call(app, path="/static/x.css").all("RateLimit")
    assert statuses(app, 2) == [200, 429]


def test_a_factory(limiter: Limiter) -> None:
    throttle = Throttle(guard=Guard(limiter, Rule("1/min")))
    app = Flask(__name__)
    throttle.init_app(app)
    assert statuses(app, 2) == [404, 429]
    with pytest.raises(ThrottleError, match="no guard"):
        Throttle(Flask(__name__))


def test_errors_of_the_app_are_told_too(limiter: Limiter) -> None:
    app = made(limiter, Rule("9/min"))
    app.add_url_rule("/broken", "broken", lambda: 1 / 0)
    app.add_url_rule("/teapot", "teapot", lambda: abort(418))
    for path, status in (("/broken", 500), ("/teapot", 418)):
        answer = call(app, path=path)
        assert answer.status == status
        assert answer["RateLimit"]
        assert not answer.all("Retry-After")


# -- error handlers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("handled", [429, TooManyRequests, HTTPException, Exception])
def test_b98_error_handlers_do_not_lose_retry_after(limiter: Limiter, handled: Any) -> None:
    app = made(limiter, Rule("1/min"))
    seen: list[Any] = []

    @app.errorhandler(handled)
    def custom(error: Any) -> Any:
        seen.append(error)
        return jsonify(error=error.description), error.code

    call(app)
    answer = call(app)
    assert answer.status == 429
    assert answer["Retry-After"] == "60"
    assert answer["RateLimit"] == '"1/min";r=0;t=60'
    assert answer["Cache-Control"] == "no-store"
    assert "Try again in 60 s" in json.loads(answer.body)["error"]
    assert isinstance(seen[0], TooManyRequests)


def test_b98_a_handler_that_makes_a_success_of_it_has_no_retry_after(limiter: Limiter) -> None:
    app = made(limiter, Rule("1/min"))
    app.register_error_handler(429, lambda error: ("later", 200))
    call(app)
    assert not call(app).all("Retry-After")


def test_a_blueprints_handler_gets_what_its_view_was_refused(limiter: Limiter) -> None:
    app, pages = made(limiter), Blueprint("pages", __name__)
    pages.add_url_rule("/page", view_func=limit("1/min")(lambda: "page"))
    pages.register_error_handler(429, lambda error: ("slow down", 429))
    app.register_blueprint(pages)
    assert call(app, path="/page").status == 200
    answer = call(app, path="/page")
    assert (answer.status, answer.body, answer["Retry-After"]) == (429, b"slow down", "60")


@pytest.mark.parametrize(
    ("error", "status", "wait"),
    [
        (BacklogFull("export", 100.0, 7.2), 503, "8"),
        (StoreUnavailable("down"), 503, "30"),
        (Throttled(Decision(False, 5, 0, 3.5, 9.0, (TokenBucket("5/min", 5),))), 429, "4"),
    ],
)
def test_what_a_view_raises_is_answered(limiter: Limiter, error: Exception, status: int, wait: str) -> None:
    app = made(limiter)

    @app.post("/export")
    def export() -> str:
        raise error

    answer = call(app, method="POST", path="/export")
    assert (answer.status, answer["Retry-After"]) == (status, wait)
    own = Flask(__name__)
    own.register_error_handler(type(error), lambda error: ("own", 418))
    own.add_url_rule("/export", view_func=export)
    Throttle(own, Guard(limiter))
    assert call(own, path="/export").status == 418


def test_a_store_that_is_down_and_a_cost_that_never_passes() -> None:
    class Down:
        scope = "site"
        error: Exception = StoreUnavailable("down")

        def acquire(self, *limits: Any, **_: Any) -> Any:
            raise self.error

    app = made(Down(), Rule("1/min"))
    assert (call(app).status, call(app)["Retry-After"]) == (503, "30")
    Down.error = CostExceedsLimit(5, 3)
    assert (call(app).status, call(app).all("Retry-After")) == (413, [])


def test_an_answer_of_ones_own(limiter: Limiter) -> None:
    app = made(limiter, Rule("1/min"), on_refused=lambda asking, decision: Refusal(499, {}, b"slow down"))
    call(app)
    answer = call(app)
    assert (answer.status, answer.body) == (499, b"slow down")


# -- views ---------------------------------------------------------------------------------------------------


def test_views_have_limits_of_their_own(limiter: Limiter) -> None:
    app = made(limiter, Rule("5/min", key="address"))

    @app.route("/a/<name>", methods=["GET", "POST"])
    @app.route("/b/<name>", methods=["GET"])
    @limit("2/min", key="address", methods=["POST", "GET"])
    def view(name: str) -> str:
        return name

    assert statuses(app, 2, path="/a/1") == [200, 200]
    refused = call(app, path="/a/2", method="POST")
    assert refused.status == 429
    assert refused["RateLimit-Policy"].startswith('"GET,POST /a/<name> 2/min";q=2;w=60')
    assert refused.all("RateLimit")[0].startswith('"GET,POST /a/<name> 2/min";r=0')
    other = call(app, path="/b/1")
    assert other.status == 200, "another route"
    assert statuses(app, 1, path="/b/1", REMOTE_ADDR="192.0.2.9") == [200]


def test_methods_that_are_not_said_are_not_limited(limiter: Limiter) -> None:
    app = made(limiter)
    app.add_url_rule("/x", view_func=limit("1/min", methods="POST")(lambda: "x"), methods=["GET", "POST"])
    assert statuses(app, 2, path="/x", method="POST") == [200, 429]
    assert statuses(app, 2, path="/x") == [200, 200]


def test_b103_async_views(limiter: Limiter) -> None:
    app = made(limiter)

    @app.get("/async")
    @limit("1/min")
    async def view() -> dict[str, str]:
        return {"kind": "async"}

    first, second = call(app, path="/async"), call(app, path="/async")
    assert (first.status, json.loads(first.body)) == (200, {"kind": "async"})
    assert second.status == 429


def test_method_views(limiter: Limiter) -> None:
    app = made(limiter)

    class Reports(MethodView):
        decorators = (limit("2/min", methods=["POST"]),)

        def get(self) -> str:
            return "get"

        def post(self) -> str:
            return "post"

    @limit("1/min")
    class Other(MethodView):
        def get(self) -> str:
            return "other"

    class Single(MethodView):
        @limit("1/min")
        def get(self) -> str:
            return "single"

        def post(self) -> str:
            return "post"

    for path, view in (("/reports", Reports), ("/other", Other), ("/single", Single)):
        app.add_url_rule(path, view_func=view.as_view(path[1:]))
    assert statuses(app, 3, path="/reports", method="POST") == [200, 200, 429]
    assert statuses(app, 3, path="/reports") == [200] * 3
    assert statuses(app, 2, path="/other") == [200, 429]
    assert statuses(app, 2, path="/single") == [200, 429]
    assert statuses(app, 2, path="/single", method="POST") == [200] * 2


def test_blueprints(limiter: Limiter) -> None:
    app, pages = made(limiter), Blueprint("pages", __name__, url_prefix="/pages")
    limit("2/min", key="address")(pages)
    pages.add_url_rule("/a", endpoint="a", view_func=lambda: "a")
    pages.add_url_rule("/b", endpoint="b", view_func=lambda: "b")
    app.register_blueprint(pages)
    assert [call(app, path=f"/pages/{page}").status for page in "aba"] == [200, 200, 429]
    assert statuses(app, 2) == [200, 200], "other views are not the blueprint's"
    assert call(app, path="/pages/a")["RateLimit-Policy"] == '"blueprint pages 2/min";q=2;w=60'


def test_a_guard_of_its_own_needs_no_extension(limiter: Limiter) -> None:
    app = Flask(__name__)
    app.add_url_rule("/x", view_func=limit("1/min", guard=Guard(limiter))(lambda: "x"))
    answer = call(app, path="/x")
    assert answer["RateLimit"] == '"GET /x 1/min";r=0;t=60'
    assert call(app, path="/x")["Retry-After"] == "60"
    bare = Flask(__name__)
    bare.add_url_rule("/y", view_func=limit("1/min")(lambda: "y"))
    bare.testing = True
    with pytest.raises(ThrottleError, match=r"call throttle\.flask\.Throttle"):
        call(bare, path="/y")


def test_limits_that_make_no_sense_are_errors_when_they_are_written() -> None:
    with pytest.raises(ThrottleError, match="is not a rate"):
        limit("10 apples")
    with pytest.raises(TypeError, match="needs a limit"):
        limit()


def test_names_share(limiter: Limiter) -> None:
    app = made(limiter)
    for path in ("/x", "/y"):
        app.add_url_rule(path, endpoint=path, view_func=limit("1/min", name="both")(lambda: "ok"))
    assert [call(app, path=path).status for path in ("/x", "/y")] == [200, 429]


# -- layers --------------------------------------------------------------------------------------------------


def test_stacked_it_takes_once_and_tells_once(server: RedisServer, limiter: Limiter) -> None:
    rule = Rule("3/min", key="address", name="all")
    app = made(limiter, rule)
    app.add_url_rule("/x", view_func=limit("3/min", key="address", name="all")(lambda: "x"))
    Throttle(app, Guard(limiter, rule))  # by mistake
    stacked = ThrottleMiddleware(app.wsgi_app, Guard(limiter, rule))
    answers = [call(stacked, path="/x") for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429]
    for answer in answers:
        for field in FIELDS:
            assert answer[field]
    assert len(list(server.client().scan_iter())) == 1


def test_b102_streams_are_not_gathered(limiter: Limiter) -> None:
    app, asked = made(limiter, Rule("9/min")), []

    @app.get("/stream")
    def stream() -> Response:
        def parts() -> Any:
            for number in range(3):
                asked.append(request.path)
                yield str(number)

        return Response(stream_with_context(parts()))

    with app.test_client() as client:
        answer = client.get("/stream", buffered=False)
        assert answer.headers["RateLimit"]
        assert len(asked) <= 1
        assert answer.data == b"012"


def test_random_requests_are_answered_and_mint_no_keys(server: RedisServer, limiter: Limiter) -> None:
    app = made(
        limiter,
        Rule("100000/min", key="route", name="route"),
        Rule("3/min", path="/unknown", key="address", name="unknown"),
    )
    app.add_url_rule("/free/<path:rest>", view_func=limit("5/min", key="address")(lambda rest: rest))

    @settings(max_examples=2000, deadline=None)
    @given(requests("/", "/sms/7", "/sms/", "/free/a", "/unknown", "//sms//7"))
    def all_of_them(request: dict[str, Any]) -> None:
        answer: Answer = call(app, valid=False, **request)
        assert answer.status in (200, 308, 404, 405, 429)
        assert len(answer.all("RateLimit")) == 1
        assert len(answer.all("Retry-After")) == (answer.status == 429)

    all_of_them()
    # routes: /, /sms, /free, static and "-"; six peers that are told apart, for /unknown and for /free
    assert len(list(server.client().scan_iter())) <= 5 + 2 * 6
