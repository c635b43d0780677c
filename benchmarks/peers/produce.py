"""Runs in a contender's own Python: `produce MODULE LOAD`.

Loads: `burst N | tenants A B | decision ROUNDS | asks QUOTA ROUNDS | dispatch | prepare`.

Says "ready" when connected, waits for a line, works, and prints when it began (or what it measured).
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from importlib import import_module
from typing import Any

from benchmarks.peers import USERS
from benchmarks.timing import BATCH, interleaved, ratio


def main() -> None:
    module, load, *numbers = sys.argv[1:]
    contender = import_module(f"benchmarks.peers.apps.{module}")
    if load == "prepare":
        return getattr(contender, "prepare", lambda: None)()
    if load == "dispatch":
        return contender.dispatch()
    if load == "decision":
        return print(json.dumps(decision(contender, int(numbers[0]))))
    if load == "asks":
        print(json.dumps(asks(contender, *map(int, numbers))))
        return None
    contender.app.pool.acquire(block=True).ensure_connection()
    print("ready", flush=True)
    sys.stdin.readline()
    begin = time.time()
    if load == "burst":
        for n in range(int(numbers[0])):
            contender.submit(n)
    else:
        for n in range(int(numbers[0])):
            contender.submit_tenant("a", n)
        begin = time.time()
        for n in range(int(numbers[1])):
            contender.submit_tenant("b", n)
    print(json.dumps(begin), flush=True)
    return None


def decision(contender: object, rounds: int) -> tuple[float, float]:
    """One decision over a bare GET on the same connection, and that GET in µs."""
    from benchmarks.peers.apps.common import store

    client = store()
    client.set("get", "1733000000.000000")
    found = interleaved({"get": lambda: client.get("get"), "decide": contender.decide(client)}, rounds)
    return ratio(found["decide"], found["get"]), statistics.median(found["get"]) * 1e6


def asks(contender: Any, quota: int, rounds: int) -> list[tuple[str, str, str, float, float]]:
    """Of every way to ask: kind, how, what it tells, one answer over a bare GET, and that answer in µs.

    Raises:
        RuntimeError: the last answer is not the one that the quota was to bring about.
    """
    from benchmarks.peers.apps.common import store

    client = store()
    client.set("get", "1733000000.000000")
    ways = contender.asks(client, quota)
    calls = {"get": lambda: client.get("get"), **{str(n): way.question for n, way in enumerate(ways)}}
    found = interleaved(calls, rounds)
    passes = quota * USERS > (rounds + 1) * BATCH
    for way in ways:
        if bool(way.question()[0]) is not passes:
            raise RuntimeError(f"{way.how}: {way.question()}, and {passes} was expected")
    return [
        (way.kind, way.how, way.tells, ratio(found[str(n)], found["get"]), statistics.median(found[str(n)]) * 1e6)
        for n, way in enumerate(ways)
    ]


if __name__ == "__main__":
    main()
