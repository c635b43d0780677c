"""Rows 10 and 11: what parked tasks take, in the worker and in Redis."""

from __future__ import annotations

import time
from uuid import uuid4

import psutil
from celery import Celery

from benchmarks.figures import Row, at_most
from benchmarks.rig import Rig, progress
from throttle.backlog import AHEAD, LEASE
from throttle.deployment import deployment
from throttle.envelope import Envelope
from throttle.scripts import script

MEGA = 1 << 20


def message_of(rig: Rig, task: str, *args: object) -> tuple[Envelope, int]:
    """The message Celery publishes for this call, and its length on the broker's list."""
    app = Celery("stranger", broker=rig.broker.url(), set_as_current=False)
    app.conf.update(task_ignore_result=True, task_default_queue="measured")
    app.send_task(task, args)
    raw = rig.broker.client().lpop("measured")
    assert isinstance(raw, bytes)
    app.send_task(task, args)
    with app.connection_for_read() as connection:
        message = connection.SimpleQueue("measured").get(timeout=5)
        message.ack()
    return Envelope.of(message), len(raw)


def park(task: object, envelope: Envelope, count: int, lanes: int) -> None:
    """Park copies of one message through submit.lua, as many lanes in turn, 500 scripts a round trip."""
    place = deployment(task.app)  # type: ignore[attr-defined]
    backlog = place.backlog(task.__throttle__, task.name)  # type: ignore[attr-defined]
    backlog.register()
    backlog.declare(replace=True)
    submit, client, data = script("submit"), place.store.client, envelope.dump()
    old, made = envelope.headers["id"].encode(), 0
    client.script_load(submit.text)
    while made < count:
        pipe = client.pipeline(transaction=False)
        for n in range(made, min(count, made + 500)):
            id = str(uuid4())
            lane = f"tenant-{n % lanes}" if lanes else "-"
            entry = [id, lane, 0, 0, 0, lane, "1", data.replace(old, id.encode()), AHEAD, LEASE]
            bell = [place.store.namer.channel, backlog.scope]
            pipe.evalsha(submit.sha, len(backlog.keys), *backlog.keys, "", *entry, *bell, f"@{id}")
        pipe.execute()
        made += 500


def _resident(rig: Rig) -> int:
    return psutil.Process(rig.workers[0].pid).memory_info().rss


def worker_memory(rig: Rig) -> Row:
    """RSS of the worker's parent, before and with a backlog; a tenth of it goes through its gate."""
    from benchmarks import app

    total = 10_000 if rig.options.quick else 100_000
    gated = total // 10
    stranger = Celery("stranger", broker=rig.broker.url(), set_as_current=False)
    stranger.conf.task_ignore_result = True
    with rig.fleet(workers=1):
        app.closed.delay(0)
        stranger.send_task("closed", (0,))
        app.plain.delay(0)
        rig.await_calls(1, 30)
        time.sleep(1)
        before = _resident(rig)
        progress(f"parking {total - gated} tasks by submit")
        envelope, _ = message_of(rig, "closed", 0)
        park(app.closed, envelope, total - gated, 0)
        progress(f"parking {gated} tasks by the worker's gate")
        for n in range(gated):
            stranger.send_task("closed", (n,))
        _until_parked(app.closed, total, 300)
        time.sleep(2)
        grown = (_resident(rig) - before) / MEGA
    return Row(
        f"worker memory with {total} parked under a closed limit, against none, MB", f"{grown:+.1f}", "≤ +10",
        at_most(grown, 10), f"RSS of the worker's parent, {before / MEGA:.0f} MB before; {gated} through its gate",
    )  # fmt: skip


def _until_parked(task: object, count: int, timeout: float) -> None:
    end = time.monotonic() + timeout
    while (depth := task.throttle.depth()) < count:  # type: ignore[attr-defined]
        if time.monotonic() > end:
            raise RuntimeError(f"{depth} of {count} tasks parked within {timeout} s")
        time.sleep(0.1)


def redis_memory(rig: Rig) -> Row:
    """used_memory per parked task over the length of the message on the broker."""
    from benchmarks import app

    total = 20_000 if rig.options.quick else 100_000
    rig.clear()
    _, bare = message_of(rig, "shut", "tenant-5000", "")
    text = "x" * max(0, (1000 - bare) * 3 // 4)  # the body travels in base64
    envelope, length = message_of(rig, "shut", "tenant-5000", text)
    client = rig.limiter.client()
    park(app.shut, envelope, 1, 1)
    app.shut.throttle.purge()
    before = client.info("memory")["used_memory"]
    progress(f"parking {total} tasks in 10,000 lanes")
    park(app.shut, envelope, total, 10_000)
    time.sleep(1)
    assert app.shut.throttle.depth() == total
    each = (client.info("memory")["used_memory"] - before) / total
    return Row(
        f"Redis memory per parked task / its message, {total} tasks in 10,000 lanes", f"{each / length:.2f}", "≤ 1.4",
        at_most(each / length, 1.4), f"{each:.0f} bytes for a message of {length} bytes on the broker",
    )  # fmt: skip


def measure(rig: Rig) -> list[Row]:
    return [worker_memory(rig), redis_memory(rig)]
