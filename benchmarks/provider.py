"""How a body calls the recorder: one datagram. Needs nothing but Python, so that peers can import it."""

from __future__ import annotations

import os
import socket

_socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
_host, _, _port = os.environ["BENCH_RECORDER"].partition(":")
_address = (_host, int(_port))


def call(kind: str, task: str, what: object) -> None:
    """Tell the provider: `kind` is 'start' or 'end'."""
    _socket.sendto(f"{kind} {task} {what} {os.getpid()}".encode(), _address)
