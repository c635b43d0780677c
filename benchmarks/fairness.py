"""Row 6: a second tenant behind a first one's backlog."""

from __future__ import annotations

import time

from benchmarks.figures import Row, at_most, median, spread
from benchmarks.rig import Rig, repeat
from throttle import TokenBucket

SECOND, IDEAL = 20, 19 / 20


def second_tenant(rig: Rig, first: int) -> float:
    """Tenant b's makespan (first submit to last start) over its ideal."""
    from benchmarks import app

    rig.recorder.clear()
    for n in range(first):
        app.export.delay("a", n)
    begin = time.time()
    for n in range(SECOND):
        app.export.delay("b", n)
    rig.await_calls(first + SECOND, 2 * first / 20 + 30)
    calls = rig.recorder.calls()
    starts = {who: [call.at for call in calls if call.what.startswith(who)] for who in "ab"}
    for who in starts:
        rig.ledger.check(f"export {who}", starts[who], TokenBucket("20/s"))
    return (max(starts["b"]) - begin) / IDEAL


def measure(rig: Rig) -> list[Row]:
    first = 60 if rig.options.quick else 200
    with rig.fleet(metronome=True):
        values = repeat(rig, f"second tenant behind {first} tasks", lambda: second_tenant(rig, first))
    return [
        Row(
            f"second tenant: its 20 tasks behind {first} of another, makespan / ideal",
            spread(values, "{:.3f}".format), "≤ 1.05", at_most(median(values), 1.05),
            f"20/s each; first submit to last start; ideal {IDEAL:.2f} s",
        )
    ]  # fmt: skip
