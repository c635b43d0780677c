"""What operators read: each text begins with what it is about, and comes no more often than is useful."""

from __future__ import annotations

import ast
import importlib
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet import ROOT
from throttle import TokenBucket
from throttle.smoother import Smoother

SUBJECT = re.compile(
    r"(scope|task|smoother) %s: |rule %s|(scheduler|worker|gate|start): |@throttled on %s |a script failed"
)


def texts() -> Iterator[str]:
    for path in sorted((ROOT / "throttle").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            called = ast.unparse(node.func).rpartition(".") if isinstance(node, ast.Call) else ("", "", "")
            telling = called[2] in ("info", "warning", "error", "exception") and called[0] == "logger"
            if telling or called[2] in ("log", "complain"):
                text = node.args[0]  # type: ignore[attr-defined]
                if isinstance(text, ast.Name):
                    yield getattr(importlib.import_module(f"throttle.{path.stem}"), text.id)
                elif isinstance(text, ast.Constant):
                    yield text.value


def test_each_text_begins_with_what_it_is_about() -> None:
    found = list(texts())
    assert len(found) >= 15
    assert [text for text in found if not SUBJECT.match(text)] == []


def test_a_smoother_tells_of_an_outage_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    smoother = Smoother("redis://localhost:1", "in", "out", TokenBucket("1/s"))
    with caplog.at_level(logging.INFO):
        for _ in range(61):
            smoother._tell(OSError("refused"))
    assert [record.getMessage() for record in caplog.records] == [
        "smoother queue:in>out: messages wait until broker and Redis serve: refused"
    ] * 2


def test_a_scheduler_without_redis_ends_with_the_remedy(tmp_path: Path) -> None:
    program = "from celery import Celery\napp = Celery(broker='memory://')"
    (tmp_path / "nowhere.py").write_text(program)
    ended = subprocess.run(
        [sys.executable, "-m", "workers.scheduler", "-A", "nowhere"],
        cwd=ROOT, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert "throttle_redis_url" in ended.stderr
    assert "Traceback" not in ended.stderr
