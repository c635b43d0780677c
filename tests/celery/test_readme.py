"""Every block of the README runs, in its order, as a reader would run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fleet import ROOT
from tests.services import RedisServer

BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
PYTHON = [block for language, block in BLOCKS if language == "python"]
BASH = [line.split("#")[0].strip() for language, block in BLOCKS if language == "bash" for line in block.splitlines()]


@pytest.fixture
def project(server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the reader's tasks.py; broker and limits on the test's Redis."""
    (tmp_path / "tasks.py").write_text(here(PYTHON[0], server))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "tasks", raising=False)
    return tmp_path


def here(block: str, server: RedisServer) -> str:
    return re.sub(r"redis://localhost:6379/(\d)", lambda found: server.url(int(found[1])), block)


def test_python_blocks_run_in_order(project: Path, server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"__name__": "readme"}
    exec(here(PYTHON[1], server), names)
    names.update(vars(sys.modules["tasks"]))
    waiting = names["send_sms"].throttle  # type: ignore[attr-defined]
    assert waiting.depth() == 99
    for block in PYTHON[2:]:
        exec(here(block, server), names)
    assert waiting.depth() == 0  # the last word of "look and act" is purge()
    assert len(PYTHON) == 9


def test_the_worker_command_runs_the_tasks(project: Path, server: RedisServer) -> None:
    assert "celery -A tasks worker" in BASH
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{project}", "PYTHONUNBUFFERED": "1"}
    log = project / "log"
    command = [sys.executable, "-m", *["celery", "-A", "tasks", "worker"]]
    with log.open("wb") as out:
        worker = subprocess.Popen(command, cwd=project, env=env, stdout=out, stderr=out)
    try:
        subprocess.run([sys.executable, "-c", here(PYTHON[1], server)], cwd=project, env=env, check=True)
        for _ in range(300):
            said = re.findall(r"to \+4930(\d{4}): hello", log.read_text())
            if len(said) == 100:
                break
            worker.poll()
            subprocess.run(["sleep", "0.1"], check=True)
        assert sorted(map(int, said)) == list(range(100)), log.read_text()[-3000:]
    finally:
        worker.terminate()
        worker.wait(20)


def test_make_targets_exist() -> None:
    for line in BASH:
        if line.startswith("make "):
            subprocess.run([*line.split(), "--dry-run"], cwd=ROOT, check=True, capture_output=True)
