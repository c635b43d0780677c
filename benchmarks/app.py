"""The app whose workers are measured; configured by environment, see `benchmarks.rig`."""

from __future__ import annotations

import os

from celery import Celery

from benchmarks import provider
from throttle import TokenBucket, throttled

NEVER_BITES = TokenBucket("1000000/s", burst=1_000_000)

app = Celery("benchmarks", broker=os.environ["BENCH_BROKER"])
app.conf.update(
    throttle_redis_url=os.environ["BENCH_LIMITER"],
    broker_connection_retry_on_startup=True,
    task_ignore_result=True,
    task_acks_late=os.environ.get("BENCH_LATE") == "1",
    worker_hijack_root_logger=False,
)


@app.task(name="plain")
def plain(n: int) -> None:
    provider.call("start", "plain", n)


@throttled("20/s")
@app.task(name="send20")
def send20(n: int) -> None:
    provider.call("start", "send20", n)


@throttled("200/s")
@app.task(name="send200")
def send200(n: int) -> None:
    provider.call("start", "send200", n)


@throttled("20/s")
@app.task(name="busy")
def busy(n: int) -> None:
    provider.call("start", "busy", n)
    provider.call("end", "busy", n)


@throttled(TokenBucket("20/s", key="{tenant}"))
@app.task(name="export")
def export(tenant: str, n: int) -> None:
    provider.call("start", "export", f"{tenant}:{n}")


@throttled(NEVER_BITES)
@app.task(name="free")
def free(n: int) -> None:
    provider.call("start", "free", n)


@throttled(0)
@app.task(name="closed")
def closed(n: int) -> None:
    provider.call("start", "closed", n)


@throttled(TokenBucket(0, key="{tenant}"))
@app.task(name="shut")
def shut(tenant: str, text: str) -> None:
    provider.call("start", "shut", tenant)
