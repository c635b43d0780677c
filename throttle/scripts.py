"""Loads the Lua scripts and calls them.

`-- @include lib/x` is replaced by that file before hashing, so a script is one text. Calls are plain
EVALSHA; a server that has forgotten the script (restart, SCRIPT FLUSH, failover) answers NOSCRIPT without
having run anything, and gets it with the same call again: nothing is taken twice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from hashlib import sha1
from pathlib import Path
from typing import Any

from redis.exceptions import NoScriptError

_INCLUDE = re.compile(r"^-- @include (\S+)$", re.MULTILINE)


def folder() -> Path:
    """Where the Lua files are: beside the modules when installed, beside the package in a checkout."""
    shipped = Path(__file__).parent / "lua"
    return shipped if shipped.is_dir() else Path(__file__).parent.parent / "lua"


@cache
def expanded(name: str) -> str:
    """The text of one script with its includes in place."""
    text = (folder() / f"{name}.lua").read_text("utf-8")
    return _INCLUDE.sub(lambda found: (folder() / f"{found[1]}.lua").read_text("utf-8").rstrip(), text)


class Script:
    """One atomic step in Redis, named by its verb."""

    __slots__ = ("name", "sha", "text")

    def __init__(self, name: str) -> None:
        self.name, self.text = name, expanded(name)
        self.sha = sha1(self.text.encode()).hexdigest()  # noqa: S324 - Redis names scripts by SHA-1

    def __call__(self, client: Any, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run it on a client (for an asyncio client, see `AsyncLimiter`)."""
        try:
            return client.evalsha(self.sha, len(keys), *keys, *args)
        except NoScriptError:
            return client.eval(self.text, len(keys), *keys, *args)


@cache
def script(name: str) -> Script:
    """The script of that name; read once per process."""
    return Script(name)
