"""The middleware around plain WSGI apps."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings

from tests.http.wsgi_calls import Answer, call, environ, requests
from tests.services import RedisServer
from throttle import BacklogFull, Decision, Limiter, StoreUnavailable, ThrottleError, TokenBucket
from throttle.errors import Throttled
from throttle.http import Identity, Refusal
from throttle.rules import Guard, Rule
from throttle.wsgi import ThrottleMiddleware, asking_of

FIELDS = ("RateLimit", "RateLimit-Policy")


@pytest.fixture
def limiter(server: RedisServer) -> Limiter:
    return Limiter(server.url(), scope="site", timeout=5)


def hello(environ: Any, start_response: Any) -> Any:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hello"]


def keys(server: RedisServer) -> list[bytes]:
    return list(server.client().scan_iter())


def statuses(app: Any, count: int, **request: Any) -> list[int]:
    return [call(app, **request).status for _ in range(count)]


def test_passed_and_refused(limiter: Limiter) -> None:
    app = ThrottleMiddleware(hello, Guard(limiter, Rule("2/min", key="address")))
    first, _, third = (call(app) for _ in range(3))
    assert (first.status, first.body) == (200, b"hello")
    assert first["RateLimit"] == '"2/min, burst 2";r=1;t=30'
    assert not first.all("Retry-After")
    assert third.status == 429
    assert third["Retry-After"] == "30"
    assert third["Content-Type"] == "application/problem+json"
    assert third["Content-Length"] == str(len(third.body))
    assert call(app, REMOTE_ADDR="192.0.2.2").status == 200
    assert call(app, REMOTE_ADDR="").status == 200, "over a Unix socket there is no address"
    head = call(app, method="HEAD")
    assert (head.status, head.body) == (429, b"")


def test_stacked_twice_it_takes_once_and_tells_once(server: RedisServer, limiter: Limiter) -> None:
    guard = Guard(limiter, Rule("5/min", key="address"))
    again = Guard(limiter, Rule("5/min", key="address"), Rule("3/min", path="/"))
    app = ThrottleMiddleware(ThrottleMiddleware(ThrottleMiddleware(hello, again), guard), guard)
    answers = [call(app) for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429]
    for answer in answers:
        for field in FIELDS:
            assert answer[field]  # one of each
    assert answers[0]["RateLimit"] == '"/ 3/min";r=2;t=20'
    assert answers[3]["Retry-After"] == "20"
    assert len([key for key in keys(server) if b"|ip" in key]) == 1


def test_b98_no_success_has_retry_after_and_every_refusal_has(limiter: Limiter) -> None:
    def any_status(environ: Any, start_response: Any) -> Any:
        start_response(environ["PATH_INFO"][1:] + " Any", [("Content-Type", "text/plain")])
        return [b""]

    app = ThrottleMiddleware(any_status, Guard(limiter, Rule("6/min")))
    for status in (200, 301, 404, 429, 500, 503):
        assert not call(app, path=f"/{status}").all("Retry-After")
    assert call(app, path="/200")["Retry-After"] == "10"


class Streamed:
    """A body that counts what was asked of it."""

    def __init__(self, parts: list[bytes]) -> None:
        self.parts, self.asked, self.closed = iter(parts), 0, False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        self.asked += 1
        return next(self.parts)

    def close(self) -> None:
        self.closed = True


def test_b102_streams_pass_untouched(limiter: Limiter) -> None:
    stream = Streamed([b"a", b"b"])

    def app(environ: Any, start_response: Any) -> Any:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return stream

    started: list[Any] = []
    body = ThrottleMiddleware(app, Guard(limiter, Rule("9/min")))(environ(), lambda *args: started.append(args))  # type: ignore[func-returns-value,arg-type,return-value]
    assert body is stream, "a server's file_wrapper goes to the server as it is"
    assert stream.asked == 0
    assert dict(started[0][1])["RateLimit"]


def test_apps_that_are_generators(limiter: Limiter) -> None:
    closed = []

    def app(environ: Any, start_response: Any) -> Any:
        try:
            if environ["PATH_INFO"] == "/full":
                raise BacklogFull("export", 100.0, 7.2)
            start_response("200 OK", [("Content-Type", "text/plain")])
            yield b"a"
            yield b"b"
        finally:
            closed.append(1)

    guarded = ThrottleMiddleware(app, Guard(limiter, Rule("9/min")))
    answer = call(guarded)
    assert (answer.body, answer["RateLimit"]) == (b"ab", '"9/min, burst 9";r=8;t=7')
    full = call(guarded, path="/full")
    assert (full.status, full["Retry-After"]) == (503, "8")
    assert len(closed) == 2


@pytest.mark.parametrize(
    ("error", "status", "wait"),
    [
        (BacklogFull("export", 100.0, 7.2), 503, "8"),
        (StoreUnavailable("down"), 503, "30"),
        (Throttled(Decision(False, 5, 0, 3.5, 9.0, (TokenBucket("5/min", 5),))), 429, "4"),
    ],
)
@pytest.mark.parametrize("begun", [False, True])
def test_what_the_app_raises_is_answered(
    limiter: Limiter, error: Exception, status: int, wait: str, begun: bool
) -> None:
    def app(environ: Any, start_response: Any) -> Any:
        if begun:
            start_response("200 OK", [("Content-Type", "text/plain")])
        raise error

    answer = call(ThrottleMiddleware(app, Guard(limiter, Rule("9/min"))))
    assert (answer.status, answer["Retry-After"]) == (status, wait)
    assert answer["Content-Type"] == "application/problem+json"


def test_other_errors_are_the_apps(limiter: Limiter) -> None:
    def app(environ: Any, start_response: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        call(ThrottleMiddleware(app, Guard(limiter, Rule("9/min"))))


def test_exempt_paths_are_neither_counted_nor_told(limiter: Limiter) -> None:
    app = ThrottleMiddleware(hello, Guard(limiter, Rule("1/min"), exempt=["/health", "/static/*"]))
    for path in ("/health", "/static/a/b.css"):
        answer = call(app, path=path)
        assert (answer.status, answer.all("RateLimit")) == (200, [])
    assert statuses(app, 2) == [200, 429]


def test_b104_spoofed_addresses_are_one_key(server: RedisServer, limiter: Limiter) -> None:
    app = ThrottleMiddleware(hello, Guard(limiter, Rule("1000/min", key="address")))
    for number in range(100):
        call(app, headers=[("X-Forwarded-For", f"203.0.113.{number}"), ("Forwarded", f"for=203.0.113.{number}")])
    assert len(keys(server)) == 1


def test_b104_one_trusted_proxy(limiter: Limiter) -> None:
    app = ThrottleMiddleware(hello, Guard(limiter, Rule("1/min", key="address"), identity=Identity(1)))
    evil = [[("X-Forwarded-For", f"198.51.100.{number}"), ("X-Forwarded-For", "203.0.113.7")] for number in range(3)]
    assert [call(app, headers=headers).status for headers in evil] == [200, 429, 429]
    garbage = [("X-Forwarded-For", "23189987")]
    assert statuses(app, 2, headers=garbage) == [200, 429], "the peer"


def test_b105_one_warning_behind_a_proxy_that_is_not_trusted(
    limiter: Limiter, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("throttle.http.identity._warned", [])
    guards = [Guard(limiter, Rule("9/min", key="address"), identity=Identity(trust)) for trust in (1, None, None)]
    with caplog.at_level(logging.WARNING):
        for guard in guards:
            for _ in range(3):
                app = ThrottleMiddleware(hello, guard)
                call(app, REMOTE_ADDR="10.0.0.1", headers=[("X-Forwarded-For", "203.0.113.7")])
    assert len([record for record in caplog.records if "trusted_proxies" in record.getMessage()]) == 1


def test_paths_are_what_they_mean(limiter: Limiter) -> None:
    asked = asking_of(environ(path="/élan", SCRIPT_NAME="/app"))
    assert (asked.path, asked.root, asked.paths) == ("/app/élan", "/app", ("/app/élan", "/élan"))
    assert asking_of(environ(path="", SCRIPT_NAME="/app")).path == "/app/"
    assert asking_of(environ(PATH_INFO="/\xff")).path == "/\ufffd"
    app = ThrottleMiddleware(hello, Guard(limiter, Rule("1/min", path="/élan")))
    assert statuses(app, 2, path="/élan", SCRIPT_NAME="/app") == [200, 429]


def test_an_answer_of_ones_own(limiter: Limiter) -> None:
    def on_refused(asking: Any, decision: Any) -> Refusal:
        return Refusal(499, {"Content-Type": "text/plain"}, b"slow down")

    app = ThrottleMiddleware(hello, Guard(limiter, Rule("1/min"), on_refused=on_refused))
    call(app)
    answer = call(app)
    assert (answer.status, answer.body) == (499, b"slow down")
    assert answer["Retry-After"] == "60"


def test_a_guard_that_must_be_awaited_is_an_error_at_once(limiter: Limiter) -> None:
    class Awaited:
        async def acquire(self, *limits: Any) -> Any: ...

    with pytest.raises(ThrottleError, match="not an AsyncLimiter"):
        ThrottleMiddleware(hello, Guard(Awaited(), Rule("1/min")))


def test_random_requests_are_answered_and_mint_no_keys(server: RedisServer, limiter: Limiter) -> None:
    guard = Guard(
        limiter,
        Rule("100000/min", key="route", name="route"),
        Rule("100000/min", key="address", path="/sms/{id}", name="sms"),
        exempt=["/health"],
    )
    app = ThrottleMiddleware(hello, guard)

    @settings(max_examples=2000, deadline=None)
    @given(requests("/", "/sms/7", "/sms/", "/health", "//sms//7"))
    def all_of_them(request: dict[str, Any]) -> None:
        answer: Answer = call(app, valid=False, **request)
        assert answer.status == 200
        assert len(answer.all("RateLimit")) <= 1

    all_of_them()
    # two routes ("-" is one), and six peers, two of which have no address
    assert len(keys(server)) <= 2 + 6


@pytest.mark.parametrize(
    ("module", "others"),
    [("wsgi", {"flask", "werkzeug", "rest_framework"}), ("flask", {"rest_framework"}), ("django", {"flask"})],
)
def test_a_module_imports_its_framework_alone(module: str, others: set[str]) -> None:
    code = f"import sys, throttle.{module}; assert not {others} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
