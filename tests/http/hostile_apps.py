"""The web examples, and apps that make use of everything, for random requests; each loads in a process of its own."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from fastapi import Depends, FastAPI, Request

from tests.http.hostile import PROXIES, SECRET


class Hosted(NamedTuple):
    """An app, how it is asked, and what is sent to it."""

    load: Callable[[], Any]
    is_asgi: bool
    paths: tuple[str, ...]
    bodies: tuple[bytes, ...] = (b"",)
    proxies: bool = False


KNOWN = re.compile(rf"{SECRET}-\d{{16}}-(x{{20}}|y{{100}})?")


def token(asking: Any) -> str | None:
    """A key as one should not make it: the credential as it was sent."""
    sent = asking.header("authorization", "")
    return sent if sent[:7] == "Bearer " and KNOWN.fullmatch(sent[7:]) else None


def session(asking: Any) -> str | None:
    """One more: what stands in a cookie."""
    for pair in (asking.header("cookie") or "").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == "sessionid" and KNOWN.fullmatch(value):
            return value
    return None


def api_key(asking: Any) -> str | None:
    sent = asking.header("x-api-key", "")
    return sent if sent in ("free", "pro") or KNOWN.fullmatch(sent) else None


def everything(limiter: Any, header: str) -> Any:
    from throttle import FixedWindow, Quota, SlidingLog, SlidingWindow, TokenBucket
    from throttle.http import Identity
    from throttle.rules import Guard, Rule

    plans = {"pro": TokenBucket("900/min", 900, name="pro"), "free": "60/min"}
    return Guard(
        limiter,
        Rule(("600/min", "address"), (lambda asking: plans.get(asking.api_key or "free"), "api_key"), path="/sms/{id}"),
        Rule(FixedWindow("90000/min"), SlidingWindow("90001/min"), path="/*", key="route"),
        Rule(SlidingLog("40/min", name="log"), path="/files/*", key=("who", "route"), cost=cost),
        Rule(
            (TokenBucket("700/min", 700, name="token"), token), (TokenBucket("700/min", 700, name="session"), session)
        ),
        Rule(
            Quota(10**9, "month", name="plan"), key=lambda asking: (asking.api_key and "keyed", asking.method == "GET")
        ),
        identity=Identity([*(proxy for proxy in PROXIES if ":" not in proxy), "10.0.0.3"], header=header),
        api_key=api_key,
        exempt=["/health", lambda asking: asking.header("x-user") == "nobody has this name"],
        style=("draft-8", "x-ratelimit"),
    )


def cost(asking: Any) -> float:
    try:
        return min(9.0, float(asking.header("x-cost", "1") or 1))
    except ValueError:
        return 1


def everything_asgi() -> Any:
    from throttle import AsyncLimiter
    from throttle.fastapi import install, limit

    app = FastAPI()

    def view(request: Request) -> dict[str, str]:
        return {"path": request.url.path}

    for template in ("/sms/{id}", "/sms/status", "/files/{name:path}"):
        dependencies = [Depends(limit("500/min", key=("who", "route")))]
        app.api_route(template, methods=["GET", "POST"], dependencies=dependencies)(view)
    install(app, everything(AsyncLimiter(os.environ["REDIS_URL"], scope="everything"), "x-forwarded-for"))
    return app


def everything_wsgi() -> Any:
    from flask import Flask, request

    from throttle import Limiter
    from throttle.flask import Throttle, limit
    from throttle.wsgi import ThrottleMiddleware

    app = Flask(__name__)
    guard = everything(Limiter(os.environ["REDIS_URL"], scope="everything"), "forwarded")

    def view(**_: str) -> dict[str, str]:
        return {"path": request.path}

    for n, template in enumerate(("/sms/<id>", "/sms/status", "/files/<path:name>")):
        limited = limit("500/min", key=("who", "route"))(view)
        app.add_url_rule(template, str(n), limited, methods=["GET", "POST"])
    Throttle(app, guard)
    app.wsgi_app = ThrottleMiddleware(app.wsgi_app, guard)  # type: ignore[method-assign]
    return app


def every_view() -> Any:
    """Django's views of every kind, REST framework's and Ninja's."""
    from tests.http import django_project  # noqa: F401  (configures it)

    from django.conf import settings  # isort: skip
    from django.core.wsgi import get_wsgi_application  # isort: skip

    settings.THROTTLE = {
        "REDIS": os.environ["REDIS_URL"],
        "RULES": [
            {"limits": "300/min", "key": "address"},
            {"limits": "90000/min", "key": ("api_key", "route"), "path": "/drf/*", "name": "drf"},
            {"limits": "20/min", "key": "address", "path": "/drf/items/<pk>/", "name": "items"},
        ],
        "EXEMPT": ["/health/"],
    }
    return get_wsgi_application()


def example(name: str, attribute: str) -> Callable[[], Any]:
    return lambda: getattr(__import__(f"examples.{name}", fromlist=["_"]), attribute)


def django_example() -> Any:
    from django.core.wsgi import get_wsgi_application

    example("django_export", "app")()
    return get_wsgi_application()


_FORM = (b"user=ann&password=" + SECRET.encode(), b"user=bob&password=x", b"user=Ann ", b"password=x&user=&user=b", b"")
_ITEMS = ("/", "/sms/7", "/sms/status", "/files/a/b", "/health", "/unknown")
_VIEWS = (
    "/", "/sms/7/", "/async/", "/limited/", "/limited/7/", "/alimited/", "/class/limited/", "/class/decorated/",
    "/class/alimited/", "/class/adecorated/", "/class/amethod/", "/full/", "/afull/", "/old/1999/", "/health/",
    "/drf/anon/", "/drf/export/", "/drf/full/", "/drf/function/", "/drf/above/", "/drf/below/", "/drf/items/7/",
    "/ninja/limited", "/ninja/alimited?page=1", "/unknown/",
)  # fmt: skip
HOSTED = {
    "plain_asgi": Hosted(example("plain_asgi", "app"), True, ("/", "/health", "/any")),
    "fastapi_sms": Hosted(
        example("fastapi_sms", "api"), True, ("/sms", "/sms", "/health", "/docs", "/openapi.json", "/unknown"),
        (b'{"to": "+49555", "text": "hello"}', b'{"to": "x", "text": "' + b"y" * 2000 + b'", "more": [1]}'),
    ),
    "django_export": Hosted(django_example, False, ("/export/acme/", "/export/tiny/", "/export/", "/health/", "/")),
    "flask_login": Hosted(example("flask_login", "app"), False, ("/login", "/login", "/health", "/static/x"), _FORM),
    "everything_asgi": Hosted(everything_asgi, True, _ITEMS, proxies=True),
    "everything_wsgi": Hosted(everything_wsgi, False, _ITEMS, proxies=True),
    "every_view": Hosted(every_view, False, _VIEWS, _FORM),
}  # fmt: skip
