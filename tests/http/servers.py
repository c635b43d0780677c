"""Web servers in processes of their own, and a balancer before them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from threading import Thread

import httpx

from tests.fleet import ROOT
from tests.services import RedisServer, free_port


@contextlib.contextmanager
def serving(app: str, server: RedisServer, *, db: int = 6) -> Iterator[str]:
    """uvicorn with an app; its URL."""
    port = free_port()
    env = {**os.environ, "REDIS_URL": server.url(db), "CELERY_BROKER_URL": server.url(db)}
    command = [sys.executable, "-m", "uvicorn", app, "--port", str(port), "--log-level", "warning"]
    process = subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True)
    try:
        _wait(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        _, said = process.communicate(timeout=20)
    assert "Traceback" not in said, said


def _wait(port: int, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{port}/health")
            return
        time.sleep(0.05)
    raise RuntimeError(f"uvicorn did not start: {process.communicate()[1] if process.poll() is not None else ''}")


@contextlib.contextmanager
def balancing(urls: Sequence[str]) -> Iterator[str]:
    """A balancer on TCP: each connection goes to the next server."""
    turns, loop, port = itertools.cycle(urls), asyncio.new_event_loop(), free_port()

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = await asyncio.open_connection("127.0.0.1", int(next(turns).rsplit(":", 1)[1]))
        await asyncio.gather(pipe(reader, upstream[1]), pipe(upstream[0], writer))

    listening = loop.run_until_complete(asyncio.start_server(connected, "127.0.0.1", port))
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(listening.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
