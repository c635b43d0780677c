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
from importlib.resources import files
from pathlib import Path
from typing import Any

from redis.exceptions import NoScriptError

from throttle.wire import Wire

_INCLUDE = re.compile(r"^-- @include (\S+)$", re.MULTILINE)
_CALL = re.compile(r"\b(\w+)\(")
_FUNCTION = re.compile(r"^local function (\w+)\(.*?^end\n", re.MULTILINE | re.DOTALL)


def source(name: str) -> str:
    """One Lua file: beside the modules when installed (zipped too), beside the package in a checkout."""
    shipped = files("throttle").joinpath("lua", *f"{name}.lua".split("/"))
    if shipped.is_file():
        return shipped.read_text("utf-8")
    return (Path(__file__).parent.parent / "lua" / f"{name}.lua").read_text("utf-8")


@cache
def expanded(name: str) -> str:
    """The text of one script with its includes in place, of which it keeps the functions that it calls.

    Redis would make each of the others anew whenever the script runs, 0.1 µs.
    """
    text = _INCLUDE.sub(lambda found: source(found[1]).rstrip(), source(name))
    functions = {found[1]: found[0] for found in _FUNCTION.finditer(text)}
    calling, called = [_FUNCTION.sub("", text)], set[str]()
    while calling:  # each text is read once: a pool process waits for this before its first start
        new = {word for word in _CALL.findall(calling.pop()) if word in functions} - called
        called |= new
        calling += [functions[word].partition("(")[2] for word in new]
    return _FUNCTION.sub(lambda found: found[0] if found[1] in called else "", text)


class Script:
    """One atomic step in Redis, named by its verb."""

    __slots__ = ("_name", "_one", "name", "sha", "text")

    def __init__(self, name: str) -> None:
        self.name, self.text = name, expanded(name)
        self.sha = sha1(self.text.encode()).hexdigest()  # noqa: S324 - Redis names scripts by SHA-1
        self._name = f"$7\r\nEVALSHA\r\n$40\r\n{self.sha}\r\n".encode()
        self._one = f"*5\r\n$7\r\nEVALSHA\r\n$40\r\n{self.sha}\r\n$1\r\n1\r\n"

    def __call__(self, client: Any, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run it on a client, or on its wire (for an asyncio client, see `AsyncLimiter`)."""
        try:
            if isinstance(client, Wire):
                return client(self.packed(keys, args))
            return client.evalsha(self.sha, len(keys), *keys, *args)
        except NoScriptError:
            return client.eval(self.text, len(keys), *keys, *args)

    def packed(self, keys: Sequence[str], args: Sequence[Any]) -> bytes:
        """Its EVALSHA as it goes over the wire."""
        if len(args) == 1 and type(args[0]) is str and args[0].isascii() and all(map(str.isascii, keys)):
            return self.packed_text(keys, args[0])
        return b"*%d\r\n%b%b" % (len(keys) + len(args) + 3, self._name, _items((len(keys), *keys, *args)))

    def packed_text(self, keys: Sequence[str], text: str) -> bytes:
        """The same with one argument, all ASCII: for one key in 1 µs where that takes 3, of the 100 of a decision."""
        if len(keys) == 1:
            (key,) = keys
            return f"{self._one}${len(key)}\r\n{key}\r\n${len(text)}\r\n{text}\r\n".encode("ascii")
        items = "".join([f"${len(item)}\r\n{item}\r\n" for item in (str(len(keys)), *keys, text)])
        return b"*%d\r\n%b%b" % (len(keys) + 4, self._name, items.encode("ascii"))


def packed(*command: Any) -> bytes:
    """Any command as it goes over the wire (RESP)."""
    return b"*%d\r\n%b" % (len(command), _items(command))


def _items(items: Sequence[Any]) -> bytes:
    datas = [item if isinstance(item, bytes) else str(item).encode() for item in items]
    return b"".join([b"$%d\r\n%b\r\n" % (len(data), data) for data in datas])


@cache
def script(name: str) -> Script:
    """The script of that name; read once per process."""
    return Script(name)
