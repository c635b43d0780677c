"""Runs in a contender's own Python: `produce MODULE burst N | tenants A B | decision ROUNDS | dispatch | prepare`.

Says "ready" when connected, waits for a line, works, and prints when it began (or what it measured).
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from importlib import import_module

from benchmarks.timing import interleaved, ratio


def main() -> None:
    module, load, *numbers = sys.argv[1:]
    contender = import_module(f"benchmarks.peers.apps.{module}")
    if load == "prepare":
        return getattr(contender, "prepare", lambda: None)()
    if load == "dispatch":
        return contender.dispatch()
    if load == "decision":
        return print(json.dumps(decision(contender, int(numbers[0]))))
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


if __name__ == "__main__":
    main()
