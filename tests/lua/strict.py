"""A client whose scripts may touch no key but the declared ones: an ACL user, given exactly those before each call.

On a cluster node the scripts also get `#!lua` as first line, without which Redis 7 lets a script reach keys of
other slots.
"""

from __future__ import annotations

from typing import Any

import redis

from tests.fleet import ROOT
from throttle.scripts import Script, script

USER = "strict"


class StrictClient(redis.Redis):
    """Runs scripts as a user who has the declared keys only; everything else as usual."""

    @classmethod
    def of(cls, server: Any, *, shebang: bool = False) -> StrictClient:
        client = cls(port=server.port)
        client.execute_command(*acl(()))
        client.shebang = "#!lua\n" if shebang else ""
        client.user = redis.Redis(port=server.port, username=USER, password="x", client_name=USER)
        client.texts, client.ran = {}, {}
        return client

    def execute_command(self, *args: Any, **options: Any) -> Any:
        if args[0] not in ("EVAL", "EVALSHA"):
            return super().execute_command(*args, **options)
        name = self._name(args[1])
        keys, argv = args[3 : 3 + args[2]], args[3 + args[2] :]
        super().execute_command(*acl(keys))
        reply = self.user.eval(self.shebang + script(name).text, len(keys), *keys, *argv)
        self.ran.setdefault(name, []).append(reply)
        return reply

    def pipeline(self, *args: Any, **options: Any) -> Any:
        return _OneByOne(self)

    def _name(self, said: str) -> str:
        if said not in self.texts:
            for one in all_scripts():
                self.texts[one.sha] = self.texts[one.text] = one.name
        return str(self.texts[said])


def all_scripts() -> list[Script]:
    return [script(path.stem) for path in (ROOT / "lua").glob("*.lua")]


def acl(keys: Any) -> list[str]:
    return ["ACL", "SETUSER", USER, "reset", "on", ">x", "+@all", "&*", *(f"~{key}" for key in keys)]


class _OneByOne:
    def __init__(self, client: StrictClient) -> None:
        self.client, self.calls = client, []

    def evalsha(self, *args: Any) -> None:
        self.calls.append(args)

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        return [self.client.evalsha(*args) for args in self.calls]
