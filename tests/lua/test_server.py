"""Many callers at once, and servers that forget, refuse and fail; B01, B02, B17, B19, B37, B38."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from redis.exceptions import ResponseError

from tests.services import RedisServer
from tests.simulation import entry
from throttle import Limiter, StoreUnavailable, ThrottleError, TokenBucket
from throttle.backlog import Backlog
from throttle.scripts import script
from throttle.store import Store, translate

Make = Callable[..., Backlog]


def _hammer(url: str, hours_off: int, limit: TokenBucket, seconds: float, admitted: Any, threads: int) -> None:
    real = time.time
    time.time = lambda: real() + 3600 * hours_off  # type: ignore[assignment]
    limiter, end = Limiter(url, "fleet", timeout=5), time.monotonic() + seconds

    def loop() -> None:
        while time.monotonic() < end:
            said = limiter.acquire(limit)
            if said:
                with admitted.get_lock():
                    admitted.value += 1
            else:
                time.sleep(min(0.02, said.retry_after))

    workers = [threading.Thread(target=loop) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def test_b01_b17_one_limit_for_the_whole_fleet_whatever_their_clocks(server: RedisServer) -> None:
    context = multiprocessing.get_context("spawn")
    admitted, seconds, limit = context.Value("i", 0), 2.0, TokenBucket("40/s", 20)
    began = time.monotonic()
    fleet = [
        context.Process(target=_hammer, args=(server.url(), hours, limit, seconds, admitted, 4))
        for hours in (0, 1, -1, 0)
    ]
    for process in fleet:
        process.start()
    for process in fleet:
        process.join()
    assert [process.exitcode for process in fleet] == [0] * 4
    assert 20 + 40 * seconds * 0.95 <= admitted.value <= 20 + 40 * (time.monotonic() - began)


def test_b02_of_forty_at_once_exactly_ten_pass(server: RedisServer) -> None:
    limit = TokenBucket("10/60s", 10)
    limiters = [Limiter(server.url(), "race", timeout=10) for _ in range(40)]
    for trial in range(10):
        barrier, passed = threading.Barrier(40), []

        def ask(limiter: Limiter, key: int = trial, barrier: Any = barrier, passed: Any = passed) -> None:
            barrier.wait()
            passed.append(bool(limiter.acquire(limit, key=key)))

        threads = [threading.Thread(target=ask, args=(limiter,)) for limiter in limiters]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert passed.count(True) == 10
        assert len(passed) == 40


def test_b37_a_forgotten_script_is_loaded_again(any_server: RedisServer, backlog: Make) -> None:
    limiter, limit = Limiter(any_server.url(), "forgets", timeout=5), TokenBucket("100/h", 100)
    said = []
    for _ in range(5):
        any_server.client().script_flush()
        said.append(limiter.acquire(limit).remaining)
    assert said == [99, 98, 97, 96, 95], "nothing is taken twice"


def test_b37_also_in_pipelines(any_server: RedisServer, backlog: Make, clock: Any) -> None:
    made = backlog(TokenBucket("10/s"))
    for n in range(5):
        made.submit(entry(n))
    published: list[Any] = []
    for n in range(1, 5):
        clock.advance(0.1)
        any_server.client().script_flush()
        published = made.release(published=published).due
        assert [task.id for task in published] == [str(n)]
    assert made.flying() == 5


def test_b37_while_fifty_threads_ask(server: RedisServer) -> None:
    limit, errors, admitted = TokenBucket("100/s", 50), [], []
    stop = threading.Event()

    def ask() -> None:
        limiter = Limiter(server.url(), "storm", timeout=10)
        while not stop.is_set():
            try:
                if limiter.acquire(limit):
                    admitted.append(1)
            except Exception as exc:
                errors.append(exc)

    threads = [threading.Thread(target=ask) for _ in range(50)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for _ in range(50):
        server.client().script_flush()
        time.sleep(0.02)
    stop.set()
    for thread in threads:
        thread.join()
    took = time.monotonic() - began
    assert errors == []
    assert 50 + 100 * 0.9 <= len(admitted) <= 50 + 100 * took + 1


def test_a_restarted_server_is_a_new_one(own_server: RedisServer) -> None:
    limiter, limit = Limiter(own_server.url(), "restart", on_store_error="closed"), TokenBucket("10/h", 10)
    assert limiter.acquire(limit, cost=10)
    own_server.stop()
    with pytest.raises(StoreUnavailable):
        limiter.acquire(limit)
    own_server.start()
    assert limiter.acquire(limit, cost=10).remaining == 0, "state that was lost is a full bucket"
    assert not limiter.acquire(limit)


@pytest.mark.parametrize(
    "text",
    ["READONLY You can't write. script: x, on @user_script:7.", "Error running script: @user_script: 7: -READONLY x",
     "LOADING Redis is", "MASTERDOWN x", "CLUSTERDOWN x", "OOM command not allowed, on @user_script:1.", "TRYAGAIN x",
     "MISCONF x, on @user_script:1.", "NOREPLICAS x, on @user_script:1."],
)  # fmt: skip
def test_b38_a_server_that_cannot_serve_is_an_outage(text: str, caplog: pytest.LogCaptureFixture) -> None:
    error = translate(ResponseError(text))
    assert isinstance(error, StoreUnavailable)
    assert text in str(error)
    assert "bug" not in caplog.text


@pytest.mark.parametrize("error", [redis.exceptions.ConnectionError("x"), redis.exceptions.TimeoutError("x")])
def test_b38_no_answer_is_an_outage(error: redis.exceptions.RedisError) -> None:
    assert isinstance(translate(error), StoreUnavailable)


def test_a_script_that_fails_is_told_as_a_bug(any_server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    limiter = Limiter(Store(any_server.client()), "broken", on_store_error="closed")
    any_server.client().lpush(limiter._scope.keys([TokenBucket("1/s")], None)[0], "not a string")
    with pytest.raises(StoreUnavailable, match=r"WRONGTYPE|wrong kind"):
        limiter.acquire(TokenBucket("1/s"))
    assert "bug of celery-throttled" in caplog.text


class Old(redis.Redis):
    """A server that does not let scripts write once they have read the time."""

    calls = 0

    def execute_command(self, *args: Any, **options: Any) -> Any:
        type(self).calls += 1
        raise ResponseError("Write commands not allowed after non deterministic commands")


def test_b19_a_server_too_old_is_told_so_once() -> None:
    with pytest.raises(ThrottleError, match=r"version 6\.2 or later"):
        Limiter(Old(), "old").acquire(TokenBucket("1/s"))
    assert Old.calls == 1


@pytest.fixture
def replica(any_server: RedisServer) -> Iterator[RedisServer]:
    client = any_server.client()
    client.replicaof("127.0.0.1", 1)
    yield any_server
    client.replicaof("NO", "ONE")


def test_b38_a_demoted_master_is_an_outage(replica: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(StoreUnavailable, match=r"read only replica"):
        Limiter(replica.url(), "demoted", timeout=5, on_store_error="closed").acquire(TokenBucket("1/s"))
    assert "bug" not in caplog.text


def test_the_lead_is_one_s_until_it_ends(any_server: RedisServer) -> None:
    def ask(who: str, mode: str = "take", lease: int = 10_000) -> tuple[bool, int]:
        leads, left = script("lead")(any_server.client(), ["lead"], [who, lease, mode])
        return leads == 1, left

    assert ask("a") == (True, 10_000)
    leads, left = ask("b")
    assert (leads, 9_000 < left <= 10_000) == (False, True)
    assert ask("b", "resign") == (False, 0)
    assert ask("a", lease=20_000) == (True, 20_000)
    assert ask("a", "resign") == (False, 0)
    assert ask("b") == (True, 10_000)
    assert 0 < any_server.client().pttl("lead") <= 10_000


def test_five_schedulers_release_each_task_once(backlog: Make, clock: Any, any_server: RedisServer) -> None:
    """B61: a claim is atomic; nobody has to lead for that."""
    made = backlog(TokenBucket("1000000/s", 10**6))
    wide = type("Wide", (Backlog,), {"window": 10**6})(made.store, "many", made.limits)
    wide.declare(replace=True)
    wide.set_rate(TokenBucket(0))
    for n in range(2000):
        wide.submit(entry(n))
    wide.reset_rate()
    clock.advance(10)
    taken: list[str] = []

    def run() -> None:
        mine = type("Wide", (Backlog,), {"window": 10**6})(Store(any_server.client(), now=clock), "many", made.limits)
        for _ in range(30):
            taken.extend(task.id for task in mine.release(batch=37, recover=False).due)

    threads = [threading.Thread(target=run) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken, key=int) == [str(n) for n in range(2000)]


def test_any_clock_of_the_client_gives_the_same_answer(any_server: RedisServer, monkeypatch: Any) -> None:
    """B17, B20: the only clock is Redis's."""
    limiter, limit = Limiter(any_server.client(), "clocks"), TokenBucket("1/h")
    assert limiter.acquire(limit)
    waits = []
    real = time.time
    for hours in (0, 1, -1):
        monkeypatch.setattr(time, "time", lambda hours=hours: real() + 3600 * hours)
        waits.append(limiter.acquire(limit).retry_after)
    assert max(waits) - min(waits) < 1
    assert 3590 < min(waits) <= 3600


def test_without_a_test_clock_redis_is_asked(any_server: RedisServer) -> None:
    limiter = Limiter(Store(any_server.client()), "real")
    said = [limiter.acquire(TokenBucket("100/h", 100)) for _ in range(3)]
    assert [answer.remaining for answer in said] == [99, 98, 97]
