"""Client of the SMS provider: one connection per worker process, kept open."""

from __future__ import annotations

import http.client
import json
import os

from celery.signals import worker_process_init

provider = http.client.HTTPConnection(os.environ.get("DEMO_PROVIDER", "127.0.0.1:8025"), timeout=10)


@worker_process_init.connect
def connect(**_: object) -> None:
    """A pool process connects before its first SMS, which would else arrive some ms late."""
    provider.connect()


class Refused(Exception):
    """The provider said 429."""


def send(to: str, text: str) -> None:
    """Send one SMS.

    Raises:
        Refused: the provider takes no more at the moment.
    """
    try:
        provider.request("POST", "/messages", json.dumps({"to": to, "text": text}))
        response = provider.getresponse()
        answer = response.read()
    except (OSError, http.client.HTTPException):
        provider.close()  # the next SMS gets a new connection
        raise
    if response.status == 429:
        raise Refused(f"to {to}: come back in {response.headers['Retry-After']} s")
    if response.status != 202:
        raise RuntimeError(f"the provider answered {response.status}: {answer!r}")
