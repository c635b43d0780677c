"""The loads: a burst of 300 at 20/s; two tenants; one decision."""

from __future__ import annotations

import json
import subprocess
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.figures import gap_errors, inversions, median, percentile
from benchmarks.peers.contenders import Contender
from benchmarks.rig import ROOT, Rig, deliveries

RATE = 20


@dataclass
class Load:
    """How much of each."""

    tasks: int = 300
    first: int = 200
    second: int = 20
    rounds: int = 200
    cap: float = 60.0


@dataclass
class Bench:
    """One contender on the rig."""

    rig: Rig
    contender: Contender
    python: str
    load: Load

    def _produce(self, *what: object) -> list[str]:
        return [self.python, "-m", "benchmarks.peers.produce", self.contender.module, *map(str, what)]

    @contextmanager
    def fleet(self) -> Iterator[None]:
        """Two workers of two, and the dispatcher if there is one."""
        self.rig.clear()
        app = f"benchmarks.peers.apps.{self.contender.module}"
        dispatcher = None
        try:
            subprocess.run(self._produce("prepare"), cwd=ROOT, check=True, capture_output=True)
            if self.contender.dispatches:
                dispatcher = subprocess.Popen(
                    self._produce("dispatch"), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
            for _ in range(2):
                self.rig.start_worker([self.python, "-m", "celery", "-A", app, "worker", "-c", "2"])
            self.rig.ready()
            yield
        finally:
            self.rig.stop_workers()
            if dispatcher:
                dispatcher.kill()
                dispatcher.wait()

    @contextmanager
    def producer(self, *what: object) -> Iterator[subprocess.Popen[str]]:
        """A producer that is connected and told to go."""
        process = subprocess.Popen(
            self._produce(*what), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdin
        assert process.stdout
        try:
            if process.stdout.readline().strip() != "ready":
                raise RuntimeError(f"{self.contender.name}: its producer did not start")
            process.stdin.write("go\n")
            process.stdin.flush()
            yield process
        finally:
            process.kill()
            process.wait()

    def burst(self) -> list[str]:
        """Makespan / ideal, most in 1 s, gap errors, deliveries, inversions, most held un-acked."""
        count, broker, held = self.load.tasks, self.rig.broker.client(), 0

        def look() -> None:
            nonlocal held
            held = max(held, int(broker.hlen("unacked")))  # type: ignore[arg-type]

        with self.fleet():
            before = deliveries(self.rig.broker)
            with self.producer("burst", count) as process:
                came = self.rig.recorder.wait(count, self.load.cap, meanwhile=look)
                assert process.stdout
                begin = float(json.loads(process.stdout.readline()))
            delivered = (deliveries(self.rig.broker) - before) / count
        starts = self.rig.recorder.calls()
        at = [call.at for call in starts]
        ideal = (count - 1) / RATE
        made = (
            f"{(at[-1] - begin) / ideal:.3f}" if came >= count else f"unfinished ({came} after {self.load.cap:.0f} s)"
        )
        errors = [error * 1000 for error in gap_errors(at, RATE)]
        return [
            made, str(most_within(at, 1.0)), f"{percentile(errors, 0.5):.2f} / {percentile(errors, 0.99):.1f}",
            f"{delivered:.2f}", f"{inversions([int(call.what) for call in starts]):.4f}", str(held),
        ]  # fmt: skip

    def tenants(self) -> str:
        """Tenant b's seconds from its first submit to its last start."""
        if not self.contender.tenants:
            return "–"
        first, second = self.load.first, self.load.second
        with self.fleet(), self.producer("tenants", first, second) as process:
            came = self.rig.recorder.wait(first + second, self.load.cap)
            assert process.stdout
            begin = float(json.loads(process.stdout.readline()))
        starts = [call.at for call in self.rig.recorder.calls() if call.what.startswith("b:")]
        if len(starts) < second:
            return f"unfinished ({came} of {first + second} after {self.load.cap:.0f} s)"
        return f"{starts[-1] - begin:.2f}"

    def decision(self) -> tuple[float, float]:
        """One decision over a bare GET, and that GET in µs."""
        done = subprocess.run(
            self._produce("decision", self.load.rounds), cwd=ROOT, check=True, capture_output=True, text=True
        )
        over, get = json.loads(done.stdout)
        return float(over), float(get)


def decisions(benches: list[Bench], repeats: int) -> dict[str, str]:
    """Of all that decide, in turn, so that a slow moment of the machine meets all of them; median of the repeats."""
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(repeats):
        for bench in benches:
            if bench.contender.decides:
                found.setdefault(bench.contender.name, []).append(bench.decision())
    return {
        name: f"{median(over for over, _ in pairs):.2f} (GET {median(get for _, get in pairs):.0f} µs)"
        for name, pairs in found.items()
    }


def most_within(starts: list[float], seconds: float) -> int:
    """The most starts in any window of that length."""
    window: deque[float] = deque()
    most = 0
    for start in starts:
        window.append(start)
        while window[0] <= start - seconds:
            window.popleft()
        most = max(most, len(window))
    return most
