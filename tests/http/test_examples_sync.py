"""The examples of Flask and Django do what their first lines say; limits hold across processes. Over real sockets."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.http.servers import balancing, running, serving
from tests.services import RedisServer


def test_flask_login(server: RedisServer) -> None:
    def attempt(user: str, password: str = "x") -> httpx.Response:
        return httpx.post(f"{url}/login", data={"user": user, "password": password})

    with running(server, "examples.flask_login") as url:
        answers = [attempt(user) for user in ("ann", "Ann ", "ann", "ANN", "ann", "ann", "ann")]
        assert [answer.status_code for answer in answers] == [401] * 5 + [429] * 2
        assert answers[5].headers["Retry-After"] == "12"
        assert answers[5].json()["detail"].startswith('Too fast for "user name", 5 requests in 60 s. Try again in 12 s')
        assert not [answer for answer in answers[:5] if "Retry-After" in answer.headers]
        assert [attempt(f"user{number}").status_code for number in range(6)] == [401] * 5 + [429], "ten per address"
    with running(server, "examples.flask_login") as url:
        assert attempt("ann").status_code == 429, "the count is in Redis"
    server.client(7).flushdb()
    with running(server, "examples.flask_login") as url:
        assert attempt("ann", "correct horse battery staple").json() == {"hello": "ann"}


def test_django_export(server: RedisServer) -> None:
    with running(server, "examples.django_export") as url:
        answers = [httpx.post(f"{url}/export/acme/") for _ in range(5)]
        assert [answer.status_code for answer in answers] == [202] * 4 + [503]
        starts = [answer.json()["starts_in"] for answer in answers[:4]]
        assert starts == pytest.approx([0, 10, 20, 30], abs=1)
        assert 4 <= int(answers[4].headers["Retry-After"]) <= 5
        assert answers[4].json()["title"] == "Too much work is waiting"
        assert httpx.post(f"{url}/export/tiny/").json()["starts_in"] == 0
        assert "Retry-After" not in answers[3].headers
        assert httpx.get(f"{url}/health/").status_code == 200
        assert server.client(7).llen("examples.django_export") == 2, "what waits is not in the queue yet"


def waiting(server: RedisServer) -> list[object]:
    """What the backlog of the example holds."""
    client = server.client(7)
    names = [f"throttle:{{examples.django_export.export}}:{part}" for part in ("line", "messages", "waiting")]
    line, messages, waits = names
    return [client.zrange(line, 0, -1), client.hgetall(messages), client.zrange(waits, 0, -1, withscores=True)]


def test_b109_what_is_refused_does_not_wait_and_moves_nothing(server: RedisServer) -> None:
    with running(server, "examples.django_export") as url:
        for _ in range(4):
            httpx.post(f"{url}/export/acme/")
        before = waiting(server)
        assert all(before)
        assert [httpx.post(f"{url}/export/acme/").status_code for _ in range(3)] == [503] * 3
        assert waiting(server) == before


@pytest.mark.parametrize("kind", ["wsgi", "flask", "django", "asgi"])
def test_thirty_requests_through_a_balancer(server: RedisServer, kind: str) -> None:
    """Limit 10, two server processes: 10."""

    def one() -> contextlib.AbstractContextManager[str]:
        if kind == "asgi":
            return serving("tests.http.served_django:app", server)
        return running(server, "tests.http.served_sync", kind)

    with one() as first, one() as second, balancing([first, second]) as url, ThreadPoolExecutor(10) as threads:
        server.client(6).flushall()  # uvicorn is asked for /health, which is not Django's way to write it
        answers = list(threads.map(lambda _: httpx.get(url + "/", timeout=30).status_code, range(30)))
    assert (answers.count(200), answers.count(429)) == (10, 20)
