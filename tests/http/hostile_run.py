"""Sends random requests to one app in this process, as its server would hand them on.

`python -m tests.http.hostile_run APP SEED FIRST COUNT` sends COUNT requests of that seed, from number FIRST on, and
prints what came of them as JSON. Where Redis is, REDIS_URL and CELERY_BROKER_URL say.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, unquote_to_bytes

import redis

from tests.http import asgi_apps, wsgi_calls
from tests.http.hostile import SECRET, Grammar, Sent
from tests.http.hostile_apps import HOSTED

#: As it is, and as Basic authentication has it.
SECRETS = (SECRET, base64.b64encode(f"user:{SECRET}".encode()).decode()[:-1])
#: What has no TTL: queues of the broker, and tasks that wait.
LASTS = re.compile(rb"examples\.|_kombu\.|throttle:\{examples\.\w+\.(send_sms|export)\}:")
LONGEST = 60  # s that any of the limits here may have anybody wait
SLOW = 2.0  # s that no request may take, on a busy machine
Ask = Callable[[Sent], "asgi_apps.Answer | wsgi_calls.Answer"]


def main(name: str, seed: str, first: int, count: int) -> None:
    hosted, said = HOSTED[name], Said()
    logging.getLogger().addHandler(said)
    logging.getLogger().setLevel(logging.DEBUG)
    grammar = Grammar(f"{seed}:{name}", hosted.paths, hosted.bodies, hosted.proxies)
    ask = over_asgi(hosted.load()) if hosted.is_asgi else over_wsgi(hosted.load())
    keys, faults, statuses, slowest = Keys(), [], Counter[int](), 0.0
    for number in range(first, first + count):
        sent, began = grammar.request(number), time.perf_counter()
        try:
            answer = ask(sent)
            fault = wrong_with(answer)
            statuses[answer.status] += 1
        except Exception as error:
            fault = repr(error)
        took = time.perf_counter() - began
        slowest = max(slowest, took)
        fault = fault or said.fault() or (f"took {took:.1f} s" if took > SLOW else "")
        if not number % 200 or number == first + count - 1:
            fault = fault or keys.fault()
        if fault:
            faults.append([number, fault, repr(sent)[:2000]])
    print(json.dumps({"faults": faults[:20], "statuses": statuses, "slowest": slowest, "buckets": keys.most}))


def wrong_with(answer: asgi_apps.Answer | wsgi_calls.Answer) -> str:
    """What no answer may be."""
    names = [name.lower() for name, _ in answer.headers]
    waits = answer.all("Retry-After")
    if answer.status >= 500 and answer.status != 503:
        return f"status {answer.status}"
    if answer.status in (429, 503):
        if len(waits) != 1 or not waits[0].isdecimal() or not 1 <= int(waits[0]) <= LONGEST:
            return f"status {answer.status} with Retry-After {waits}"
        if answer.all("Cache-Control") != ["no-store"]:
            return f"status {answer.status} may be cached"
    elif waits:
        return f"status {answer.status} with Retry-After {waits}"
    if twice := [name for name in set(names) if names.count(name) > 1 and name != "set-cookie"]:
        return f"{twice} more than once"
    if SECRET in str(answer.headers):
        return "a secret was sent back"
    return ""


class Said(logging.Handler):
    """Lines of the log that must not be."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        if any(secret in text for secret in SECRETS) or record.exc_info:
            self.lines.append(text)

    def fault(self) -> str:
        found, self.lines = self.lines, []
        return "logged: " + "\n".join(found)[:2000] if found else ""


class Keys:
    """What Redis holds meanwhile: how many buckets at most, and which keys should not be so."""

    def __init__(self) -> None:
        self._redis, self.most = redis.Redis.from_url(os.environ["REDIS_URL"]), 0

    def fault(self) -> str:
        keys = list(self._redis.scan_iter(count=1000))
        self.most = max(self.most, len([key for key in keys if b":b:" in key]))
        if told := [key for key in keys if any(secret.encode() in key for secret in SECRETS)]:
            return f"a secret is in {told}"
        with self._redis.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.pttl(key)
            lives = pipe.execute()
        # -1: it has none; -2: it is gone by now
        lasting = [key for key, life in zip(keys, lives, strict=True) if life == -1 and not LASTS.match(key)]
        return f"no TTL: {lasting}" if lasting else ""


# -- as servers hand requests on -----------------------------------------------------------------------------


def over_asgi(app: Any) -> Ask:
    loop = asyncio.new_event_loop()

    def ask(sent: Sent) -> asgi_apps.Answer:
        path, _, query = sent.target.partition("?")
        scope = asgi_apps.scope(sent.method, unquote(path), kind="websocket" if sent.is_websocket else "http")
        scope["headers"] = [(name.lower(), value.strip(b" \t")) for name, value in sent.headers]
        scope |= {"raw_path": path.encode(), "query_string": query.encode(), "client": sent.peer and (sent.peer, 4711)}
        return loop.run_until_complete(asgi_apps.call(app, scope, sent.body))

    return ask


def over_wsgi(app: Any) -> Ask:
    def ask(sent: Sent) -> wsgi_calls.Answer:
        path, _, query = sent.target.partition("?")
        headers = [(str(name, "latin-1"), str(value.strip(b" \t"), "latin-1")) for name, value in sent.headers]
        types = [value for name, value in headers if name == "Content-Type"]
        env = wsgi_calls.environ(sent.method, "/", [pair for pair in headers if pair[0] != "Content-Type"], sent.body)
        env |= {"PATH_INFO": unquote_to_bytes(path).decode("latin-1"), "QUERY_STRING": query, "RAW_URI": sent.target}
        env |= {"REMOTE_ADDR": sent.peer or "", "CONTENT_TYPE": (types or [""])[-1]}
        if len(sent.body) % 50 == 7:  # more was announced than came
            env |= {"CONTENT_LENGTH": str(len(sent.body) + 9), "wsgi.input": io.BytesIO(sent.body)}
        return wsgi_calls.call(app, valid=False, env=env)

    return ask


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
