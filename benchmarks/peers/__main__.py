"""`make bench-peers`: the same loads through peers. See `python -m benchmarks.peers --help`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.peers import USERS
from benchmarks.peers.answers import COLUMNS as ANSWERS
from benchmarks.peers.answers import PASS, REFUSE, answers
from benchmarks.peers.contenders import CONTENDERS, Contender, python_of
from benchmarks.peers.loads import Bench, Load, decisions
from benchmarks.report import setting
from benchmarks.rig import ROOT, Rig, progress

RESULTS = Path(__file__).parent / "RESULTS.md"
DECISIONS = "decisions"
COLUMNS = (
    "contender", "makespan / ideal", "most starts in 1 s (allowed 21)", "p50 / p99 of abs(gap − 1/rate), ms",
    "deliveries a task", "inversions", "most held un-acked", "second tenant, s (ideal 0.95)",
    "one decision / GET",
)  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.peers", description="The same loads through peers, each from PyPI in its own environment."
    )
    names = [contender.module for contender in CONTENDERS] + [DECISIONS]
    said = f"only this contender, or only the table of `{DECISIONS}` (may be repeated)"
    parser.add_argument("--only", action="append", choices=names, help=said)
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
    chosen = [one for one in CONTENDERS if not said.only or one.module in said.only]
    rig, repeats = Rig(), 1 if said.quick else 5
    try:
        rows = loads(rig, chosen, load, repeats) if chosen else []
        asked = not said.only or DECISIONS in said.only
        answered = answers(rig, repeats, load.rounds).rows() if asked else []
    finally:
        rig.end()
    show(COLUMNS, rows)
    show(ANSWERS, answered)
    if not said.quick and not said.only:
        RESULTS.write_text("\n".join([*about_loads(rows, load), *about_answers(answered)]))
    return 0


def loads(rig: Rig, chosen: list[Contender], load: Load, repeats: int) -> list[list[str]]:
    """Every contender's line, one after another; the decisions in turn."""
    rows, benches = [], []
    for contender in chosen:
        python = python_of(contender)
        bench = Bench(rig, contender, python, load) if python else None
        benches += [bench] if bench else []
        rows.append(row(bench, contender))
        progress("  " + " | ".join(rows[-1]))
    progress("one decision, in turn")
    decided = decisions(benches, repeats)
    return [[*cells, decided.get(cells[0], "–")] for cells in rows]


def show(columns: Sequence[str], rows: list[list[str]]) -> None:
    """As a table in the terminal, if there is anything."""
    table = Table(*columns)
    for cells in rows:
        table.add_row(*cells)
    if rows:
        Console(width=190).print(table)


def about_loads(rows: list[list[str]], load: Load) -> list[str]:
    """What RESULTS.md beside this file begins with."""
    return [
        "# Peers, measured", "",
        f"Written by `make bench-peers`, one run each: {load.tasks} tasks at once, 20/s, burst 1, two prefork workers",
        f"of two; {load.first} tasks of one tenant, then {load.second} of another, 20/s each; one decision, p50 over a",
        f"bare `GET` on the same connection. A load may take {load.cap:.0f} s. Celery, kombu and redis-py are the same",
        "for all.",
        "", setting(), "",
        *markdown(COLUMNS, rows),
    ]  # fmt: skip


def about_answers(rows: list[list[str]]) -> list[str]:
    """And what it ends with."""
    return [
        "## One decision, with all that Retry-After needs", "",
        "p50 over a bare `GET` in the same process, of the repeat whose `GET` was the fastest: the machine had time",
        f"then (lowest … highest of all). {USERS} users in turn,",
        f"each with {PASS} an hour (all pass) or {REFUSE} (nearly all are refused). `Retry-After` needs what a refusal",
        "tells; a header with what remains, also what a pass tells. `get_window_stats` is one more round trip, two for",
        "a fixed window. Ours answers a refusal that it remembers without Redis; against the others' it counts",
        "with `denials=0`, where it asks every time. **Bold**: ours is not the faster.", "",
        *markdown(ANSWERS, rows),
    ]  # fmt: skip


def markdown(columns: Sequence[str], rows: list[list[str]]) -> list[str]:
    """A table's lines."""
    lines = [f"| {' | '.join(cells)} |" for cells in [columns, *rows]]
    return [lines[0], "|" + " --- |" * len(columns), *lines[1:], ""]


if __name__ == "__main__":
    raise SystemExit(main())
