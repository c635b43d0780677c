"""limits: its three strategies; what Retry-After needs is a second question."""

from __future__ import annotations

from time import time

from limits import RateLimitItemPerHour
from limits.storage import RedisStorage
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter, SlidingWindowCounterRateLimiter

from benchmarks.peers.apps.common import COUNTERS, FIXED, LIMITER, LOG, Ask, in_turn

STRATEGIES = {
    FIXED: FixedWindowRateLimiter,
    LOG: MovingWindowRateLimiter,
    COUNTERS: SlidingWindowCounterRateLimiter,
}


def asks(client, quota):
    item = RateLimitItemPerHour(quota)
    made = []
    for kind, strategy in STRATEGIES.items():
        # strategies of one storage would share keys, and these are of different types
        prefix = strategy.__name__
        limiter = strategy(RedisStorage(LIMITER, connection_pool=client.connection_pool, key_prefix=prefix))
        made += [alone(kind, limiter, item), told(kind, limiter, item)]
    return made


def alone(kind, limiter, item):
    user = in_turn(lambda n: f"alone:u{n}")
    return Ask(kind, "`hit` alone", "–", lambda: (limiter.hit(item, user()),))


def told(kind, limiter, item):
    user = in_turn(lambda n: f"told:u{n}")

    def ask():
        key = user()
        passes = limiter.hit(item, key)
        reset, remaining = limiter.get_window_stats(item, key)
        return passes, remaining, max(0.0, reset - time())

    return Ask(kind, "`hit` + `get_window_stats`", "remaining, reset", ask)
