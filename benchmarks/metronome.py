"""How quiet the machine is: a process that only sleeps to a beat of 10 ms, and notes how late it wakes.

Who cannot be scheduled for 6 ms here cannot be told from a body that started 6 ms late, so pace is read
beside this. It costs one wake-up in 10 ms.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time

BEAT = 0.01


class Metronome:
    """Runs beside the paced loads."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "benchmarks.metronome"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def end(self) -> list[float]:
        """How late it woke each time, s."""
        out, _ = self._process.communicate("end\n", timeout=10)
        return [float(late) for late in json.loads(out)]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def main() -> None:
    late: list[float] = []
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    beat = time.monotonic()
    while not stop.is_set():
        beat = max(beat + BEAT, time.monotonic())
        time.sleep(max(0.0, beat - time.monotonic()))
        late.append(time.monotonic() - beat)
    print(json.dumps(late))


if __name__ == "__main__":
    main()
