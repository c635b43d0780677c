"""Queue smoothing: any kombu queue in, another out, at the limits' pace, messages untouched."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kombu import Connection, Consumer, Producer, Queue

from tests.fleet import ROOT
from tests.services import RabbitMQ, RedisServer
from throttle import ThrottleError, TokenBucket
from throttle.smoother import Smoother
from throttle.testing import excess

Start = Callable[..., Smoother]


@pytest.fixture(params=["redis", "rabbitmq"])
def broker(request: pytest.FixtureRequest, server: RedisServer) -> str:
    if request.param == "redis":
        return server.url(4)
    url: str = request.getfixturevalue("rabbitmq").url()
    with Connection(url) as connection:
        for name in ("in", "out"):
            Queue(name, routing_key=name)(connection.default_channel).declare()
            connection.default_channel.queue_purge(name)
    return url


@pytest.fixture
def smooth(server: RedisServer) -> Iterator[Start]:
    """Starts a smoother in a thread; ends it with the test."""
    running = []

    def start(broker: str, *limits: TokenBucket) -> Smoother:
        smoother, ready = Smoother(broker, "in", "out", *limits, redis=server.url(0)), threading.Event()
        thread = threading.Thread(target=smoother.run, args=(ready.set,))
        thread.start()
        running.append((smoother, thread))
        assert ready.wait(10)
        return smoother

    yield start
    for smoother, thread in running:
        smoother.stop()
        thread.join(10)
        assert not thread.is_alive()


def publish(broker: str, count: int, **options: Any) -> None:
    with Connection(broker) as connection:
        producer = Producer(connection.default_channel)
        queue = Queue("in", routing_key="in")
        for n in range(count):
            producer.publish(
                {"n": n}, exchange="", routing_key="in", declare=[queue], serializer="json", headers={"n": n}, **options
            )


class Downstream:
    """Consumes what comes out, and notes when, by this process's clock."""

    def __init__(self, broker: str) -> None:
        self.got: list[tuple[float, Any]] = []
        self._broker, self._stop, ready = broker, threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._consume, args=(ready,))
        self._thread.start()
        assert ready.wait(10)

    def _consume(self, ready: threading.Event) -> None:
        with Connection(self._broker) as connection:
            queue = Queue("out", routing_key="out")
            with Consumer(connection.default_channel, [queue], on_message=self._note):
                ready.set()
                while not self._stop.is_set():
                    try:
                        connection.drain_events(timeout=0.5)
                    except TimeoutError:
                        continue

    def _note(self, message: Any) -> None:
        self.got.append((time.time(), message))
        message.ack()

    def wait(self, count: int, timeout: float = 20) -> list[tuple[float, Any]]:
        end = time.monotonic() + timeout
        while len(self.got) < count and time.monotonic() < end:
            time.sleep(0.02)
        return list(self.got)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(10)


@pytest.fixture
def downstream(broker: str) -> Iterator[Downstream]:
    consumer = Downstream(broker)
    yield consumer
    consumer.stop()


def test_messages_leave_in_order_at_the_pace(broker: str, smooth: Start, downstream: Downstream) -> None:
    smoother = smooth(broker, TokenBucket("50/s"))
    publish(broker, 60)
    got = downstream.wait(60)
    assert [message.headers["n"] for _, message in got] == list(range(60))
    assert excess([at for at, _ in got], TokenBucket("50/s"), tolerance=0.05) == 0
    assert smoother.depth() == 0


def test_messages_are_untouched(broker: str, smooth: Start, downstream: Downstream) -> None:
    smooth(broker, TokenBucket("100/s"))
    publish(broker, 1, compression="gzip", correlation_id="c", reply_to="r", priority=3)
    ((_, message),) = downstream.wait(1)
    assert message.payload == {"n": 0}
    assert {k: v for k, v in message.headers.items() if k != "compression"} == {"n": 0}
    kept = ("correlation_id", "reply_to", "priority")
    assert {name: message.properties[name] for name in kept} == {"correlation_id": "c", "reply_to": "r", "priority": 3}
    assert message.content_type == "application/json"


def test_several_limits_and_a_key_of_the_message(broker: str, smooth: Start, downstream: Downstream) -> None:
    smooth(broker, TokenBucket("10/s", key=lambda message: message.headers["n"] % 2), TokenBucket("100/s"))
    publish(broker, 20)
    got = downstream.wait(20)
    for parity in (0, 1):
        arrivals = [at for at, message in got if message.headers["n"] % 2 == parity]
        assert len(arrivals) == 10
        assert excess(arrivals, TokenBucket("10/s"), tolerance=0.05) == 0


def test_what_waits_outlives_the_smoother(
    broker: str, smooth: Start, server: RedisServer, downstream: Downstream
) -> None:
    """Acknowledged only once parked: a process that is killed loses nothing."""
    command = [sys.executable, "-m", "workers.smoother", broker, "in", "out", "2/s", "--redis", server.url(0)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert any("smoothing in to out" in line for line in process.stderr or ())
    publish(broker, 10)
    downstream.wait(2)
    process.kill()
    process.wait()
    smooth(broker, TokenBucket("100/s"))
    downstream.wait(12, timeout=10)  # two may come twice: published, and killed before the next look
    assert {message.headers["n"] for _, message in downstream.got} == set(range(10))


def test_what_makes_no_sense_is_refused(rabbitmq: RabbitMQ) -> None:
    with pytest.raises(ThrottleError, match="needs a limit"):
        Smoother("redis://localhost", "in", "out")
    with pytest.raises(ThrottleError, match="callable given the message"):
        Smoother("redis://localhost", "in", "out", TokenBucket("1/s", key="{tenant}"))
    with pytest.raises(ThrottleError, match="redis="):
        Smoother(rabbitmq.url(), "in", "out", TokenBucket("1/s"))
