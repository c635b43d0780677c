"""Web servers in processes of their own, and a balancer before them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from threading import Thread

import httpx

from tests.fleet import ROOT
from tests.http.hostile import SECRET
from tests.services import RedisServer, free_port

#: In a traceback: code of ours, of an example, or of a framework. A server's own, when its client is gone, is no fault.
OURS = re.compile(r'  File ".*/(throttle|examples|tests|flask|django|rest_framework|fastapi|starlette|celery|redis)/')


@contextlib.contextmanager
def serving(app: str, server: RedisServer, *options: str, db: int = 6) -> Iterator[str]:
    """uvicorn with an app; its URL."""
    port = free_port()
    command = ("-m", "uvicorn", app, "--port", str(port), "--log-level", "warning", *options)
    with _process(server, db, port, *command) as url:
        yield url


@contextlib.contextmanager
def running(server: RedisServer, *command: str) -> Iterator[str]:
    """A module that serves on PORT; its URL."""
    with _process(server, 7, free_port(), "-m", *command) as url:
        yield url


@contextlib.contextmanager
def _process(server: RedisServer, db: int, port: int, *command: str) -> Iterator[str]:
    env = {**os.environ, "REDIS_URL": server.url(db), "CELERY_BROKER_URL": server.url(db), "PORT": str(port)}
    with tempfile.TemporaryFile("w+") as log:  # a pipe that nobody reads would stop a server that has much to say
        process = subprocess.Popen([sys.executable, *command], cwd=ROOT, env=env, stderr=log)
        url = f"http://127.0.0.1:{port}"
        try:
            if not _answers(url, process):
                log.seek(0)
                raise RuntimeError(f"{command} does not serve: {log.read()}")
            yield url
        finally:
            process.terminate()
            process.wait(20)
        log.seek(0)
        said = log.read()
    ours = OURS.search(said)
    assert not ours, said[max(0, ours.start() - 2000) :][:5000]
    access = "127.0.0.1 - -"  # wsgiref's own log has the first line as it came, and damaged ones are long
    assert not [line for line in said.splitlines() if SECRET in line and not line.startswith(access)]


def _answers(url: str, process: subprocess.Popen[bytes]) -> bool:
    until = time.monotonic() + 30
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            httpx.get(f"{url}/health/")
            return True
        time.sleep(0.05)
    return False


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
