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


def measure(rig: Rig) -> list[Row]:
    seconds, rounds = (0.5, 3) if rig.options.quick else (1.5, 4 * rig.options.runs)
    with served("benchmarks.hello:plain") as plain, served("benchmarks.hello:limited", "--factory") as limited:
        progress(f"hello-world, {rounds} rounds of {seconds} s each")
        rates = [(asyncio.run(rate(plain, seconds)), asyncio.run(rate(limited, seconds))) for _ in range(rounds)]
    share = median([ours / bare for bare, ours in rates])
    bare, ours = (median(values) for values in zip(*rates, strict=True))
    return [
        Row(
            "requests/s of an ASGI hello-world with the middleware / without", f"{share:.2f}", "≥ 0.75",
            share >= 0.75, f"{ours:.0f} against {bare:.0f}; uvicorn, one process, {CLIENTS} connections",
        )
    ]  # fmt: skip


@contextlib.contextmanager
def served(app: str, *options: str) -> Iterator[int]:
    """A server of that app; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", app, *options, "--port", str(port), "--log-level", "error"]
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
