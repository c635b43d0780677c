"""Row 12: what an idle fleet costs with tasks parked: commands its clients send to the limiter's Redis."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress

import redis

from benchmarks.figures import Row
from benchmarks.memory import message_of, park
from benchmarks.rig import ROOT, Rig, progress
from throttle.deployment import deployment
from throttle.scripts import script

WORKERS = 2


def commands(rig: Rig, seconds: float) -> Counter[str]:
    """By MONITOR: what clients send, without what scripts call inside."""
    seen: Counter[str] = Counter()
    scripts = {script(file.stem).sha: f"{file.stem}.lua" for file in (ROOT / "lua").glob("*.lua")}
    monitor = rig.limiter.client().monitor()

    def watch() -> None:
        with suppress(redis.RedisError, OSError, ValueError):  # the connection is closed to end this
            for event in monitor.listen():
                if event["client_type"] != "lua":
                    command, *args = event["command"].split(" ")
                    seen[scripts.get(args[0], "?") if command == "EVALSHA" else command.lower()] += 1

    with monitor:
        threading.Thread(target=watch, daemon=True).start()
        time.sleep(seconds)
        return Counter(seen)


def measure(rig: Rig) -> list[Row]:
    from benchmarks import app

    seconds, parked = (20, 1000) if rig.options.quick else (60, 10_000)
    with rig.fleet(workers=WORKERS):
        envelope, _ = message_of(rig, "closed", 0)
        park(app.closed, envelope, parked, 0)
        time.sleep(3)
        progress(f"idle for {seconds} s with {parked} parked")
        seen = commands(rig, seconds)
    each = seen.total() / seconds / WORKERS
    what = ", ".join(f"{name} {count / seconds:.2f}/s" for name, count in seen.most_common())
    return [
        Row(
            f"idle, {parked} parked under a closed limit: commands per second per worker", f"{each:.2f}", "< 1",
            each < 1, f"{WORKERS} workers together, {len(deployment(app.app).backlogs())} scopes: {what}",
        )
    ]  # fmt: skip
