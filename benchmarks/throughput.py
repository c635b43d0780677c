"""Row 8: what a limit costs that never bites: throughput against plain Celery, same workers, interleaved."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from benchmarks.figures import Row, median, spread
from benchmarks.rig import Rig, progress


@dataclass
class Flow:
    """Tasks per second: submit to last start, and the producer alone; and what they cost."""

    through: float
    produced: float
    cpu: float  #: s of processor time per task, of the producer, the workers and both Redis together


def flow(rig: Rig, task: str, count: int) -> Flow:
    """Submit with the workers running."""
    from benchmarks import app

    send = app.app.tasks[task].delay
    rig.recorder.clear()
    worked, begin = processor(rig), time.time()
    for n in range(count):
        send(n)
    produced = time.time() - begin
    rig.await_calls(count, 120)
    cpu = (processor(rig) - worked) / count
    return Flow(count / (rig.recorder.calls()[-1].at - begin), count / produced, cpu)


def processor(rig: Rig) -> float:
    """Seconds of processor time so far, of all that takes part."""
    own = [psutil.Process()]
    servers = [psutil.Process(server.process.pid) for server in (rig.broker, rig.limiter) if server.process]
    parents = [psutil.Process(worker.pid) for worker in rig.workers]
    children = [child for parent in parents for child in parent.children()]
    return sum(sum(process.cpu_times()[:2]) for process in own + servers + parents + children)


def drain(rig: Rig, task: str, count: int) -> float:
    """Tasks per second of workers that find all of them in the queue."""
    from benchmarks import app

    nodes = [f"w{n}@bench" for n in range(len(rig.workers))]
    rig.recorder.clear()
    app.app.control.cancel_consumer("celery", destination=nodes, reply=True)
    time.sleep(1.2)  # the poll under way ends
    for n in range(count):
        app.app.tasks[task].delay(n)
    begin = time.time()
    app.app.control.add_consumer("celery", destination=nodes, reply=True)
    rig.await_calls(count, 120)
    return count / (rig.recorder.calls()[-1].at - begin)


@contextmanager
def one_redis(rig: Rig) -> Iterator[None]:
    """Limits in the broker's Redis, as a deployment has them that sets nothing."""
    from benchmarks.app import app
    from throttle import deployment

    apart, app.conf.throttle_redis_url = app.conf.throttle_redis_url, rig.broker.url()
    deployment._deployments.pop(app, None)
    try:
        yield
    finally:
        app.conf.throttle_redis_url = apart
        deployment._deployments.pop(app, None)


def measure(rig: Rig) -> list[Row]:
    count = 500 if rig.options.quick else 3000
    rounds = rig.options.runs + 2
    found: dict[str, list[Flow]] = {"plain": [], "free": []}
    drained: dict[str, list[float]] = {"plain": [], "free": []}
    with one_redis(rig), rig.fleet(BENCH_LIMITER=rig.broker.url()):
        for task in found:
            flow(rig, task, 200)  # warm
        for n in range(rounds):
            progress(f"throughput, round {n + 1} of {rounds}")
            for task in sorted(found, reverse=n % 2 == 0):
                found[task].append(flow(rig, task, count))
                drained[task].append(drain(rig, task, count))
    ratios = [ours.through / plain.through for ours, plain in zip(found["free"], found["plain"], strict=True)]
    made = [ours.produced / plain.produced for ours, plain in zip(found["free"], found["plain"], strict=True)]
    drains = [ours / plain for ours, plain in zip(drained["free"], drained["plain"], strict=True)]
    cost = {task: median(one.cpu for one in flows) * 1000 for task, flows in found.items()}
    through = {task: median(one.through for one in flows) for task, flows in found.items()}
    return [
        Row(
            f"throughput, a limit that never bites / plain Celery, {count} tasks, producer running alongside",
            spread(ratios, "{:.2f}".format), "≥ 0.90", median(ratios) >= 0.90,
            f"{through['free']:.0f}/s against {through['plain']:.0f}/s",
        ),
        Row("the producer alone of that (submit / plain publish)", spread(made, "{:.2f}".format)),
        Row(
            "processor time per task of that", f"{cost['free'] / cost['plain']:.2f}",
            note=f"{cost['free']:.2f} ms against {cost['plain']:.2f} ms: producer, workers and both Redis together",
        ),
        Row(
            "the workers alone (all tasks are in the queue before)", spread(drains, "{:.2f}".format),
            note=f"{median(drained['free']):.0f}/s against {median(drained['plain']):.0f}/s",
        ),
    ]  # fmt: skip
