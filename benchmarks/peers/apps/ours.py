"""celery-throttled."""

from __future__ import annotations

from benchmarks.peers.apps.common import BUCKET, COUNTERS, FIXED, LIMITER, LOG, Ask, in_turn, make_app, started
from throttle import FixedWindow, Limiter, SlidingLog, SlidingWindow, TokenBucket, throttled

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


def asks(client, quota):
    rate = f"{quota}/h"
    kinds = {
        BUCKET: TokenBucket(rate, burst=quota),
        FIXED: FixedWindow(rate),
        LOG: SlidingLog(rate),
        COUNTERS: SlidingWindow(rate),
    }
    usual, forgetful = Limiter(client, "asks"), Limiter(client, "asks-0", denials=0)
    return [ask(kind, usual, limit, "") for kind, limit in kinds.items()] + [
        ask(kind, forgetful, limit, ", `denials=0`") for kind, limit in kinds.items()
    ]


def ask(kind, limiter, limit, setting):
    user = in_turn(lambda n: f"u{n}")
    how = f"`acquire`, {type(limit).__name__}{setting}"
    return Ask(kind, how, "remaining, reset, retry after", lambda: limiter.acquire(limit, key=user()))
