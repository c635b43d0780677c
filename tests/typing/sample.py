"""Correct use, for mypy in strict mode; not run."""

from __future__ import annotations

import asyncio

from celery import Celery, shared_task

from throttle import AsyncLimiter, Decision, LeakyBucket, Limiter, Throttled, TokenBucket, throttled
from throttle.smoother import Smoother
from throttle.testing import FakeClock, excess, fake_limiter

app = Celery("sample")


@throttled("10/s", burst=20)
@app.task
def send_sms(to: str, text: str) -> bool:
    return bool(to and text)


@throttled(LeakyBucket("2/min", burst=9, key="{customer}"), TokenBucket("50/s", 9), scope="export-api", cost="{pages}")
@shared_task
def export(customer: str, pages: int) -> None: ...


limiter = Limiter("redis://localhost", scope="login")
decision: Decision = limiter.acquire(TokenBucket((5, 60.0)), key="me", cost=1)
wait: float = decision.retry_after
smoother = Smoother("redis://localhost", "in", "out", TokenBucket(None))
awaited = AsyncLimiter("redis://localhost", scope="login", on_store_error="local", denials=100)


@limiter.limit("10/min", key="{user}", wait=2.5)
def report(user: int) -> str:
    return str(user)


@awaited.limit(LeakyBucket("10/s", depth=20))
async def call(user: int) -> str:
    with limiter.slot(TokenBucket("5/s"), key=user) as said:
        reported: str = report(user)
    try:
        await awaited.wait(TokenBucket("5/s"), max_wait=1)
    except Throttled as error:
        await asyncio.sleep(error.retry_after + said.delay)
    return reported


broken: int = excess([1.0], TokenBucket(0))
fake: Limiter = fake_limiter(FakeClock())
