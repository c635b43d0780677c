"""An SMS provider: takes 10 a second, answers 429 beyond, and notes by its own clock what arrived when.

POST /messages  202 accepted | 429 refused, with Retry-After
GET /arrivals   what arrived so far, as JSON: {"now": s, "arrivals": [[number, s, accepted, s too early], ...]}

It knows nothing of the library: limit and clock are its own, so that it can judge.
"""

from __future__ import annotations

import json
import math
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

RATE = 10  # SMS per second
BURST = 5  # SMS that may come at once after a rest
#: Seconds an SMS may come early, for what starts evenly spaced does not arrive so: 2 ms off on a machine at
#: rest, 15 ms with two processes to each core. It is forgiven, not given: what comes early is taken from the
#: next, so that over any longer time no more than RATE gets through.
JITTER = 0.05


class Gateway:
    """A token bucket, and the record of arrivals."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens, self._then = float(BURST), time.monotonic()
        self._arrivals: list[tuple[str, float, bool, float]] = []

    def receive(self, number: str, at: float) -> float:
        """Note an arrival; returns the seconds by which it came too early, or 0 if it is accepted."""
        with self._lock:
            self._tokens = min(BURST, self._tokens + max(0.0, at - self._then) * RATE)
            self._then = max(at, self._then)
            early = max(0.0, (1 - self._tokens) / RATE)
            accepted = early <= JITTER
            self._tokens -= accepted
            self._arrivals.append((number, at, accepted, early))
        return 0.0 if accepted else early

    def arrivals(self) -> list[tuple[str, float, bool, float]]:
        with self._lock:
            return list(self._arrivals)


class Handler(BaseHTTPRequestHandler):
    """One connection, kept open."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a second small packet waits up to 40 ms for the first one's ACK
    gateway = Gateway()

    def do_POST(self) -> None:
        at = time.monotonic()
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        early = self.gateway.receive(message["to"], at)
        if early:
            self._answer(429, {"error": "too many requests"}, {"Retry-After": str(math.ceil(early))})
        else:
            self._answer(202, {"accepted": message["to"]})

    def do_GET(self) -> None:
        self._answer(200, {"now": time.monotonic(), "arrivals": self.gateway.arrivals()})

    def _answer(self, status: int, what: object, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(what).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """The record of arrivals is the log."""


class Server(ThreadingHTTPServer):
    """Ends without waiting for open connections."""

    daemon_threads = True
    request_queue_size = 128


def main() -> None:
    with Server(("127.0.0.1", 0), Handler) as server:
        print(f"listening on 127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
