"""Correct use of the request side, for mypy in strict mode; not run."""

from __future__ import annotations

from typing import Any

from fastapi import Depends, FastAPI
from flask import Flask

from throttle import AsyncLimiter, FixedWindow, LeakyBucket, Limiter, Quota, SlidingLog, SlidingWindow, TokenBucket
from throttle.asgi import ThrottleMiddleware
from throttle.fastapi import install
from throttle.fastapi import limit as depends
from throttle.flask import Throttle
from throttle.flask import limit as flask_limit
from throttle.http import Identity, Refusal, fields, refusal
from throttle.rules import Asking, Guard, Outcome, Rule
from throttle.wsgi import ThrottleMiddleware as WsgiMiddleware

limiter = Limiter("redis://localhost", scope="web", timeout=0.1, lease=10, spread=False)
awaited = AsyncLimiter("redis://localhost", scope="web", timeout=1, lease=10)


def by_plan(asking: Asking) -> TokenBucket | None:
    return None if asking.api_key == "root" else TokenBucket("60/min", burst=60)


async def tenant(asking: Asking) -> str | None:
    return asking.header("x-tenant")


def say_no(asking: Asking, decision: Any) -> Refusal | None:
    return None


rules = [
    Rule("300/min", key="address"),
    Rule((by_plan, "api_key"), ("1000/s", None), path="/sms/{id}", methods=["POST", "PUT"], cost=2, last=True),
    Rule(FixedWindow("9/s"), SlidingWindow("9/min"), SlidingLog("9/min"), Quota(9, "month", tz="UTC"), key=tenant),
    Rule(LeakyBucket("10/s", depth=20).of("all"), TokenBucket("5/s", 9), key=("user", "route"), name="line"),
]
guard = Guard(
    awaited, *rules, identity=Identity(trusted_proxies=1), api_key="X-API-Key",
    exempt=["/health", lambda asking: False], on_refused=say_no, style=("draft-8", "x-ratelimit"), cost=1,
)  # fmt: skip
outcome: Outcome = Guard(limiter, *rules).check(Asking("GET", "/", peer="192.0.2.1", headers=[("a", "b")]))
told: dict[str, str] = fields(limiter.peek(TokenBucket("1/s")), "draft-7")
answer: Refusal = refusal(limiter.acquire(TokenBucket("1/s")))

api = FastAPI(dependencies=[Depends(depends("10/min", key="address"))])
install(api, guard)
app = ThrottleMiddleware(api, guard)

web = Flask("web")
Throttle(web, Guard(limiter, *rules))
served = WsgiMiddleware(web.wsgi_app, Guard(limiter, *rules))


@web.get("/")
@flask_limit("5/min", key="address")
def hello(name: str = "") -> str:
    return name


greeting: str = hello("me")
