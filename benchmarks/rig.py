"""The bench: one Redis for the broker, one for the limits, the recorder, and real workers."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from benchmarks.figures import Ledger
from benchmarks.metronome import Metronome
from benchmarks.recorder import Recorder
from tests.services import RedisServer, redis_server

ROOT = Path(__file__).parent.parent


@dataclass
class Options:
    """What was asked for on the command line."""

    runs: int = 3
    quick: bool = False


@dataclass
class Rig:
    """Broker and limits are on two servers, so that what limits cost can be counted apart."""

    options: Options = field(default_factory=Options)
    ledger: Ledger = field(default_factory=Ledger)

    def __post_init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="throttle-bench-"))
        self.broker, self.limiter = redis_server(), redis_server()
        self.recorder = Recorder()
        self.workers: list[subprocess.Popen[bytes]] = []
        self.env = {
            "C_FORCE_ROOT": "1",  # containers run as root
            "BENCH_BROKER": self.broker.url(),
            "BENCH_LIMITER": self.limiter.url(),
            "BENCH_RECORDER": self.recorder.address,
        }
        os.environ.update(self.env)

    def end(self) -> None:
        self.stop_workers()
        self.recorder.end()
        self.broker.remove()
        self.limiter.remove()
        for log in self.folder.iterdir():
            log.unlink()
        self.folder.rmdir()

    def clear(self) -> None:
        """Nothing in Redis, nothing recorded; for when no worker runs."""
        self.broker.client().flushall()
        self.limiter.client().flushall()
        self.recorder.clear()

    # -- workers -----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def fleet(self, workers: int = 2, concurrency: int = 2, *, metronome: bool = False, **env: str) -> Iterator[None]:
        """That many workers of `benchmarks.app`, on empty servers; a metronome beside them if asked."""
        self.clear()
        beat = None
        command = [sys.executable, "-m", "celery", "-A", "benchmarks.app", "worker", "-c", str(concurrency)]
        try:
            for _ in range(workers):
                self.start_worker(command, env)
            self.ready()
            beat = Metronome() if metronome else None
            yield
            if beat:
                self.ledger.woke += beat.end()
        finally:
            self.stop_workers()
            if beat:
                beat.kill()

    def start_worker(self, command: list[str], env: dict[str, str] | None = None, cwd: Path = ROOT) -> None:
        """Start one; `ready` waits for it."""
        name = f"w{len(self.workers)}"
        command = [*command, "-n", f"{name}@bench", "--loglevel", "INFO", "--without-mingle"]
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=cwd, env={**os.environ, **(env or {})}, stdout=log, stderr=log, start_new_session=True
            )
        self.workers.append(process)

    def log(self, worker: int) -> str:
        return (self.folder / f"w{worker}.log").read_text(errors="replace")

    def ready(self, timeout: float = 60) -> None:
        """Wait until every worker is, and a second more for its pool."""
        end = time.monotonic() + timeout
        for n, process in enumerate(self.workers):
            while "ready." not in self.log(n):
                if time.monotonic() > end or process.poll() is not None:
                    raise RuntimeError(f"worker {n} did not start:\n{self.log(n)[-3000:]}")
                time.sleep(0.05)
        time.sleep(1.0)

    def stop_workers(self) -> None:
        for process in self.workers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.workers.clear()

    # -- counting ----------------------------------------------------------------------------------------

    def await_calls(self, count: int, timeout: float, **how: Any) -> None:
        """Wait for that many starts.

        Raises:
            RuntimeError: they did not come.
        """
        came = self.recorder.wait(count, timeout, **how)
        if came < count:
            for n in range(len(self.workers)):
                progress(f"the end of worker {n}'s log:\n{self.log(n)[-2000:]}")
            raise RuntimeError(f"{came} of {count} bodies started within {timeout:.0f} s")


def reads(server: RedisServer) -> int:
    """Round trips this server has served: reads from sockets (a pipeline is one); the question is one too."""
    return int(server.client().info("stats")["total_reads_processed"])


def deliveries(server: RedisServer) -> int:
    """Messages handed to workers: kombu notes each in a hash of its own, with one HSET."""
    return calls(server.client(), "hset")


def calls(client: redis.Redis, command: str) -> int:
    """How often a command was called."""
    stats: Any = client.info("commandstats")
    return int(stats.get(f"cmdstat_{command}", {}).get("calls", 0))


def progress(text: str) -> None:
    """On the way: this is long work."""
    print(f"  {text}", file=sys.stderr, flush=True)


def repeat(rig: Rig, what: str, once: Callable[[], Any], runs: int | None = None) -> list[Any]:
    """Do it as often as asked."""
    found = []
    total = runs or rig.options.runs
    for run in range(1, total + 1):
        progress(f"{what}, run {run} of {total}")
        found.append(once())
    return found
