"""Limit requests to any ASGI app: ten a minute for each address, however many servers there are.

You should see ten lines with 200, `RateLimit` counting down, then 429 with `Retry-After: 6`: one more may
come every six seconds.

Run `uvicorn examples.plain_asgi:app`, then
`for n in $(seq 12); do curl -si localhost:8000 | grep -iE '^(HTTP|ratelimit:|retry)'; done`.
"""

import os

from throttle import AsyncLimiter
from throttle.asgi import ThrottleMiddleware
from throttle.rules import Guard, Rule


async def hello(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": b"hello\n"})


limiter = AsyncLimiter(os.environ.get("REDIS_URL", "redis://localhost:6379/0"), scope="examples.plain_asgi")
guard = Guard(limiter, Rule("10/min", key="address"), exempt="/health")
app = ThrottleMiddleware(hello, guard)
