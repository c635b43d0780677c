"""The circuit breaker, by a clock that the test sets."""

from __future__ import annotations

import threading

from throttle.breaker import Breaker


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_it_opens_after_failures_in_a_row_and_lets_one_a_second_try() -> None:
    clock = Clock()
    breaker = Breaker(3, 1.0, clock)
    breaker.failure()
    breaker.failure()
    breaker.success()
    for _ in range(3):
        assert breaker.admits()
        assert not breaker.open
        breaker.failure()
    assert breaker.open
    assert not breaker.admits()
    clock.now += 0.999
    assert not breaker.admits()
    clock.now += 0.001
    assert [breaker.admits() for _ in range(5)] == [True] + [False] * 4
    breaker.failure()
    clock.now += 1
    assert breaker.admits()
    assert breaker.success(), "it was open"
    assert all(breaker.admits() for _ in range(5))
    assert not breaker.success()


def test_of_many_threads_one_tries() -> None:
    clock = Clock()
    breaker = Breaker(1, 1.0, clock)
    breaker.failure()
    clock.now += 1
    barrier, admitted = threading.Barrier(16), []

    def ask() -> None:
        barrier.wait()
        admitted.append(breaker.admits())

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert admitted.count(True) == 1


def test_a_late_success_closes_it_and_a_probe_that_never_returns_does_not_block_the_next() -> None:
    clock = Clock()
    breaker = Breaker(1, 1.0, clock)
    breaker.failure()
    clock.now += 1
    assert breaker.admits()
    clock.now += 1
    assert breaker.admits()
    breaker.success()
    assert breaker.admits()
