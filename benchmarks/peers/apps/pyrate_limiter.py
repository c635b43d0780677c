"""pyrate-limiter: a bucket for every user, each made beforehand; asked without its `Limiter`, which is for waiting."""

from __future__ import annotations

from pyrate_limiter import GCRA, Duration, FixedWindow, Rate, RateItem, RedisBucket, RedisStateStore, StateBucket

from benchmarks.peers.apps.common import BUCKET, FIXED, LOG, Ask, in_turn


def asks(client, quota):
    rates = [Rate(quota, Duration.HOUR)]
    return [
        told(BUCKET, "GCRA", lambda n: StateBucket(rates, GCRA(), RedisStateStore(client, f"pyrate:gcra:{n}"))),
        told(FIXED, "FixedWindow", lambda n: RedisBucket.init(rates, client, f"pyrate:fixed:{n}", FixedWindow())),
        told(LOG, "RedisBucket", lambda n: RedisBucket.init(rates, client, f"pyrate:log:{n}")),
    ]


def told(kind, name, made):
    user = in_turn(made)

    def ask():
        bucket = user()
        decision = bucket.put_decision(RateItem("u", bucket.now()))
        return decision.allowed, decision.retry_after_ms

    return Ask(kind, f"`put_decision`, {name}", "retry after", ask)
