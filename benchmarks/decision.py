"""Row 9: one decision against a bare GET and a minimal EVALSHA, interleaved on the same connection."""

from __future__ import annotations

import redis

from benchmarks.figures import Row, at_most, median
from benchmarks.rig import Rig, progress
from benchmarks.timing import BATCH, interleaved, ratio
from throttle import Limiter, TokenBucket

LIMIT = TokenBucket("1000000/s", burst=1_000_000)
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
        },
        rounds,
    )
    p50 = {name: median(values) * 1e6 for name, values in found.items()}
    base, script = ratio(found["acquire"], found["get"]), ratio(found["acquire"], found["evalsha"])
    bare = ratio(found["evalsha"], found["get"])
    return [
        Row(
            "one decision with all it tells (Limiter.acquire), p50 / bare GET", f"{base:.3f}", "≤ 1.12",
            at_most(base, 1.12), f"{p50['acquire']:.0f} µs against {p50['get']:.0f} µs",
        ),
        Row("the same / minimal EVALSHA", f"{script:.3f}", note=f"{p50['evalsha']:.0f} µs, {bare:.3f} of a GET"),
    ]  # fmt: skip
