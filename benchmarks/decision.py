"""Row 9: one decision against a bare GET and a minimal EVALSHA, interleaved on the same connection."""

from __future__ import annotations

import time
from collections.abc import Callable

import redis

from benchmarks.figures import Row, at_most, median, percentile
from benchmarks.rig import Rig, progress
from throttle import Limiter, TokenBucket

LIMIT = TokenBucket("1000000/s", burst=1_000_000)
MINIMAL = "return redis.call('GET', KEYS[1])"
BATCH = 50


def timed(call: Callable[[], object]) -> list[float]:
    """A batch of single calls, s each."""
    found = []
    for _ in range(BATCH):
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return found


def measure(rig: Rig) -> list[Row]:
    rounds = 100 if rig.options.quick else 600
    client = redis.Redis(port=rig.limiter.port)
    client.set("bench:get", "1733000000000000 1733000000000000")
    sha = client.script_load(MINIMAL)
    limiter = Limiter(client, "bench")
    calls: dict[str, Callable[[], object]] = {
        "get": lambda: client.get("bench:get"),
        "evalsha": lambda: client.evalsha(sha, 1, "bench:get"),
        "acquire": lambda: limiter.acquire(LIMIT, key="u1"),
    }
    medians: dict[str, list[float]] = {name: [] for name in calls}
    progress(f"one decision, {rounds} rounds of {BATCH}")
    for call in calls.values():
        timed(call)
    for _ in range(rounds):
        for name, call in calls.items():
            medians[name].append(percentile(timed(call), 0.5))
    p50 = {name: median(values) * 1e6 for name, values in medians.items()}
    base = median(a / b for a, b in zip(medians["acquire"], medians["get"], strict=True))
    script = median(a / b for a, b in zip(medians["acquire"], medians["evalsha"], strict=True))
    bare = median(a / b for a, b in zip(medians["evalsha"], medians["get"], strict=True))
    return [
        Row(
            "one decision with all it tells (Limiter.acquire), p50 / bare GET", f"{base:.3f}", "≤ 1.12",
            at_most(base, 1.12), f"{p50['acquire']:.0f} µs against {p50['get']:.0f} µs",
        ),
        Row("the same / minimal EVALSHA", f"{script:.3f}", note=f"{p50['evalsha']:.0f} µs, {bare:.3f} of a GET"),
    ]  # fmt: skip
