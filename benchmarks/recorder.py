"""The provider: a process of its own that bodies call, and that notes with its own clock when they did.

A call is one UDP datagram; its time is the kernel's at arrival (SO_TIMESTAMPNS), so that a recorder that
is kept waiting for a core does not blur what it saw. Commands come by stdin, answers go by stdout.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SO_TIMESTAMPNS = 35  # Linux; Python does not name it
_SPACE = socket.CMSG_SPACE(16)


@dataclass(frozen=True)
class Call:
    """One body, as the provider saw it: when, `kind` ('start' or 'end'), task, what it was given, process."""

    at: float
    kind: str
    task: str
    what: str
    pid: int


class Recorder:
    """The recorder as the benchmark sees it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.recorder"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.address = f"127.0.0.1:{self._answer()}"

    def _answer(self) -> Any:
        assert self._process.stdout
        return json.loads(self._process.stdout.readline())

    def _ask(self, command: str) -> Any:
        assert self._process.stdin
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self._answer()

    def clear(self) -> None:
        """Forget all calls."""
        self._ask("clear")

    def count(self, kind: str = "start") -> int:
        """Calls so far."""
        return int(self._ask(f"count {kind}"))

    def calls(self, kind: str = "start") -> list[Call]:
        """All calls, in the order of arrival."""
        return sorted((Call(*call) for call in self._ask(f"dump {kind}")), key=lambda call: call.at)

    def wait(self, count: int, timeout: float, kind: str = "start", meanwhile: Callable[[], None] | None = None) -> int:
        """Until that many calls have come or the time is over; how many came."""
        end, seen = time.monotonic() + timeout, 0
        while (seen := self.count(kind)) < count and time.monotonic() < end:
            if meanwhile:
                meanwhile()
            time.sleep(0.02)
        return seen

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def _arrival(ancillary: list[tuple[int, int, bytes]]) -> float:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
            seconds, nanos = struct.unpack("qq", data)
            return float(seconds + nanos / 1e9)
    return time.time()


def _serve(sock: socket.socket) -> None:
    calls: list[tuple[float, str, str, str, int]] = []
    watch = selectors.DefaultSelector()
    watch.register(sock, selectors.EVENT_READ)
    watch.register(sys.stdin, selectors.EVENT_READ)
    while True:
        for key, _ in watch.select():
            if key.fileobj is sock:
                _receive(sock, calls)
                continue
            command = sys.stdin.readline().split()
            if not command:
                return
            _receive(sock, calls)
            print(json.dumps(_obey(command, calls)), flush=True)


def _receive(sock: socket.socket, calls: list[tuple[float, str, str, str, int]]) -> None:
    while True:
        try:
            data, ancillary, _, _ = sock.recvmsg(512, _SPACE)
        except BlockingIOError:
            return
        kind, task, what, pid = data.decode().split(" ")
        calls.append((_arrival(ancillary), kind, task, what, int(pid)))


def _obey(command: list[str], calls: list[tuple[float, str, str, str, int]]) -> Any:
    if command[0] == "clear":
        calls.clear()
        return None
    found = [call for call in calls if call[1] == command[1]]
    return len(found) if command[0] == "count" else found


def main() -> None:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 23)
    if sys.platform == "linux":
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    sock.setblocking(False)
    sock.bind(("127.0.0.1", 0))
    print(json.dumps(sock.getsockname()[1]), flush=True)
    _serve(sock)


if __name__ == "__main__":
    main()
