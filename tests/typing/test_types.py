"""The types that users see: right use passes mypy in strict mode, a misspelt option does not (B30)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parent / "sample.py"


def mypy(file: Path) -> str:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--no-error-summary", str(file)]
    return subprocess.run(command, cwd=file.parent, capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize("name", ["sample.py", "requests_sample.py"])
def test_right_use_is_accepted(name: str) -> None:
    said = [line for line in mypy(SAMPLE.with_name(name)).splitlines() if line.startswith(name)]
    assert said == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("burst=20", "brust=20"),
        ('key="{customer}"', 'kye="{customer}"'),
        ('cost="{pages}"', "cost=[1]"),
        ('scope="login"', "scope=1"),
        ('key="me", cost=1', 'key="me", costs=1'),
        ("wait: float = decision.retry_after", "wait: str = decision.retry_after"),
    ],
)
def test_b30_a_slip_is_reported(tmp_path: Path, right: str, wrong: str) -> None:
    text = SAMPLE.read_text()
    assert right in text
    (tmp_path / "slip.py").write_text(text.replace(right, wrong, 1))
    assert "error" in mypy(tmp_path / "slip.py")
