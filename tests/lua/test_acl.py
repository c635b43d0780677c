"""B48: a Redis user with the commands that `lua/README.md` lists, and no more, serves tasks and requests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import redis

from tests.services import RedisServer
from tests.simulation import entry
from throttle import FixedWindow, LeakyBucket, Limiter, Quota, SlidingLog, SlidingWindow, TokenBucket
from throttle.backlog import Backlog
from throttle.errors import StoreUnavailable
from throttle.store import Store

README = Path(__file__).parent.parent.parent / "lua" / "README.md"


def listed() -> list[str]:
    """The commands of the README's line."""
    text = README.read_text()
    begin = text.index("Redis commands used are those of version 6.2:")
    return re.findall(r"\b[A-Z]{3,}\b", text[begin : text.index("An ACL user", begin)])


def user(server: RedisServer) -> str:
    """Makes the user; its URL."""
    rules = [f"+{command.lower()}" for command in listed()]
    server.client().execute_command(
        "ACL",
        "SETUSER",
        "limits",
        "reset",
        "on",
        ">secret",
        "~throttle:*",
        "resetchannels",
        "&throttle:*",
        "+@connection",
        *rules,
    )
    return f"redis://limits:secret@localhost:{server.port}/0"


def test_b48_requests_with_the_commands_listed(any_server: RedisServer) -> None:
    limiter = Limiter(user(any_server), "acl", on_store_error="closed")
    kinds = (FixedWindow("5/h"), SlidingWindow("5/h"), SlidingLog("5/h"), Quota(5, "day"), TokenBucket("5/h", 5))
    for limit in kinds:
        assert limiter.acquire(limit, key="k", cost=2)
        limiter.refund(limit, key="k")
        limiter.reset(limit, key="k")
    assert limiter.acquire(*kinds, LeakyBucket("1/s", depth=3), key="k")


def test_b48_tasks_with_the_commands_listed(any_server: RedisServer) -> None:
    backlog = Backlog(Store(user(any_server)), "acl", [TokenBucket("1000/s"), SlidingLog("1000/s")])
    backlog.declare(replace=True)
    both = {"keys": ("-", "-")}
    verdicts = [backlog.submit(entry(n, **both)) for n in range(60)]
    assert backlog.depth() + backlog.flying() == 60
    backlog.estimate("-", ("-", "-"), (1, 1))
    assert backlog.start("take", "0", verdicts[0].ticket, verdicts[0].slot, ("-", "-"), (1, 1)).what in ("go", "hold")
    due = backlog.release().due
    backlog.confirm((task.id, task.ticket) for task in due)
    backlog.gate(entry("99", **both))
    backlog.recover([task.id for task in due])
    backlog.forget("1", "2")
    backlog.set_rate(TokenBucket(0))
    backlog.reset_rate()
    backlog.reset()
    backlog.purge()


def test_b48_a_missing_command_is_told_from_an_outage(any_server: RedisServer) -> None:
    url = user(any_server)
    any_server.client().execute_command("ACL", "SETUSER", "limits", "-set")
    limiter = Limiter(redis.Redis.from_url(url), "acl", on_store_error="closed")
    with pytest.raises(StoreUnavailable, match=r"ACL forbids a command that limits need; lua/README.md lists all"):
        limiter.acquire(TokenBucket("1/s"))
