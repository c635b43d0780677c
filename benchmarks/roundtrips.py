"""Row 7: round trips to Redis per task beyond plain Celery's.

Counted as reads from sockets by both servers, so a pipeline is one. Plain Celery sends as many tasks at
the same pace, so that what costs by the second (polling, heartbeats) is in both. The scheduler's own
publishing and its lead are in ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.figures import Row, at_most, median, spread
from benchmarks.rig import Rig, calls, reads, repeat
from throttle import TokenBucket


@dataclass
class Trips:
    """Per task: reads by the broker, reads by the limiter's Redis, scripts called there."""

    broker: float
    limiter: float
    scripts: float


def counted(rig: Rig, count: int, rate: int, submit: Callable[[], None]) -> Trips:
    rig.recorder.clear()
    broker, limiter, scripts = reads(rig.broker), reads(rig.limiter), calls(rig.limiter.client(), "evalsha")
    submit()
    rig.await_calls(count, 2 * count / rate + 30)
    time.sleep(0.2)
    # each server was asked twice about itself, in connections of their own
    return Trips(
        (reads(rig.broker) - broker - 1) / count,
        (reads(rig.limiter) - limiter - 2) / count,
        (calls(rig.limiter.client(), "evalsha") - scripts) / count,
    )


def ours(rig: Rig, task: str, rate: int, count: int) -> Trips:
    from benchmarks import app

    def submit() -> None:
        for n in range(count):
            app.app.tasks[task].delay(n)

    found = counted(rig, count, rate, submit)
    starts = [call.at for call in rig.recorder.calls()]
    rig.ledger.check(f"{task}, counting", starts, TokenBucket((rate, 1)))
    return found


def plain(rig: Rig, rate: int, count: int) -> Trips:
    from benchmarks import app

    def submit() -> None:
        begin = time.monotonic()
        for n in range(count):
            time.sleep(max(0.0, begin + n / rate - time.monotonic()))
            app.plain.delay(n)

    return counted(rig, count, rate, submit)


def _row(rig: Rig, task: str, rate: int, count: int, target: float) -> Row:
    base = repeat(rig, f"round trips, plain Celery at {rate}/s", lambda: plain(rig, rate, count))
    mine = repeat(rig, f"round trips, ours at {rate}/s", lambda: ours(rig, task, rate, count))
    before = median(trips.broker for trips in base)
    values = [trips.broker - before + trips.limiter for trips in mine]
    note = (
        f"plain Celery {before:.2f}; ours {median(t.broker for t in mine):.2f} with the broker, "
        f"{median(t.limiter for t in mine):.2f} with the limiter ({median(t.scripts for t in mine):.2f} scripts)"
    )
    return Row(
        f"round trips to Redis per task beyond plain Celery's, backlog at {rate}/s",
        spread(values, "{:.2f}".format), f"≤ {target:g}", at_most(median(values), target), note,
    )  # fmt: skip


def measure(rig: Rig) -> list[Row]:
    slow, fast = (40, 200) if rig.options.quick else (200, 1000)
    with rig.fleet(metronome=True):
        ours(rig, "send20", 20, 2)  # connections are made, scripts are loaded
        ours(rig, "send200", 200, 2)
        return [_row(rig, "send20", 20, slow, 5), _row(rig, "send200", 200, fast, 4)]
