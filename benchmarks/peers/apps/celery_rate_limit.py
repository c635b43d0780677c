"""Celery's own `rate_limit`: counted per worker."""

from __future__ import annotations

from benchmarks.peers.apps.common import make_app, started

app = make_app()


@app.task(name="send", rate_limit="20/s")
def send(n):
    started("send", n)


def submit(n):
    send.delay(n)
