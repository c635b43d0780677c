"""The app that the tests' workers run; configured by environment, see `tests.fleet.Fleet`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from hashlib import sha256

import redis
from celery import Celery, Task
from kombu.serialization import register

from throttle import Quota, SlidingLog, TokenBucket, backlog, bootstep, throttled

if "PROJECT_LEASE" in os.environ:  # a test cannot wait 30 s for the lease of a killed worker's tasks
    backlog.LEASE = int(float(os.environ["PROJECT_LEASE"]) * 1e6)
    backlog.CLAIM = min(backlog.CLAIM, backlog.LEASE)
    bootstep.RENEW = backlog.LEASE / 3e6


def dying(call, when):
    """`call`, in which the first process to come here is killed: 'before' it does anything, or 'after' all."""

    def mortal(*args, **kwargs):
        answer = call(*args, **kwargs) if when == "after" else None
        with contextlib.suppress(FileExistsError):
            os.close(os.open(os.environ["PROJECT_DEAD"], os.O_CREAT | os.O_EXCL))
            os.kill(os.getpid(), signal.SIGKILL)
        return answer if when == "after" else call(*args, **kwargs)

    return mortal


if "PROJECT_DIE" in os.environ:
    name, point = os.environ["PROJECT_DIE"].split(" ")
    setattr(backlog.Backlog, name, dying(getattr(backlog.Backlog, name), point))


def seal(data: object) -> str:
    """As the `auth` serializer: written twice, the same data gives other bytes, and other bytes are refused."""
    text, salt = json.dumps(data), os.urandom(8).hex()
    return f"{salt}{sha256((salt + text).encode()).hexdigest()}{text}"


def unseal(sealed: str | bytes) -> object:
    sealed = sealed.decode() if isinstance(sealed, bytes) else sealed
    salt, digest, text = sealed[:16], sealed[16:80], sealed[80:]
    if sha256((salt + text).encode()).hexdigest() != digest:
        raise ValueError("broken seal")
    return json.loads(text)


register("sealed", seal, unseal, content_type="application/x-sealed", content_encoding="utf-8")

visibility = float(os.environ.get("PROJECT_VISIBILITY", "3600"))
# Redis looks for messages beyond their visibility each 100 s by default, which a test would not live to see
restore = {"unacked_restore_interval": 1, "unacked_restore_throttle": 1} if visibility < 3600 else {}
amqp = os.environ["PROJECT_BROKER"].startswith("amqp")

app = Celery("project", broker=os.environ["PROJECT_BROKER"], backend=os.environ["PROJECT_RESULTS"])
app.conf.update(
    throttle_redis_url=os.environ["PROJECT_REDIS"],
    throttle_timeout=float(os.environ.get("PROJECT_TIMEOUT", "5")),
    throttle_on_store_error=os.environ.get("PROJECT_ON_STORE_ERROR", "park"),
    throttle_scheduler=os.environ.get("PROJECT_SCHEDULER") != "0",
    broker_connection_retry_on_startup=True,
    accept_content=["json", "pickle", "yaml", "msgpack", "sealed"],
    broker_transport_options={} if amqp else {"visibility_timeout": visibility, **restore},
    task_acks_late=os.environ.get("PROJECT_LATE") == "1",
    task_reject_on_worker_lost=os.environ.get("PROJECT_REJECT") == "1",
    worker_prefetch_multiplier=int(os.environ.get("PROJECT_PREFETCH", "4")),
    task_default_queue=os.environ.get("PROJECT_QUEUE", "celery"),
    throttle_enabled=os.environ.get("PROJECT_ENABLED") != "0",
)
app.conf.update(json.loads(os.environ.get("PROJECT_CONF", "{}")))
RATE = os.environ.get("PROJECT_RATE", "20/s")
BURST = int(os.environ.get("PROJECT_BURST", "1"))
record = redis.Redis.from_url(os.environ["PROJECT_RECORD"])


def note(task: object, what: object) -> None:
    """Tell the downstream's record that this body starts now."""
    at, request = time.time(), task.request  # type: ignore[attr-defined]
    record.rpush("starts", f"{at:.6f} {task.name} {what} {request.id} {os.getpid()} {request.retries}")  # type: ignore[attr-defined]


def event(name: str, id: object) -> None:
    """Tell the record that a hook or signal was called."""
    record.rpush("events", f"{name} {id}")


@throttled(RATE, burst=BURST)
@app.task(shared=False, bind=True, name="send")
def send(self, n, *args, **kwargs):
    note(self, n)
    return n


@throttled(TokenBucket(RATE, key="{tenant}"))
@app.task(shared=False, bind=True, name="export")
def export(self, tenant, n=0):
    note(self, f"{tenant}:{n}")
    return n


@app.task(shared=False, bind=True, name="plain")
def plain(self, n):
    note(self, n)
    return n


@throttled(RATE)
@app.task(shared=False, bind=True, name="slow")
def slow(self, n, seconds=1.0):
    note(self, n)
    time.sleep(seconds)
    return n


@throttled(0)
@app.task(shared=False, bind=True, name="closed")
def closed(self, n=0):
    note(self, n)
    return n


@throttled(RATE)
@app.task(shared=False, bind=True, name="flaky", max_retries=5)
def flaky(self, n):
    note(self, n)
    raise self.retry(countdown=0)


@throttled(RATE, scope="together")
@app.task(shared=False, bind=True, name="first_of_two")
def first_of_two(self, n):
    note(self, n)


@throttled(RATE, scope="together")
@app.task(shared=False, bind=True, name="second_of_two")
def second_of_two(self, n):
    note(self, n)


@throttled(RATE)
@app.task(shared=False, bind=True, name="limited", soft_time_limit=2, max_retries=0)
def limited(self, n):
    note(self, n)
    return self.request.retries


@throttled(RATE)
@app.task(shared=False, bind=True, name="greedy", autoretry_for=(Exception,), retry_backoff=False, max_retries=3)
def greedy(self, n):
    try:
        note(self, n)
    except Exception:
        event("swallowed", self.request.id)
    return n


@throttled(SlidingLog("10/2s"), Quota(25, "day"))
@app.task(shared=False, bind=True, name="counted")
def counted(self, n):
    note(self, n)


@throttled("4/s", max_wait=1)
@app.task(shared=False, bind=True, name="impatient")
def impatient(self, n):
    note(self, n)
    return n


@throttled(RATE)
@app.task(shared=False, bind=True, name="part")
def part(self, n, fail=False):
    note(self, n)
    if fail:
        raise ValueError(f"part {n} fails")
    return n


@app.task(shared=False, bind=True, name="total")
def total(self, numbers):
    note(self, ",".join(map(str, numbers)))
    return numbers


@app.task(shared=False, bind=True, name="on_error")
def on_error(self, *args, **kwargs):
    note(self, "error")


class Hooked(Task):
    """Records each hook that Celery calls."""

    def before_start(self, task_id, args, kwargs):
        event("before_start", task_id)

    def on_success(self, retval, task_id, args, kwargs):
        event("on_success", task_id)

    def on_failure(self, exc, task_id, args, kwargs, einfo):
        event("on_failure", task_id)

    def on_retry(self, exc, task_id, args, kwargs, einfo):
        event("on_retry", task_id)

    def after_return(self, status, retval, task_id, args, kwargs, einfo):
        event("after_return", task_id)


@throttled(RATE)
@app.task(shared=False, bind=True, name="hooked", base=Hooked)
def hooked(self, n, fail=False):
    note(self, n)
    if fail:
        raise ValueError(n)
    return n


@throttled(RATE)
@app.task(shared=False, bind=True, name="unstored", ignore_result=True)
def unstored(self, n):
    note(self, n)
    return n


if os.environ.get("PROJECT_SIGNALS") == "1":
    from celery import signals

    def tell(name):
        def receive(sender=None, task_id=None, **kwargs):
            event(name, task_id or sender.request.id)

        getattr(signals, name).connect(receive, weak=False)

    for name in ("task_prerun", "task_postrun", "task_success", "task_failure", "task_retry"):
        tell(name)

    @signals.task_revoked.connect(weak=False)
    def _revoked(request=None, **kwargs):
        event("task_revoked", request.id)
