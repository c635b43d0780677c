"""Prints the table, and writes RESULTS.md."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.figures import Row
from tests.services import redis_server

RESULTS = Path(__file__).parent / "RESULTS.md"


def show(rows: Sequence[Row]) -> None:
    """The table, and misses said loudly."""
    table = Table("measure", "result", "target", "", show_lines=False)
    colour = {True: "green", False: "bold white on red", None: "dim"}
    for row in rows:
        measure = row.measure + (f"\n[dim]{row.note}[/dim]" if row.note else "")
        table.add_row(measure, row.result, row.target, f"[{colour[row.ok]}]{row.verdict.strip('*')}[/]")
    # without a terminal (CI, a file), lines are as wide as they need to be read, not 80 columns
    Console(width=None if sys.stdout.isatty() else 150).print(table)
    missed = [row for row in rows if row.ok is False]
    for row in missed:
        print(f"MISS  {row.measure}: {row.result}, target {row.target}")
    print(
        f"{len(missed)} of {sum(row.ok is not None for row in rows)} targets missed" if missed else "every target met"
    )


def setting() -> str:
    """When and on what, without saying where."""
    server = redis_server()
    try:
        redis_version = server.client().info("server")["redis_version"]
    finally:
        server.remove()
    packages = ", ".join(f"{name} {version(name)}" for name in ("celery-throttled", "celery", "kombu", "redis"))
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return f"{now} · {packages} · Redis {redis_version} · Python {platform.python_version()} · {os.cpu_count()} cores"


def write(rows: Sequence[Row], runs: int, seconds: float) -> None:
    """RESULTS.md, from scratch."""
    lines = [
        "# Results", "",
        f"Written by `make bench` in {seconds / 60:.0f} minutes; {runs} runs of each load: median (lowest … highest).",
        "", setting(), "",
        "| measure | result | target | | how |",
        "| --- | --- | --- | --- | --- |",
        *(f"| {row.measure} | {row.result} | {row.target} | {row.verdict} | {row.note} |" for row in rows), "",
    ]  # fmt: skip
    RESULTS.write_text("\n".join(lines))
