"""The smallest ASGI app and the smallest of FastAPI, with limits and without; BENCH_LIMITER says where Redis is."""

from __future__ import annotations

import os
from typing import Any

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse

from throttle import AsyncLimiter, TokenBucket
from throttle.asgi import ThrottleMiddleware
from throttle.fastapi import install
from throttle.rules import Guard, Rule

BODY = b"hello, world"
HEADERS = [(b"content-type", b"text/plain"), (b"content-length", str(len(BODY)).encode())]


async def plain(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await send({"type": "http.response.body", "body": BODY})


def limited() -> Any:
    """The same within a limit per address that never refuses."""
    return ThrottleMiddleware(plain, guard())


def leased() -> Any:
    """The same where most requests find their unit taken ahead."""
    return ThrottleMiddleware(plain, guard(lease=50))


def fastapi() -> FastAPI:
    """As its documentation begins, but for the body."""
    app = FastAPI()

    @app.get("/", response_class=PlainTextResponse)
    async def hello() -> str:
        return BODY.decode()

    return app


def fastapi_limited() -> FastAPI:
    """The same within a limit."""
    app = fastapi()
    install(app, guard())
    return app


def guard(lease: int = 0) -> Guard:
    """One limit, per address."""
    rule = Rule(TokenBucket("1000000/s", burst=1_000_000), key="address")
    return Guard(AsyncLimiter(os.environ["BENCH_LIMITER"], lease=lease), rule)
