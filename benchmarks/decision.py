"""Row 9: one decision against a bare GET and a minimal EVALSHA, interleaved; refused again; and without Redis."""

from __future__ import annotations

import time

import redis

from benchmarks.figures import Row, at_most, median
from benchmarks.rig import Rig, progress
from benchmarks.timing import BATCH, interleaved, ratio, timed
from tests.services import free_port
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
        capacity(client, rounds),
        denial(client),
        stopped(rounds),
    ]  # fmt: skip


def capacity(client: redis.Redis, rounds: int) -> Row:
    """B50: how many decisions of one key one Redis has time for, by what it says of the time each took it."""
    limiter = Limiter(client, "bench-hot")
    client.config_resetstat()
    for _ in range(rounds * BATCH):
        limiter.acquire(LIMIT, key="u1")
    took = float(client.info("commandstats")["cmdstat_evalsha"]["usec_per_call"])  # type: ignore[index]
    return Row(
        "decisions of one key that one Redis has time for, a second", f"{1e6 / took:.0f}", "≥ 20000",
        1e6 / took >= 20_000, f"{took:.1f} µs each in Redis, reading from the socket aside",
    )  # fmt: skip


def denial(client: redis.Redis) -> Row:
    """A key that is refused asks again; Redis is asked once a second."""
    limiter, limit = Limiter(client, "bench-denial"), TokenBucket("1/h")
    for limits in ([limit], [limit, *THREE]):
        limiter.acquire(*limits, key="u1")
        limiter.acquire(*limits, key="u1")
    before = commands(client)
    began, took = time.monotonic(), []
    while time.monotonic() - began < 0.5:
        took.append(timed(lambda: limiter.acquire(limit, key="u1")) * 1e6)
    asked = commands(client) - before - 1  # INFO itself
    several = timed(lambda: limiter.acquire(limit, *THREE, key="u1")) * 1e6
    return Row(
        "a refused key asks again within its time, p50, µs", f"{median(took):.2f}", "≤ 5, 0 commands",
        at_most(median(took), 5) and asked == 0,
        f"{len(took) * BATCH} calls, {asked} commands; refused by one of four limits: {several:.2f}",
    )  # fmt: skip


def commands(client: redis.Redis) -> int:
    return int(client.info("stats")["total_commands_processed"])  # type: ignore[index]


def stopped(rounds: int) -> Row:
    """Nobody listens; the breaker is open. One call a second tries all the same, and is among these."""
    limiter = Limiter(f"redis://127.0.0.1:{free_port()}", "bench-stopped")
    first = []
    for _ in range(3):
        began = time.monotonic()
        limiter.acquire(LIMIT, key="u1")
        first.append((time.monotonic() - began) * 1e3)
    took = [timed(lambda: limiter.acquire(LIMIT, key="u1")) * 1e6 for _ in range(rounds)]
    return Row(
        "Redis stopped: added per call once the breaker is open, p50, µs", f"{median(took):.2f}", "≤ 100",
        at_most(median(took), 100), f"the first three took {max(first):.0f} ms at most, with their further tries",
    )  # fmt: skip
