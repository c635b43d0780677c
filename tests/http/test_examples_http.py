"""The web examples do what their first lines say, over real sockets."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import websockets.exceptions
import websockets.sync.client

from tests.http.servers import balancing, serving
from tests.services import RedisServer

SMS = {"to": "+4955512345", "text": "hello"}


def test_plain_asgi(server: RedisServer) -> None:
    with serving("examples.plain_asgi:app", server) as url:
        answers = [httpx.get(url) for _ in range(12)]
        assert [answer.status_code for answer in answers] == [200] * 10 + [429] * 2
        left = [answer.headers["RateLimit"].split(";")[1] for answer in answers]
        assert left == [f"r={n}" for n in range(9, -1, -1)] + ["r=0"] * 2
        assert answers[-1].headers["Retry-After"] == "6"
        assert httpx.head(url).status_code == 429
        assert [httpx.get(f"{url}/health").status_code for _ in range(3)] == [200] * 3


def test_thirty_requests_through_a_balancer(server: RedisServer) -> None:
    """Limit 10, two server processes: 10."""
    with (
        serving("examples.plain_asgi:app", server) as one,
        serving("examples.plain_asgi:app", server) as two,
        balancing([one, two]) as url,
        ThreadPoolExecutor(10) as threads,
    ):
        answers = list(threads.map(lambda _: httpx.get(url).status_code, range(30)))
    assert (answers.count(200), answers.count(429)) == (10, 20)


def send(url: str, key: str) -> httpx.Response:
    return httpx.post(f"{url}/sms", json=SMS, headers={"X-API-Key": key} if key else {})


def test_fastapi_sms(server: RedisServer) -> None:
    with serving("examples.fastapi_sms:api", server) as url:
        free = [send(url, "free") for _ in range(7)]
        assert [answer.status_code for answer in free] == [202] * 5 + [429] * 2
        starts = [answer.json()["starts_in"] for answer in free[:5]]
        assert starts == pytest.approx([0, 0.5, 1, 1.5, 2], abs=0.3)
        assert free[5].headers["Retry-After"] == "12"
        assert free[5].json()["detail"] == 'Too fast for "free", 5 requests in 60 s. Try again in 12 s.'
        assert "Retry-After" not in free[4].headers
        pro = until_refused(url, "pro")
        assert pro.status_code == 503
        assert 1 <= int(pro.headers["Retry-After"]) <= 3
        assert pro.json()["title"] == "Too much work is waiting"
        assert send(url, "guessed").status_code == 503, "an unknown key is counted by address, as free"
        named = ["address", "pro", "sms 1000/s"]
        assert [name for name in named if name in pro.headers["RateLimit-Policy"]] == named[1:]
        assert httpx.get(f"{url}/health").headers.get("RateLimit") is None
        unreadable = httpx.post(f"{url}/sms", content=b'{"to": \xff}', headers={"Content-Type": "text/plain"})
        assert unreadable.status_code == 422, "FastAPI's own answer would be a 500"


def until_refused(url: str, key: str) -> Any:
    for _ in range(40):
        answer = send(url, key)
        if answer.status_code != 202:
            return answer
    raise AssertionError


def test_who_waits_as_told_is_let_in(server: RedisServer) -> None:
    """The examples' waits are long: a faster limit, closed loop."""
    with serving("tests.http.served:quick", server) as url:
        for _ in range(2):
            while (answer := httpx.get(url)).status_code == 200:
                pass
            time.sleep(int(answer.headers["Retry-After"]))
            assert httpx.get(url).status_code == 200


def test_websockets_over_a_socket(server: RedisServer) -> None:
    with serving("tests.http.served:app", server) as url:
        address = url.replace("http", "ws") + "/ws"
        for left in (2, 1, 0):
            with websockets.sync.client.connect(address) as connection:
                assert connection.response is not None
                assert connection.response.headers["RateLimit"].startswith(f'"/* 3/min";r={left}')
                assert connection.recv() == "hello"
        with pytest.raises(websockets.exceptions.InvalidStatus) as refused:
            websockets.sync.client.connect(address)
        assert refused.value.response.status_code == 429
        assert refused.value.response.headers["Retry-After"] == "20"
        assert b"Rate exceeded" in (refused.value.response.body or b"")
