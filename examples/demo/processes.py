"""The processes of the demo: each in a session of its own with a log of its own, all ended at the end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from examples.demo.interrupt import pause

ROOT = Path(__file__).resolve().parents[2]


class Failure(Exception):
    """Something did not start or did not stay; the text says what and why."""


class Process:
    """One running process.

    Args:
        name: what the user knows it as.
        log: where its output goes.
        command: what to run.
        env: its whole environment.
    """

    def __init__(self, name: str, log: Path, command: list[str], env: dict[str, str]) -> None:
        self.name, self._log = name, log
        try:
            with log.open("wb") as out:
                # A session of its own: Ctrl-C reaches the demo alone, which then ends the others in order.
                self._process = subprocess.Popen(
                    command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
                )
        except OSError as exc:
            raise Failure(f"{name} could not be started: {exc}") from exc

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def wait_for(self, pattern: str, timeout: float = 30) -> re.Match[str]:
        """Wait until its log matches.

        Raises:
            Failure: it ended before, or took too long.
        """
        end = time.monotonic() + timeout
        while True:
            ended = self.exit_code is not None
            found = re.search(pattern, self._log.read_text(errors="replace"))
            if found:
                return found
            if ended or time.monotonic() > end:
                raise Failure(self._why("did not get ready" if not ended else "could not start"))
            pause()

    def check(self) -> None:
        """Raise `Failure` if it has ended with an error."""
        if self.exit_code:
            raise Failure(self._why("ended"))

    def _why(self, what: str) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()[-12:]
        code = "" if self.exit_code is None else f" (exit code {self.exit_code})"
        return f"{self.name} {what}{code}; its log ends:\n" + "\n".join(f"  | {line}" for line in lines)

    def ask_to_end(self) -> None:
        """A Celery worker finishes what it has begun."""
        self._process.terminate()

    def end(self, timeout: float) -> None:
        """Wait so long for it, then kill it with all its children."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Processes:
    """All that run, as a context: at its end they have ended, whatever happened.

    Args:
        logs: a folder.
        patience: seconds a process is given to end by itself.
    """

    def __init__(self, logs: Path, patience: float = 5) -> None:
        self.logs, self._patience = logs, patience
        self._running: list[Process] = []

    def start(self, name: str, *command: str, **env: str) -> Process:
        """Start a program."""
        # CELERY_BROKER_URL and the like go before what an app says: the demo must not send to a real broker.
        own = {key: value for key, value in os.environ.items() if not key.startswith("CELERY_")}
        own["TMPDIR"] = str(self.logs)  # a worker that is killed leaves its temporary files
        log = self.logs / f"{name.replace(' ', '-')}.log"
        process = Process(name, log, list(command), {**own, **env})
        self._running.append(process)
        return process

    def python(self, name: str, module: str, *args: str, **env: str) -> Process:
        """Start a Python module."""
        return self.start(name, sys.executable, "-m", module, *args, **env)

    def check(self) -> None:
        """Raise `Failure` if one has ended with an error."""
        for process in self._running:
            process.check()

    def stop(self, *processes: Process, patience: float | None = None) -> None:
        """End these, the last first to be told."""
        for process in reversed(processes):
            process.ask_to_end()
        end = time.monotonic() + (self._patience if patience is None else patience)
        for process in reversed(processes):
            process.end(max(0.0, end - time.monotonic()))
            self._running.remove(process)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        # After an error or Ctrl-C nothing is worth waiting for.
        self.stop(*self._running, patience=None if kind is None else 0.0)
