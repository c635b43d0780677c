"""steindamm: the body sleeps in its pool slot until its turn."""

from __future__ import annotations

from functools import cache

from steindamm import SyncRedisTokenBucket

from benchmarks.peers.apps.common import make_app, started, store

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
