"""celery-throttled."""

from __future__ import annotations

from benchmarks.peers.apps.common import LIMITER, make_app, started
from throttle import Limiter, TokenBucket, throttled

app = make_app()
app.conf.throttle_redis_url = LIMITER


@throttled("20/s")
@app.task(name="send")
def send(n):
    started("send", n)


@throttled(TokenBucket("20/s", key="{tenant}"))
@app.task(name="export")
def export(tenant, n):
    started("export", f"{tenant}:{n}")


def submit(n):
    send.delay(n)


def submit_tenant(who, n):
    export.delay(who, n)


def decide(client):
    limiter, limit = Limiter(client, "decide"), TokenBucket("1000000/s", burst=1_000_000)
    return lambda: limiter.acquire(limit, key="u1")
