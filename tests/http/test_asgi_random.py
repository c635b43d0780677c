"""Whatever a client sends: never an error, and never more keys in Redis than there are clients and routes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import Depends, FastAPI, Request
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.http.asgi_apps import Answer, call, hello, scope
from tests.services import RedisServer
from throttle import FixedWindow, Limiter, Quota, SlidingLog, SlidingWindow, TokenBucket
from throttle.asgi import ThrottleMiddleware
from throttle.fastapi import install, limit
from throttle.rules import Asking, Guard, Rule

PLANS = {"free": "60/min", "pro": TokenBucket("600/min", 600, name="pro"), "own": None}
ROUTES = ("/sms", "/sms/{id}", "/sms/status", "/files/{name:path}", "/v1/things/{thing}")
ADDRESSES = ("192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2", "::ffff:192.0.2.1", "testclient", None)
MOST_KEYS = 150  # five addresses and three API keys, and five routes and those that are unknown, for each limit

latin = st.binary(max_size=200).map(lambda octets: octets.decode("latin-1"))
names = st.sampled_from([
    "x-api-key", "x-user", "x-cost", "x-forwarded-for", "forwarded", "origin", "access-control-request-method", "host",
    "cookie", "authorization",
])  # fmt: skip
values = st.sampled_from([*PLANS, "0", "-1", "1e9", "99999999999999", "nan", "203.0.113.1", "for=[::1"]) | latin
segments = (
    st.sampled_from(["", "sms", "status", "files", "v1", "things", "health", "..", "%2e", "{id}", "*"]) | st.text()
)
paths = st.lists(segments, max_size=6).map(lambda parts: "/" + "/".join(parts)) | st.text()
methods = st.sampled_from(["GET", "POST", "HEAD", "OPTIONS", "get", "PROPFIND"]) | st.text(max_size=30)
requests = st.fixed_dictionaries({
    "method": methods,
    "path": paths,
    "headers": st.lists(st.tuples(names | latin, values), max_size=6),
    "client": st.sampled_from(ADDRESSES).map(lambda address: (address, 1) if address else None),
    "root_path": st.sampled_from(["", "/v1", "/"]),
    "kind": st.sampled_from(["http"] * 9 + ["websocket"]),
})  # fmt: skip


def known(asking: Asking) -> str | None:
    key = asking.header("x-api-key")
    return key if key in PLANS else None


def plan(asking: Asking) -> Any:
    return PLANS[asking.api_key or "free"]


def cost(asking: Asking) -> float:
    try:
        return float(asking.header("x-cost", "1") or 1)
    except ValueError:
        return 1


def app(limiter: Limiter) -> FastAPI:
    made = FastAPI()

    def view(request: Request) -> dict[str, str]:
        return {"path": request.url.path}

    for template in ROUTES:
        dependencies = [Depends(limit("500/s", key=("who", "route")))]
        made.api_route(template, methods=["GET", "POST"], dependencies=dependencies)(view)
    guard = Guard(
        limiter,
        Rule(("1000/s", "address"), (plan, "api_key"), ("5000/s", None), path="/sms/{id}", methods=["GET", "POST"]),
        Rule(FixedWindow("900/min"), SlidingWindow("901/min"), path="/*", key="route", cost=cost),
        Rule(
            SlidingLog("400/min", name="log"),
            Quota(100000, "day", name="quota"),
            key=("user", "route"),
            path="/files/*",
        ),
        Rule("800/s", key="who"),
        api_key=known,
        user=lambda asking: asking.api_key,
        exempt=["/health", lambda asking: asking.header("x-user") == "admin"],
    )
    install(made, guard)
    return made


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


@settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=requests)
def test_whatever_a_client_sends(redis_process: RedisServer, loop: asyncio.AbstractEventLoop, made: Any) -> None:
    limited = _apps.get(redis_process) or _apps.setdefault(redis_process, app(Limiter(redis_process.url(4), timeout=5)))
    answer: Answer = loop.run_until_complete(call(limited, scope(**made)))
    assert answer.status != 500
    assert answer.status in (429, 413) or "Retry-After" not in dict(answer.headers)
    names = [name.lower() for name, _ in answer.headers]
    assert len(set(names)) == len(names), "each field once"
    assert redis_process.client(4).dbsize() <= MOST_KEYS


_apps: dict[RedisServer, FastAPI] = {}


def test_keys_that_nobody_has_checked_are_bounded_by_what_stands_before_them(server: RedisServer) -> None:
    """Each invented key is a new bucket, so a limit for addresses belongs in the same decision."""
    guard = Guard(
        Limiter(server.url(), timeout=5), Rule(("20/min", "address"), ("5/min", "api_key")), api_key="x-api-key"
    )
    limited = ThrottleMiddleware(hello, guard)

    async def main() -> None:
        for i in range(200):
            await call(limited, headers=[("x-api-key", f"guess {i}")])

    asyncio.run(main())
    assert server.client().dbsize() == 21
    assert not [key for key in server.client().scan_iter() if b"guess" in key]
