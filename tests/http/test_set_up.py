"""What is set up wrongly fails there, with the remedy; what is missing is named."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from fastapi import FastAPI
from flask import Flask

from tests.http import django_project
from tests.http.asgi_apps import hello
from throttle import AsyncLimiter, Limiter, ThrottleError
from throttle import asgi as asgi_module
from throttle import django as django_module
from throttle import fastapi as fastapi_module
from throttle import flask as flask_module
from throttle import wsgi as wsgi_module
from throttle.rules import Guard, Rule

assert django_project
URL = "redis://localhost"
GUARD, AWAITED = Guard(Limiter(URL), Rule("1/s")), Guard(AsyncLimiter(URL), Rule("1/s"))
APP, FLASK = FastAPI(), Flask(__name__)


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        (lambda: fastapi_module.install(APP, Limiter(URL)), r"a Limiter is no Guard: say install\(app, guard\), where"),
        (lambda: fastapi_module.install(APP, None), r"None is no Guard: say install"),
        (lambda: fastapi_module.install(APP, Rule("1/s")), "a Rule is no Guard"),
        (lambda: fastapi_module.install(GUARD, APP), r"a Guard is no FastAPI app: say install\(app, guard\)"),
        (lambda: fastapi_module.install(FLASK, GUARD), "a Flask is no FastAPI app"),
        (lambda: fastapi_module.limit("1/s", guard=APP), r"a FastAPI is no Guard: say limit\(…, guard=guard\)"),
        (
            lambda: asgi_module.ThrottleMiddleware(hello, "10/min"),
            r"a str is no Guard: say ThrottleMiddleware\(",
        ),
        (lambda: asgi_module.ThrottleMiddleware(GUARD, hello), "a Guard is no app"),
        (lambda: asgi_module.ThrottleMiddleware(hello, GUARD, 7), "request 7 is no callable"),
        (lambda: asgi_module.ThrottleMiddleware(hello, GUARD, lambda: 7), "called with the scope"),
        (lambda: wsgi_module.ThrottleMiddleware(FLASK, None), "None is no Guard: say ThrottleMiddleware"),
        (lambda: wsgi_module.ThrottleMiddleware(GUARD, FLASK), "a Guard is no app"),
        (lambda: wsgi_module.ThrottleMiddleware(FLASK, AWAITED), "give it a Limiter"),
        (lambda: wsgi_module.ThrottleMiddleware(FLASK, GUARD, 7), "request 7 is no callable"),
        (lambda: flask_module.Throttle(FLASK, Limiter(URL)), r"a Limiter is no Guard: say Throttle\(app, guard\)"),
        (lambda: flask_module.Throttle(GUARD, FLASK), "a Flask is no Guard"),
        (lambda: flask_module.Throttle(GUARD), "has no guard: say Throttle"),
        (lambda: flask_module.Throttle(APP, GUARD), "a FastAPI is no Flask app"),
        (lambda: flask_module.Throttle(guard=7), "7 is no Guard"),
        (lambda: flask_module.Throttle().init_app(FLASK, 7), "7 is no Guard"),
        (lambda: flask_module.Throttle(FLASK, AWAITED), "give it a Limiter"),
        (lambda: flask_module.limit("1/s", guard=7), "7 is no Guard: say limit"),
        (lambda: flask_module.limit("1/s", guard=AWAITED), "give it a Limiter"),
        (lambda: flask_module.limit(lambda: "a view"), "limit .* is called with the Asking"),
        (lambda: django_module.limit("1/s", guard=Limiter(URL)), "a Limiter is no Guard"),
        (lambda: django_module.limit(lambda request, pk: "a view"), "is called with the Asking"),
    ],
)
def test_other_things_than_apps_and_guards(wrong: Any, remedy: str) -> None:
    with pytest.raises(ThrottleError, match=remedy):
        wrong()


def test_a_message_does_not_show_what_it_found() -> None:
    with pytest.raises(ThrottleError) as caught:
        fastapi_module.install(APP, "redis://:password@host")  # type: ignore[arg-type]
    assert "password" not in str(caught.value)


@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
@pytest.mark.parametrize("timeout", ["1s", "0.25", None, 0, 0.0, -1, -0.25, float("nan"), float("inf"), True, [1]])
def test_a_timeout_that_is_none(kind: Any, timeout: Any) -> None:
    with pytest.raises(ThrottleError, match=r"say seconds, as in timeout=0\.25"):
        kind(URL, timeout=timeout)


@pytest.mark.parametrize("kind", [Limiter, AsyncLimiter])
def test_a_timeout_that_is_one(kind: Any) -> None:
    for timeout in (1, 0.001, 5.0):
        assert kind(URL, "some", timeout=timeout)._reach.timeout == timeout


@pytest.mark.parametrize("extra", ["fastapi", "flask", "django", "drf", "http"])
@pytest.mark.parametrize("missing", ["http_sf", "the framework"])
def test_what_is_missing_is_named_by_the_extra_that_brings_it(extra: str, missing: str) -> None:
    """As if it were not installed; an extra is for one module, whatever of it is missing."""
    framework = {"drf": "rest_framework", "http": "http_sf"}.get(extra, extra)
    absent = framework if missing == "the framework" else missing
    code = (
        f"import sys\nsys.modules[{absent!r}] = None\ntry: import throttle.{extra}\nexcept ImportError as e: print(e)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert f'pip install "celery-throttled[{extra}]"' in said
    assert said.startswith(f"throttle.{extra} needs ")
