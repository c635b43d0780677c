"""Row 9: one decision against a bare GET and a minimal EVALSHA, interleaved on the same connection."""

from __future__ import annotations

import redis

from benchmarks.figures import Row, at_most, median
from benchmarks.rig import Rig, progress
from benchmarks.timing import BATCH, interleaved, ratio
from throttle import Limiter, TokenBucket

LIMIT = TokenBucket("1000000/s", burst=1_000_000)
THREE = [TokenBucket("1000000/s", burst=1_000_000, name=name) for name in ("first", "second", "third")]
MINIMAL = "return redis.call('GET', KEYS[1])"


def measure(rig: Rig) -> list[Row]:
    rounds = 100 if rig.options.quick else 600
    client = redis.Redis(port=rig.limiter.port)
    client.set("bench:get", "1733000000000000 1733000000000000")
    sha = client.script_load(MINIMAL)
    limiter = Limiter(client, "bench")
    progress(f"one decision, {rounds} rounds of {BATCH}")
    found = interleaved(
        {
            "get": lambda: client.get("bench:get"),
            "evalsha": lambda: client.evalsha(sha, 1, "bench:get"),
            "acquire": lambda: limiter.acquire(LIMIT, key="u1"),
            "three": lambda: limiter.acquire(*THREE, key="u1"),
        },
        rounds,
    )
    p50 = {name: median(values) * 1e6 for name, values in found.items()}
    base, script = ratio(found["acquire"], found["get"]), ratio(found["acquire"], found["evalsha"])
    bare, more = ratio(found["evalsha"], found["get"]), ratio(found["three"], found["acquire"])
    return [
        Row(
            "one decision with all it tells (Limiter.acquire), p50 / bare GET", f"{base:.3f}", "≤ 1.12",
            at_most(base, 1.12), f"{p50['acquire']:.0f} µs against {p50['get']:.0f} µs",
        ),
        Row(
            "three limits in one decision / one limit", f"{more:.3f}", "≤ 1.25",
            at_most(more, 1.25), f"{p50['three']:.0f} µs against {p50['acquire']:.0f} µs",
        ),
        Row("one decision / minimal EVALSHA", f"{script:.3f}", note=f"{p50['evalsha']:.0f} µs, {bare:.3f} of a GET"),
    ]  # fmt: skip
