"""Rows 1–4: the bound on starts over many of them, makespan, gaps, and deliveries per task, of a burst that waits."""

from __future__ import annotations

import time
from dataclasses import dataclass

from celery import Celery

from benchmarks.figures import Row, at_most, gap_errors, median, percentile, spread
from benchmarks.rig import Rig, deliveries, repeat
from throttle import TokenBucket


@dataclass
class Paced:
    """One run: starts as the provider saw them, seconds from the first submit, deliveries per task."""

    starts: list[float]
    makespan: float
    deliveries: float


def paced(rig: Rig, task: str, rate: int, count: int, *, by_name: bool = False) -> Paced:
    """Submit `count` tasks at once to waiting workers, and watch them start."""
    from benchmarks import app

    send = app.app.tasks[task].delay
    if by_name:  # a process that does not know the task: nothing of ours runs at publish
        stranger = Celery("stranger", broker=rig.broker.url(), set_as_current=False)
        stranger.conf.task_ignore_result = True

        def send(n: int) -> object:
            return stranger.send_task(task, (n,))

    rig.recorder.clear()
    app.plain.delay(-1)  # producers are connected when the burst comes
    rig.await_calls(1, 30)
    rig.recorder.clear()
    before = deliveries(rig.broker)
    begin = time.time()
    for n in range(count):
        send(n)
    rig.await_calls(count, 2 * count / rate + 30)
    time.sleep(0.3)
    starts = [call.at for call in rig.recorder.calls()]
    rig.ledger.check(f"{task}{' by name' if by_name else ''}", starts, TokenBucket((rate, 1)))
    return Paced(starts, max(starts) - begin, (deliveries(rig.broker) - before) / count)


def measure(rig: Rig) -> list[Row]:
    quick = rig.options.quick
    slow, fast, named = (60, 200, 40) if quick else (300, 1000, 100)
    with rig.fleet(metronome=True):
        at20 = repeat(rig, f"{slow} tasks at 20/s", lambda: paced(rig, "send20", 20, slow))
        at200 = repeat(rig, f"{fast} tasks at 200/s", lambda: paced(rig, "send200", 200, fast))
        name = repeat(rig, f"{named} tasks by name", lambda: paced(rig, "send20", 20, named, by_name=True))
    return [
        _makespan(at20, (slow - 1) / 20, f"{slow} tasks at 20/s, burst 1, 2 workers × 2"),
        *_gaps(at20, 20, 0.001),
        *_gaps(at200, 200, None),
        _deliveries(at20, "through apply_async", 1.0),
        _deliveries(name, "through send_task, by name", 2.0),
    ]


def measure_long(rig: Rig) -> list[Row]:
    """Row 1's many starts (the ledger counts them), and whether the rate is reached meanwhile."""
    count, first = (2_000, 500) if rig.options.quick else (32_000, 8_000)
    with rig.fleet(metronome=True):
        runs = repeat(rig, f"{count} tasks at 200/s", lambda: paced(rig, "send200", 200, count))
    whole = [_reached(run.starts, 200) for run in runs]
    alone = [_reached(sorted(run.starts)[first:], 200) for run in runs]
    return [
        Row(
            f"rate reached with a backlog, {count - first} tasks at 200/s, burst 1", spread(alone, "{:.4f}".format),
            "≥ 0.99", median(alone) >= 0.99, "of 200/s, from a start to the last",
        ),
        Row(
            f"the same with the {first} before, while the producer takes a whole core", spread(whole, "{:.4f}".format)
        ),
    ]  # fmt: skip


def _reached(starts: list[float], rate: int) -> float:
    return (len(starts) - 1) / rate / (max(starts) - min(starts))


def _makespan(runs: list[Paced], ideal: float, what: str) -> Row:
    values = [run.makespan / ideal for run in runs]
    return Row(
        f"makespan / ideal, {what}", spread(values, "{:.4f}".format), "≤ 1.005", at_most(median(values), 1.005),
        f"first submit to last start; ideal {ideal:.2f} s",
    )  # fmt: skip


def _gaps(runs: list[Paced], rate: int, target: float | None) -> list[Row]:
    errors = [gap_errors(run.starts, rate) for run in runs]
    half = [percentile(run, 0.5) * 1000 for run in errors]
    most = [percentile(run, 0.99) * 1000 for run in errors]
    return [
        Row(f"abs(gap − 1/rate) at {rate}/s, p50, ms", spread(half, "{:.3f}".format)),
        Row(
            f"abs(gap − 1/rate) at {rate}/s, p99, ms", spread(most, "{:.3f}".format),
            "–" if target is None else f"≤ {target * 1000:g}",
            None if target is None else at_most(median(most), target * 1000),
        ),
    ]  # fmt: skip


def _deliveries(runs: list[Paced], what: str, target: float) -> Row:
    values = [run.deliveries for run in runs]
    sign = "=" if target == 1.0 else "≤"
    return Row(
        f"deliveries per task {what}", spread(values, "{:.3f}".format), f"{sign} {target:.2f}",
        at_most(max(values), target), "messages handed to workers by the broker",
    )  # fmt: skip
