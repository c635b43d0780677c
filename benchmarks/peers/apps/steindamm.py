"""steindamm: the body sleeps in its pool slot until its turn."""

from __future__ import annotations

from functools import cache

from steindamm import MaxSleepExceededError, SyncRedisTokenBucket

from benchmarks.peers.apps.common import BUCKET, Ask, in_turn, make_app, started, store

app = make_app()


@cache
def bucket(name):
    return SyncRedisTokenBucket(connection=store(), name=name, capacity=1, refill_frequency=1 / 20, max_sleep=0)


@app.task(name="send")
def send(n):
    with bucket("send"):
        started("send", n)


@app.task(name="export")
def export(tenant, n):
    with bucket(tenant):
        started("export", f"{tenant}:{n}")


def submit(n):
    send.delay(n)


def submit_tenant(who, n):
    export.delay(who, n)


def decide(client):
    free = SyncRedisTokenBucket(
        connection=client, name="decide", capacity=1_000_000, refill_frequency=1, refill_amount=1_000_000
    )

    def ask():
        with free:
            pass

    return ask


def asks(client, quota):
    def made(n):
        hour = {"refill_frequency": 3600 / quota, "expiry": 3600}
        return SyncRedisTokenBucket(connection=client, name=f"asks:u{n}", capacity=quota, max_sleep=1e-3, **hour)

    user = in_turn(made)

    def ask():
        try:
            with user():
                return (True,)
        except MaxSleepExceededError as error:
            return False, str(error)  # "would sleep 59.97s"

    return [Ask(BUCKET, "`with bucket`, `max_sleep`", "retry after, in a text", ask)]
