"""celery-throttle: queues of its own, dispatched by a process of its own."""

from __future__ import annotations

from celery_throttle import CeleryThrottle
from celery_throttle.core.rate_limiter import RateLimit, TokenBucketRateLimiter

from benchmarks.peers.apps.common import make_app, started, store

app = make_app()
throttle = CeleryThrottle(celery_app=app, redis_client=store(), target_queue="celery")


@app.task(name="send")
def send(n):
    started("send", n)


@app.task(name="export")
def export(tenant, n):
    started("export", f"{tenant}:{n}")


def prepare():
    for queue in ("send", "a", "b"):
        throttle.create_queue("20/1s", queue)


def dispatch():
    throttle.run_dispatcher(0.1)  # its command line's default


def submit(n):
    throttle.submit_task("send", "send", n)


def submit_tenant(who, n):
    throttle.submit_task(who, "export", who, n)


def decide(client):
    limiter = TokenBucketRateLimiter(client)
    limit = RateLimit(requests=1_000_000, period_seconds=1, burst_allowance=1_000_000)
    return lambda: limiter.try_acquire("decide", limit)
