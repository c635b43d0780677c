"""Every example runs as its first lines say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading

import pytest

from tests.fleet import ROOT
from tests.services import RedisServer


def run(name: str, server: RedisServer, *, worker: bool = True) -> list[str]:
    """The lines an example prints."""
    env = {**os.environ, "CELERY_BROKER_URL": server.url(5)}
    celery = [sys.executable, "-m", "celery", "-A", f"examples.{name}", "worker", "-c", "2", "-l", "INFO"]
    process = subprocess.Popen(celery, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True) if worker else None
    try:
        if process is not None:
            assert any(line.rstrip().endswith("ready.") for line in process.stderr or ())
            threading.Thread(target=process.stderr.read, daemon=True).start()  # type: ignore[union-attr]
        example = [sys.executable, "-m", f"examples.{name}"]
        done = subprocess.run(example, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)
    finally:
        if process is not None:
            process.terminate()
            process.wait(20)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def seconds(lines: list[str]) -> list[float]:
    return [float(line.split(" s")[0]) for line in lines]


def test_limit_a_task(server: RedisServer) -> None:
    lines = run("limit_a_task", server)
    assert [line.split(" s  ")[1] for line in lines[1:]] == [f"sms {number}" for number in range(12)]
    assert seconds(lines[1:]) == pytest.approx([number / 2 for number in range(12)], abs=0.3)


def test_limit_per_customer(server: RedisServer) -> None:
    lines = run("limit_per_customer", server)
    times = {what: float(at) for what, at in (re.fullmatch(r"(\w+ \d) +(\S+) s", line).groups() for line in lines)}  # type: ignore[union-attr]
    assert [times[f"acme {number}"] for number in range(5)] == pytest.approx([0, 1, 2, 3, 4], abs=0.2)
    assert times["tiny 0"] < 0.5


def test_share_a_limit(server: RedisServer) -> None:
    lines = run("share_a_limit", server)
    assert [line.split(" s  ")[1] for line in lines] == [
        f"{what} {n}" for n in range(5) for what in ("text", "picture")
    ]
    assert seconds(lines) == pytest.approx([number / 4 for number in range(10)], abs=0.3)


def test_raw_producer(server: RedisServer) -> None:
    assert seconds(run("raw_producer", server)) == pytest.approx([number / 2 for number in range(6)], abs=0.3)


def test_smooth_a_queue(server: RedisServer) -> None:
    lines = run("smooth_a_queue", server, worker=False)
    assert [line.split(" s  ")[1] for line in lines] == [f"order {number}" for number in range(10)]
    assert seconds(lines) == pytest.approx([number / 10 for number in range(10)], abs=0.3)
