"""Tells how many steps the model has made."""

from __future__ import annotations

from typing import Any

from tests.model.scope import Scope


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if Scope.steps:
        terminalreporter.write_line(f"model: {Scope.steps} steps against a real Redis")
