"""100,000 requests as nobody sends them by mistake, to the web examples: never an error, and keys are bounded.

THROTTLE_SEED=… repeats a run; THROTTLE_REQUESTS=… makes it longer or shorter. One request alone:
`REDIS_URL=… CELERY_BROKER_URL=… python -m tests.http.hostile_run APP SEED NUMBER 1`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from random import Random, SystemRandom
from typing import Any

import httpx
import pytest

from tests.fleet import ROOT
from tests.http.hostile import CALLERS, PROXIES, Grammar, damaged
from tests.http.hostile_apps import HOSTED
from tests.http.hostile_run import SECRETS
from tests.http.servers import running, serving
from tests.services import RedisServer

SEED = os.environ.get("THROTTLE_SEED") or str(SystemRandom().randrange(10**6))
COUNT = int(os.environ.get("THROTTLE_REQUESTS", "100000"))

#: Of 100 requests; the slowest first.
SHARES = {
    "every_view": 6, "everything_wsgi": 10, "everything_asgi": 10, "fastapi_sms": 20, "django_export": 17,
    "flask_login": 17, "plain_asgi": 20,
}  # fmt: skip

#: Who may ask: peers, and what proxies say of theirs; API keys, tokens and sessions that are known.
_SEEN = CALLERS + len(PROXIES)
_KEYS, _TOKENS = 60 + 2, 60
_ROUTES = 9

#: Buckets at most, whatever is sent and however much of it: one for each limit and each caller that it counts apart.
BUCKETS = {
    "plain_asgi": CALLERS,
    "fastapi_sms": 3 * CALLERS + 3,  # two for each address, one for the plan of those without a key; two keys; all
    "django_export": CALLERS,
    "flask_login": CALLERS,  # and one for each name that was let try: see below
    "everything_asgi": 3 * _SEEN + 5 * (_SEEN + _KEYS) + 2 * _SEEN + _TOKENS + _KEYS + 2 * _ROUTES + 6,
    "everything_wsgi": 3 * _SEEN + 5 * (_SEEN + _KEYS) + 2 * _SEEN + _TOKENS + _KEYS + 2 * _ROUTES + 6,
    "every_view": CALLERS * (1 + 9 + 1 + 18),
}


def ask(app: str, server: RedisServer, db: int, count: int) -> dict[str, Any]:
    env = {**os.environ, "REDIS_URL": server.url(db), "CELERY_BROKER_URL": server.url(db)}
    command = [sys.executable, "-m", "tests.http.hostile_run", app, SEED, "0", str(count)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, f"{app}, seed {SEED}: {done.stderr[-3000:]}"
    return {"app": app, "said": done.stderr, **json.loads(done.stdout)}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_whatever_is_sent(server: RedisServer) -> None:
    print(f"THROTTLE_SEED={SEED}")
    began = time.monotonic()
    with ThreadPoolExecutor(2) as threads:
        asked = [
            threads.submit(ask, app, server, 8 + n, COUNT * share // 100)
            for n, (app, share) in enumerate(SHARES.items())
        ]
        outcomes = [one.result() for one in asked]
    total = 0
    for outcome in outcomes:
        app, statuses = outcome["app"], outcome["statuses"]
        total += sum(statuses.values())
        print(f"{app}: {statuses}, {outcome['buckets']} buckets, slowest {outcome['slowest']:.3f} s")
        assert outcome["faults"] == [], f"{app}, THROTTLE_SEED={SEED}"
        assert "Traceback" not in outcome["said"], f"{app}, THROTTLE_SEED={SEED}"
        names = statuses.get("401", 0) + statuses.get("200", 0) if app == "flask_login" else 0
        assert outcome["buckets"] <= BUCKETS[app] + names, f"{app}, THROTTLE_SEED={SEED}"
    print(f"{total} requests in {time.monotonic() - began:.1f} s")
    assert total == sum(COUNT * share // 100 for share in SHARES.values())


# -- over sockets --------------------------------------------------------------------------------------------


async def over_a_socket(port: int, raw: bytes, at_once: bool) -> list[int]:
    """The statuses of what a server answers; none if it has nothing to say to that, or waits for more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    said = b""
    with contextlib.suppress(OSError, asyncio.TimeoutError):
        writer.write(raw)
        if not at_once:
            writer.write_eof()
        said = await asyncio.wait_for(reader.read(2**20), 0.5 if at_once else 10)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return [int(status) for status in re.findall(rb"^HTTP/1\.[01] (\d{3})", said, re.MULTILINE)]


async def all_over_sockets(app: str, port: int, count: int) -> Counter[int]:
    hosted, statuses = HOSTED[app], Counter[int]()
    turns = asyncio.Semaphore(20 if hosted.is_asgi else 1)  # wsgiref serves one after another, and waits for each
    grammar = Grammar(f"{SEED}:raw:{app}", hosted.paths, hosted.bodies)

    async def one(number: int) -> None:
        sent, rng = grammar.request(number), Random(f"{SEED}:{app}:{number}")
        if sent.method == "CONNECT":  # the smallest of apps says hello to that too, which uvicorn cannot send
            return
        sent.headers += [(b"Host", b"localhost"), (b"Connection", b"close")]
        if sent.body:
            sent.headers.append((b"Content-Length", str(len(sent.body)).encode()))
        async with turns:
            raw = damaged(rng, sent.raw) if rng.random() < 0.5 else sent.raw
            found = await over_a_socket(port, raw, hosted.is_asgi)
        assert 500 not in found, f"{app}, THROTTLE_SEED={SEED}, number {number}: {raw!r}"
        statuses.update(found)

    await asyncio.gather(*(one(number) for number in range(count)))
    return statuses


@pytest.mark.parametrize("app", ["fastapi_sms", "plain_asgi", "flask_login", "django_export"])
def test_whatever_is_sent_over_a_socket(server: RedisServer, app: str) -> None:
    print(f"THROTTLE_SEED={SEED}")
    name = {"fastapi_sms": "examples.fastapi_sms:api", "plain_asgi": "examples.plain_asgi:app"}.get(app)
    began = time.monotonic()
    # uvicorn itself believes what 127.0.0.1 says of others
    with serving(name, server, "--no-proxy-headers", db=7) if name else running(server, f"examples.{app}") as url:
        statuses = asyncio.run(all_over_sockets(app, int(url.rpartition(":")[2]), COUNT // 100))
        print(f"{app}: {dict(statuses)} in {time.monotonic() - began:.1f} s")
        assert httpx.get(f"{url}/health/", follow_redirects=True).status_code in (200, 404)
    keys = list(server.client(7).scan_iter())
    assert len([key for key in keys if b":b:" in key]) <= 10, keys  # all of it came from one address
    assert not [key for key in keys if any(secret.encode() in key for secret in SECRETS)]
