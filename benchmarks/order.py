"""Row 5: order with a pool of four, and how many tasks one worker holds un-acknowledged."""

from __future__ import annotations

import time

from benchmarks.figures import Row, at_most, inversions, spread
from benchmarks.rig import Rig, repeat
from throttle import TokenBucket


def ordered(rig: Rig, count: int) -> tuple[float, int]:
    """Share of inverted pairs, and the most un-acked beyond what ran."""
    from benchmarks import app

    broker, most = rig.broker.client(), 0

    def look() -> None:
        nonlocal most
        held = int(broker.hlen("unacked"))  # type: ignore[arg-type]
        running = rig.recorder.count("start") - rig.recorder.count("end")
        most = max(most, held - max(0, running))

    rig.recorder.clear()
    for n in range(count):
        app.busy.delay(n)
    rig.await_calls(count, 2 * count / 20 + 30, kind="end", meanwhile=look)
    time.sleep(0.2)
    starts = rig.recorder.calls()
    rig.ledger.check("busy", [call.at for call in starts], TokenBucket("20/s"))
    return inversions([int(call.what) for call in starts]), most


def measure(rig: Rig) -> list[Row]:
    count = 60 if rig.options.quick else 300
    with rig.fleet(workers=1, concurrency=4, metronome=True, BENCH_LATE="1"):
        runs = repeat(rig, f"order, {count} tasks, a pool of 4", lambda: ordered(rig, count))
    wrong, held = [run[0] for run in runs], [run[1] for run in runs]
    return [
        Row(
            "inversions, burst 1, pool of 4, share of pairs", spread(wrong, "{:.4f}".format), "≤ 0.001",
            at_most(max(wrong), 0.001), "the worst run counts",
        ),
        Row(
            "un-acked in one worker beyond what runs, most", spread(held, "{:.0f}".format), "≤ 2",
            at_most(max(held), 2), "late acknowledgement; sampled every 20 ms; the worst run counts",
        ),
    ]  # fmt: skip
