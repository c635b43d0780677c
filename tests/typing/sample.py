"""Correct use, for mypy in strict mode; not run."""

from __future__ import annotations

from celery import Celery, shared_task

from throttle import Decision, LeakyBucket, Limiter, TokenBucket, throttled
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
broken: int = excess([1.0], TokenBucket(0))
fake: Limiter = fake_limiter(FakeClock())
