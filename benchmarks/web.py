"""Requests a second of a hello-world behind uvicorn, with the middleware against without, in turns."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.figures import Row, median
from benchmarks.rig import ROOT, Rig, progress

CLIENTS = 16
REQUEST = b"GET / HTTP/1.1\r\nhost: bench\r\n\r\n"


#: What is compared: a word for it, the app with limits, the same without; and the share that is wanted.
PAIRS = (
    ("an ASGI hello-world with the middleware", "limited", "plain", 0.75),
    ("the same with lease=50", "leased", "plain", None),
    ("a FastAPI hello-world with install()", "fastapi_limited", "fastapi", None),
)


def measure(rig: Rig) -> list[Row]:
    seconds, rounds = (0.5, 3) if rig.options.quick else (1.5, 4 * rig.options.runs)
    with contextlib.ExitStack() as stack:
        apps = dict.fromkeys(name for _, *names, _ in PAIRS for name in names)
        ports = {name: stack.enter_context(served(name)) for name in apps}
        progress(f"hello-worlds, {rounds} rounds of {len(apps)} × {seconds} s")
        rates = [{name: asyncio.run(rate(port, seconds)) for name, port in ports.items()} for _ in range(rounds)]
    return [_row(what, [(one[ours], one[bare]) for one in rates], wanted) for what, ours, bare, wanted in PAIRS]


def _row(what: str, rates: list[tuple[float, float]], wanted: float | None) -> Row:
    share = median([ours / bare for ours, bare in rates])
    ours, bare = (median(values) for values in zip(*rates, strict=True))
    return Row(
        f"requests/s of {what} / without", f"{share:.2f}", "–" if wanted is None else f"≥ {wanted}",
        None if wanted is None else share >= wanted,
        f"{ours:.0f} against {bare:.0f}; uvicorn, one process, {CLIENTS} connections",
    )  # fmt: skip


@contextlib.contextmanager
def served(app: str) -> Iterator[int]:
    """A server of that app of `benchmarks.hello`; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = [] if app == "plain" else ["--factory"]
    command = [sys.executable, "-m", "uvicorn", f"benchmarks.hello:{app}", *options, "--port", str(port)]
    command += ["--log-level", "error"]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        await_port(port)
        yield port
    finally:
        process.kill()
        process.wait()


def await_port(port: int, timeout: float = 20) -> None:
    """Until it listens.

    Raises:
        RuntimeError: it did not.
    """
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"nothing listens on port {port}")


async def rate(port: int, seconds: float) -> float:
    """Requests a second over connections that are kept."""
    end = time.perf_counter() + seconds
    begin = time.perf_counter()
    counts = await asyncio.gather(*(client(port, end) for _ in range(CLIENTS)))
    return sum(counts) / (time.perf_counter() - begin)


async def client(port: int, end: float) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    count = 0
    while time.perf_counter() < end:
        writer.write(REQUEST)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode(errors="replace"))
        await reader.readexactly(12)
        count += 1
    writer.close()
    return count
