"""Served by uvicorn in tests: says hello over HTTP and websockets, three times a minute each."""

import os

from tests.http.asgi_apps import hello
from throttle import Limiter
from throttle.asgi import ThrottleMiddleware
from throttle.rules import Guard, Rule

limiter = Limiter(os.environ["REDIS_URL"], scope="served")
app = ThrottleMiddleware(hello, Guard(limiter, Rule("3/min", key="route", path="/*"), exempt="/health"))
quick = ThrottleMiddleware(hello, Guard(limiter, Rule("3/s", name="quick"), exempt="/health"))
