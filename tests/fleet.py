"""A fleet of real Celery workers in processes of their own, and the downstream's record of what started."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.services import RedisServer
from throttle import backlog, bootstep

ROOT = Path(__file__).parent.parent
RECORD_DB = 9
_loaded = itertools.count()


@dataclass(frozen=True)
class Start:
    """One body that started, as the downstream saw it."""

    at: float
    name: str
    what: str
    id: str
    pid: int
    retries: int


class Fleet:
    """Starts workers of one app module and reads the record.

    Args:
        server: Redis for limits, results and record, and for the broker unless `broker` is given.
        folder: where logs go.
        module: the app; it reads its configuration from the environment (see `tests/celery/project.py`).
        broker: another broker's URL.
        env: more environment for producers and workers.
    """

    def __init__(
        self, server: RedisServer, folder: Path, module: str = "tests.celery.project", broker: str = "", **env: str
    ) -> None:
        self.server, self.folder, self.module = server, folder, module
        self.env = {
            "C_FORCE_ROOT": "1",  # containers run as root, and the app accepts pickle
            "PROJECT_BROKER": broker or server.url(1),
            "PROJECT_REDIS": server.url(0),
            "PROJECT_RESULTS": server.url(2),
            "PROJECT_RECORD": server.url(RECORD_DB),
            **env,
        }
        self._environ = dict(os.environ)
        self._leases = backlog.LEASE, backlog.CLAIM, bootstep.RENEW  # a project with PROJECT_LEASE changes them
        os.environ.update(self.env)
        self.record_client = server.client(RECORD_DB)
        self.workers: list[subprocess.Popen[bytes]] = []
        self._project: Any = None

    @property
    def project(self) -> Any:
        """The app's module as a producer with this fleet's environment sees it: loaded anew for each fleet."""
        if self._project is None:
            path = ROOT / (self.module.replace(".", "/") + ".py")
            spec = importlib.util.spec_from_file_location(f"fleet_{next(_loaded)}_{path.stem}", path)
            assert spec is not None
            assert spec.loader is not None
            self._project = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(self._project)
        return self._project

    def worker(self, *args: str, pool: str = "prefork", concurrency: int = 2, wait: bool = True) -> Any:
        """Start a worker; returns its process once it is ready."""
        name = f"w{len(self.workers)}"
        log = self.folder / f"{name}.log"
        command = [
            sys.executable, "-m", "celery", "-A", self.module, "worker", "-P", pool, "-c", str(concurrency),
            "-n", f"{name}@test", "--loglevel", "INFO", "--without-mingle", *args,
        ]  # fmt: skip
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, **self.env}, stdout=out, stderr=out, start_new_session=True
            )
        self.workers.append(process)
        if wait:
            self.ready()
        return process

    def ready(self) -> None:
        """Wait for workers that were started with `wait=False`."""
        for number, process in enumerate(self.workers):
            log = self.folder / f"w{number}.log"
            if process.poll() is None:
                self.until(lambda: b"ready." in log.read_bytes() or process.poll() is not None, 30, f"worker w{number}")  # noqa: B023
                assert process.poll() is None, log.read_text()

    def pair(self, *args: str, **options: Any) -> list[Any]:
        """Two workers, started side by side."""
        workers = [self.worker(*args, wait=False, **options) for _ in range(2)]
        self.ready()
        return workers

    def logs(self) -> str:
        return "".join(log.read_text(errors="replace") for log in sorted(self.folder.glob("w*.log")))

    def kill(self, process: Any, how: int = signal.SIGKILL) -> None:
        """Kill a worker with all its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        process.wait(30)

    def stop(self, process: Any) -> None:
        """Warm shutdown."""
        process.send_signal(signal.SIGTERM)
        process.wait(30)

    def end(self) -> None:
        for process in self.workers:
            self.kill(process)
        if self._project is not None:
            # A result that is collected later unsubscribes from a Redis that is gone, at length and aloud
            self._project.app.backend.remove_pending_result = lambda result: result
            self._project.app.close()
            gc.collect()
        backlog.LEASE, backlog.CLAIM, bootstep.RENEW = self._leases
        os.environ.clear()
        os.environ.update(self._environ)

    def events(self, id: str = "") -> list[str]:
        """Hooks and signals that were called, in order; of one task or all."""
        pairs = (line.decode().split(" ") for line in self.record_client.lrange("events", 0, -1))
        return [name for name, whose in pairs if not id or whose == id]

    def record(self, name: str = "") -> list[Start]:
        """What started so far, in the order in which the downstream noted it."""
        starts = []
        for line in self.record_client.lrange("starts", 0, -1):
            at, task, what, id, pid, retries = line.decode().split(" ")
            if not name or task == name:
                starts.append(Start(float(at), task, what, id, int(pid), int(retries)))
        return starts

    def started(self, count: int, timeout: float = 30, name: str = "") -> list[Start]:
        """Wait until that many bodies have started."""
        self.until(lambda: len(self.record(name)) >= count, timeout, f"{count} starts", lambda: len(self.record(name)))
        return self.record(name)

    def until(
        self, true: Callable[[], object], timeout: float, what: str, have: Callable[[], object] = lambda: "none"
    ) -> None:
        end = time.monotonic() + timeout
        while not true():
            if time.monotonic() > end:
                raise AssertionError(f"no {what} within {timeout} s, have {have()}\n{self.logs()[-6000:]}")
            time.sleep(0.02)
