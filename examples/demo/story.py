"""The demo from beginning to end: Redis, the two runs, the picture, the last lines."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from examples.demo import picture, provider, redis_server
from examples.demo.interrupt import Interrupted
from examples.demo.processes import Failure, Processes
from examples.demo.record import Record
from examples.demo.run import WORKERS, Run

LONGEST = 20.0  # s for the run with rate_limit: Celery needs 5 to 18


def tell(count: int, keep_logs: bool) -> int:
    """Run the demo; returns the exit code."""
    logs = Path(tempfile.mkdtemp(prefix="throttle-demo-"))
    console, code = _console(), 1
    try:
        records = _play(count, logs, console)
        if keep_logs:
            print(f"logs: {logs}", file=sys.stderr)
        code = 0 if held(records[0]) else 1
        if code:
            print(f"the limit did not hold, or an SMS was lost or sent twice; logs: {logs}", file=sys.stderr)
        last_lines(*records)
    except Failure as failure:
        print(f"\n{failure}\nlogs: {logs}", file=sys.stderr)
    except Interrupted as interrupted:
        print(f"\n{interrupted}: all that was started has been ended", file=sys.stderr)
        code = interrupted.exit_code
    finally:
        if code != 1 and not keep_logs:
            shutil.rmtree(logs, ignore_errors=True)
    return code


def _console() -> Console:
    terminal = sys.stdout.isatty()  # rich would take FORCE_COLOR for one, and its codes are no use in a file
    return Console(highlight=False, force_terminal=terminal, width=None if terminal else 80)


def _play(count: int, logs: Path, console: Console) -> list[Record]:
    """Both runs and the picture of them."""
    limit = f"{provider.RATE}/s"
    console.print(f"{count} SMS at once, to a provider that takes {limit} (burst {provider.BURST}) and refuses more.")
    with Processes(logs) as processes:
        url, what = redis_server.start(processes)
        console.print(f"{what}; {WORKERS} Celery workers of 2 processes each.")
        runs = [
            Run(f'@throttled("{limit}", burst={provider.BURST})', "examples.demo.app", f"{url}/0", count,
                provider.RATE, count / provider.RATE + 20),
            Run(f'plain Celery, rate_limit="{limit}"', "examples.demo.plain", f"{url}/1", count, None, LONGEST),
        ]  # fmt: skip
        records = [run.play(processes, console) for run in runs]
    panels = [(run.title, record) for run, record in zip(runs, records, strict=True)]
    picture.draw(console, panels, provider.RATE, provider.BURST)
    early, forgiven = records[0].early * 1000, provider.JITTER * 1000
    together = f"{WORKERS} of them send {WORKERS * provider.RATE}/s"
    console.print(f"rate_limit counts per worker: {together}, and what is refused is lost.")
    console.print(f"Throttled SMS used {early:.1f} ms of the {forgiven:.0f} ms that the provider forgives for jitter.")
    console.print("The code: examples/demo/app.py, and plain.py (why rate_limit ends so slowly).\n")
    return records


def held(record: Record) -> bool:
    """Whether each SMS was sent once and none refused."""
    return record.accepted == len(record.expected) and not (record.refused or record.waiting or record.duplicated)


def last_lines(throttled: Record, plain: Record) -> None:
    """The result, for people and for scripts."""
    counts = f"sent={throttled.accepted} refused={throttled.refused}"
    faults = f"lost={throttled.waiting} duplicated={throttled.duplicated}"
    print(f"throttled: {counts} {faults} rate={throttled.steady_rate(provider.BURST):.1f}/s")
    print(f"rate_limit: sent={plain.accepted} refused={plain.refused}", flush=True)
