"""throttled-py: one script, and a result that says it all."""

from __future__ import annotations

from throttled import RateLimiterType, RedisStore, Throttled, per_hour

from benchmarks.peers.apps.common import BUCKET, COUNTERS, FIXED, LIMITER, Ask, in_turn

STRATEGIES = (
    (BUCKET, RateLimiterType.TOKEN_BUCKET),
    (BUCKET, RateLimiterType.GCRA),
    (FIXED, RateLimiterType.FIXED_WINDOW),
    (COUNTERS, RateLimiterType.SLIDING_WINDOW),
)


def asks(_client, quota):
    store = RedisStore(server=LIMITER)
    return [
        told(kind, using.value, Throttled(using=using.value, quota=per_hour(quota, burst=quota), store=store))
        for kind, using in STRATEGIES
    ]


def told(kind, using, limiter):
    user = in_turn(lambda n: f"u{n}")

    def ask():
        result = limiter.limit(user())
        state = result.state
        return not result.limited, state.remaining, state.retry_after

    return Ask(kind, f"`limit`, {using}", "remaining, reset, retry after", ask)
