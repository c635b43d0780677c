"""One run: two workers of an app, a producer that submits all SMS at once, and the provider's record of them."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from rich.console import Console

from examples.demo.interrupt import pause
from examples.demo.live import Line
from examples.demo.processes import Process, Processes
from examples.demo.producer import numbers
from examples.demo.record import Record, Recorder

WORKERS = 2
AFTERMATH = 1.0  # s that a duplicate has to show itself, once all have arrived


@dataclass(frozen=True)
class Run:
    """What to run.

    Attributes:
        title: what the user sees.
        app: module of the Celery app.
        broker: URL.
        count: SMS.
        pace: SMS per second to be expected; None: as seen in the last second.
        longest: seconds after which it is cut off.
    """

    title: str
    app: str
    broker: str
    count: int
    pace: float | None
    longest: float

    def play(self, processes: Processes, console: Console) -> Record:
        """Run it, with a provider of its own.

        Raises:
            Failure: a process did not start, or ended.
            Interrupted: Ctrl-C.
        """
        console.print(f"\n{self.title}", style="bold")
        name = self.app.rpartition(".")[2]
        provider = processes.python(f"provider of {name}", "examples.demo.provider")
        address = provider.wait_for(r"listening on (\S+)")[1]
        env = {"DEMO_BROKER": self.broker, "DEMO_PROVIDER": address}
        with console.status("starting the workers", spinner="line"):
            workers = [self._worker(processes, f"{name} worker {n}", env) for n in range(1, WORKERS + 1)]
            for worker in workers:
                worker.wait_for(r"\bready\.")
        producer = processes.python(f"{name} producer", "examples.demo.producer", self.app, str(self.count), **env)
        record = self._watch(processes, Recorder(address, numbers(self.count)), console)
        processes.stop(provider, producer, *workers)
        (processes.logs / f"{name}-arrivals.json").write_text(json.dumps(record.arrivals))
        return record

    def _worker(self, processes: Processes, name: str, env: dict[str, str]) -> Process:
        node = name.replace(" ", "-")
        options = ["-P", "prefork", "-c", "2", "-n", f"{node}@demo", "-l", "INFO", "--without-mingle"]
        return processes.python(name, "celery", "-A", self.app, "worker", *options, **env)

    def _watch(self, processes: Processes, recorder: Recorder, console: Console) -> Record:
        end, complete = time.monotonic() + self.longest, False
        with Line(console, self.count, self.pace) as line:
            while time.monotonic() < end:
                pause(0.1)
                processes.check()
                record = recorder.read()
                if not complete:
                    line.show(record)
                if record.waiting == 0 and not complete:
                    end, complete = time.monotonic() + AFTERMATH, True
        return recorder.read()
