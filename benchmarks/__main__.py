"""`make bench`: ours against plain Celery. See `python -m benchmarks --help`."""

from __future__ import annotations

import argparse
import time

from benchmarks import decision, fairness, idle, memory, order, pace, roundtrips, throughput, web
from benchmarks.figures import TOLERANCE, Row, percentile
from benchmarks.report import show, write
from benchmarks.rig import Options, Rig, progress

GROUPS = {
    "pace": pace.measure,
    "bound": pace.measure_long,
    "order": order.measure,
    "fairness": fairness.measure,
    "roundtrips": roundtrips.measure,
    "throughput": throughput.measure,
    "decision": decision.measure,
    "web": web.measure,
    "memory": memory.measure,
    "idle": idle.measure,
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks", description="Measures ours against plain Celery.")
    parser.add_argument("--only", action="append", choices=GROUPS, help="measure only this group (may be repeated)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each load; medians are shown (default 3)")
    parser.add_argument("--quick", action="store_true", help="small loads, to see that all works; writes nothing")
    return parser.parse_args()


def main() -> int:
    said = arguments()
    rig, rows, begin = Rig(Options(max(1, said.runs), said.quick)), [], time.monotonic()
    try:
        for name in said.only or GROUPS:
            progress(f"{name}:")
            found = attempt(name, rig)
            for row in found:
                progress(f"  {row.measure}: {row.result}  (target {row.target})  {row.verdict}  {row.note}")
            rows += found
    finally:
        rig.end()
    rows = bound(rig) + rows
    show(rows)
    if not said.quick and not said.only:
        write(rows, said.runs, time.monotonic() - begin)
    return 0


def attempt(name: str, rig: Rig) -> list[Row]:
    """A group that cannot be measured is a miss, and the others are measured all the same."""
    try:
        return GROUPS[name](rig)
    except RuntimeError as exc:
        return [Row(f"{name}: could not be measured", str(exc).splitlines()[0], "measured", False)]


def bound(rig: Rig) -> list[Row]:
    """Row 1, over every paced run there was."""
    ledger = rig.ledger
    if not ledger.checked:
        return []
    late = [wake * 1000 for wake in ledger.woke]
    share = sum(wake > TOLERANCE * 1000 for wake in late) / max(1, len(late))
    return [
        Row(
            "starts beyond burst + rate·t, in any window of any run", str(ledger.beyond), "= 0", ledger.beyond == 0,
            f"{ledger.checked} starts as the provider saw them, {TOLERANCE * 1000:g} ms allowed for its jitter; "
            + "; ".join([f"the worst was {ledger.worst * 1000:.1f} ms early", *ledger.runs]),
        ),
        Row(
            "the machine meanwhile: how late a process that only sleeps woke, p99 / worst, ms",
            f"{percentile(late, 0.99):.1f} / {max(late):.1f}" if late else "–",
            note=f"{share:.2%} of its wake-ups over {TOLERANCE * 1000:g} ms late: what a body started then cannot help",
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
