"""`make bench-peers`: the same loads through peers. See `python -m benchmarks.peers --help`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.peers.contenders import CONTENDERS, Contender, python_of
from benchmarks.peers.loads import Bench, Load, decisions
from benchmarks.report import setting
from benchmarks.rig import ROOT, Rig, progress

RESULTS = Path(__file__).parent / "RESULTS.md"
COLUMNS = (
    "contender", "makespan / ideal", "most starts in 1 s (allowed 21)", "p50 / p99 of abs(gap − 1/rate), ms",
    "deliveries a task", "inversions", "most held un-acked", "second tenant, s (ideal 0.95)",
    "one decision / GET",
)  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.peers", description="The same loads through peers, each from PyPI in its own environment."
    )
    names = [contender.module for contender in CONTENDERS]
    parser.add_argument("--only", action="append", choices=names, help="only this contender (may be repeated)")
    parser.add_argument("--cap", type=float, default=60.0, help="seconds a load may take (default 60)")
    parser.add_argument("--quick", action="store_true", help="small loads, to see that all works; writes nothing")
    return parser.parse_args()


def row(bench: Bench | None, contender: Contender) -> list[str]:
    """One contender's line but for the decision; what could not be measured says why."""
    if bench is None:
        return [contender.name, f"needs Python {'.'.join(map(str, contender.python))}", *["–"] * (len(COLUMNS) - 3)]
    progress(f"{contender.name}: burst of {bench.load.tasks}")
    cells = bench.burst()
    progress(f"{contender.name}: two tenants")
    return [contender.name, *cells, bench.tenants()]


def main() -> int:
    said = arguments()
    os.environ["PYTHONPATH"] = str(ROOT)
    load = Load(60, 60, 20, 20, said.cap) if said.quick else Load(cap=said.cap)
    rig, rows, benches = Rig(), [], []
    chosen = [one for one in CONTENDERS if not said.only or one.module in said.only]
    try:
        for contender in chosen:
            python = python_of(contender)
            bench = Bench(rig, contender, python, load) if python else None
            benches += [bench] if bench else []
            rows.append(row(bench, contender))
            progress("  " + " | ".join(rows[-1]))
        progress("one decision, in turn")
        decided = decisions(benches, 1 if said.quick else 5)
    finally:
        rig.end()
    rows = [[*cells, decided.get(cells[0], "–")] for cells in rows]
    table = Table(*COLUMNS)
    for cells in rows:
        table.add_row(*cells)
    Console(width=190).print(table)
    if not said.quick and not said.only:
        write(rows, load)
    return 0


def write(rows: list[list[str]], load: Load) -> None:
    """RESULTS.md beside this file, from scratch."""
    lines = [
        "# Peers, measured", "",
        f"Written by `make bench-peers`, one run each: {load.tasks} tasks at once, 20/s, burst 1, two prefork workers",
        f"of two; {load.first} tasks of one tenant, then {load.second} of another, 20/s each; one decision, p50 over a",
        f"bare `GET` on the same connection. A load may take {load.cap:.0f} s. Celery, kombu and redis-py are the same",
        "for all.",
        "", setting(), "",
        f"| {' | '.join(COLUMNS)} |", "|" + " --- |" * len(COLUMNS),
        *(f"| {' | '.join(cells)} |" for cells in rows), "",
    ]  # fmt: skip
    RESULTS.write_text("\n".join(lines))


if __name__ == "__main__":
    raise SystemExit(main())
