"""The smallest ASGI app, with the middleware and without; BENCH_LIMITER says where Redis is."""

from __future__ import annotations

import os
from typing import Any

from throttle import AsyncLimiter, TokenBucket
from throttle.asgi import ThrottleMiddleware
from throttle.rules import Guard, Rule

BODY = b"hello, world"
HEADERS = [(b"content-type", b"text/plain"), (b"content-length", str(len(BODY)).encode())]


async def plain(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await send({"type": "http.response.body", "body": BODY})


def limited() -> Any:
    """The same within a limit per address that never refuses."""
    rule = Rule(TokenBucket("1000000/s", burst=1_000_000), key="address")
    return ThrottleMiddleware(plain, Guard(AsyncLimiter(os.environ["BENCH_LIMITER"]), rule))
