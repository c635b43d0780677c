"""B71 and rule 4: the message that runs is the message that was sent, through submit and through the gate."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from celery import signature
from kombu import Connection, Queue

from tests.fleet import Fleet
from throttle.envelope import HEADER, Envelope
from throttle.publisher import CeleryPublisher
from throttle.testing import unthrottled

#: Set by a transport for each delivery, not by the sender.
PER_DELIVERY = ("delivery_tag", "consumer_tag", "redelivered")
FORMATS = [
    ("json", None), ("pickle", None), ("yaml", None), ("msgpack", None), ("json", "gzip"), ("pickle", "bzip2"),
    ("sealed", None),
]  # fmt: skip


def plainly(one: Any) -> dict[str, Any]:
    """A signature as every serializer can write it."""
    found: dict[str, Any] = json.loads(json.dumps(one))
    return found


def options(serializer: str, compression: str | None) -> dict[str, Any]:
    """Every option that `apply_async` takes and a message carries."""
    return {
        "task_id": f"id-{serializer}-{compression}",
        "serializer": serializer,
        "compression": compression,
        "priority": 3,
        "expires": datetime.now(timezone.utc) + timedelta(hours=1),
        "link": plainly(signature("plain", ("linked",))),
        "link_error": plainly(signature("on_error")),
        "headers": {"traceparent": "00-1", "x-list": [1, 2], "x-none": None, "x-é": "日本"},
        "shadow": "another-name",
        "time_limit": 50,
        "soft_time_limit": 40,
        "retries": 2,
        "root_id": "root",
        "parent_id": "parent",
        "group_id": "group",
        "group_index": 7,
        "chord": plainly(signature("total")),
        "chain": [plainly(signature("plain", (1,))), plainly(signature("plain", (2,)))],
        "reply_to": "reply-queue",
        "correlation_id": "correlation",
        "argsrepr": "(secret)",
        "kwargsrepr": "{secret}",
        "ignore_result": True,
        "replaced_task_nesting": 1,
        "stamped_headers": ["stamp"],
        "stamp": "value",
        "delivery_mode": 1,
        "origin": "somewhere",
    }


def captured(url: str, queue: str, count: int) -> dict[str, dict[str, Any]]:
    """Messages of a queue as a consumer gets them, taken out; by task id."""
    found: dict[str, dict[str, Any]] = {}

    def receive(body: Any, message: Any) -> None:
        headers = {name: value for name, value in message.headers.items() if name not in PER_DELIVERY}
        properties = {name: value for name, value in message.properties.items() if name not in PER_DELIVERY}
        properties.pop("application_headers", None)  # amqp: the headers, again
        properties.pop("delivery_info", None)
        info = {name: value for name, value in message.delivery_info.items() if name not in PER_DELIVERY}
        found[headers["id"]] = {
            "body": bytes(message.body) if not isinstance(message.body, str) else message.body.encode(),
            "type": (message.content_type, message.content_encoding),
            "headers": headers,
            "properties": properties,
            "info": info,
        }
        message.ack()

    accept = ["json", "pickle", "yaml", "msgpack", "sealed"]
    with (
        Connection(url) as connection,
        connection.Consumer(Queue(queue), callbacks=[receive], accept=accept) as consumer,
    ):
        consumer.on_message = lambda message: receive(None, message)
        while len(found) < count:
            connection.drain_events(timeout=10)
    return found


def without_ours(messages: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The messages less our one header, which each of them must have."""
    for message in messages.values():
        assert message["headers"].pop(HEADER).count(" ") == 3
    return messages


def release_all(project: Any, count: int) -> None:
    """Publish what is parked, as a worker's scheduler would."""
    publisher = CeleryPublisher(project.app)
    backlog = project.send.throttle.backlog
    done = 0
    while done < count:
        for task in backlog.release()[2]:
            publisher.publish(Envelope.load(task.message), task)
            done += 1
    publisher.close()


def send_all(project: Any, queue: str, sending: Callable[..., Any]) -> None:
    for serializer, compression in FORMATS:
        args = (f"{serializer}-{compression}", {"n": [1, 2.5, None, "é"]})
        kwargs = {"when": "now", "data": b"\x00\xff" if serializer in ("pickle", "msgpack", "yaml") else "text"}
        sending(args, kwargs, queue=queue, **options(serializer, compression))


@pytest.fixture(params=["redis", "rabbitmq"])
def some_fleet(request: pytest.FixtureRequest, fleet_of: Callable[..., Fleet]) -> Fleet:
    broker = request.getfixturevalue("rabbitmq").url() if request.param == "rabbitmq" else ""
    return fleet_of(broker=broker, PROJECT_RATE="100000/s", PROJECT_BURST="9", PROJECT_QUEUE=request.node.name[:40])


def plain_messages(fleet: Fleet, queue: str) -> dict[str, dict[str, Any]]:
    """What Celery sends without us."""
    project = fleet.project
    with unthrottled(project.app):
        send_all(project, queue, project.send.apply_async)
    return captured(fleet.env["PROJECT_BROKER"], queue, len(FORMATS))


def same(first: dict[str, Any], second: dict[str, Any]) -> None:
    for name in first:
        one, other = dict(first[name]["headers"]), dict(second[name]["headers"])
        assert one.pop("expires")[:16] == other.pop("expires")[:16]  # made anew by each apply_async
        if "expiration" in first[name]["properties"]:
            first[name]["properties"]["expiration"] = second[name]["properties"]["expiration"]
        assert one == other
        if name.startswith("id-sealed"):  # sealed anew by each apply_async; a worker refuses a broken seal
            for message in (first[name], second[name]):
                message["body"] = message["body"][message["body"].index(b"[") :]
        for part in ("body", "type", "properties", "info"):
            assert first[name][part] == second[name][part], (name, part)


def test_b71_through_submit(some_fleet: Fleet) -> None:
    project, url, queue = some_fleet.project, some_fleet.env["PROJECT_BROKER"], some_fleet.env["PROJECT_QUEUE"]
    expected = plain_messages(some_fleet, queue)
    send_all(project, queue, project.send.apply_async)  # its turn is now: published with our header
    at_once = captured(url, queue, len(FORMATS))
    same(expected, without_ours(at_once))
    project.send.throttle.set_rate(0)
    send_all(project, queue, project.send.apply_async)
    assert project.send.throttle.depth() == len(FORMATS)
    project.send.throttle.reset_rate()
    release_all(project, len(FORMATS))
    same(expected, without_ours(captured(url, queue, len(FORMATS))))


def test_b71_through_the_gate(some_fleet: Fleet) -> None:
    """A worker that lacks us as a producer: first delivery, park, second delivery."""
    project, url, queue = some_fleet.project, some_fleet.env["PROJECT_BROKER"], some_fleet.env["PROJECT_QUEUE"]
    expected = plain_messages(some_fleet, queue)
    project.send.throttle.set_rate(0)
    with unthrottled(project.app):
        send_all(project, queue, project.send.apply_async)
    worker = some_fleet.worker()
    some_fleet.until(
        lambda: project.send.throttle.depth() == len(FORMATS), 10, "all parked", project.send.throttle.depth
    )
    some_fleet.kill(worker)
    project.send.throttle.reset_rate()
    release_all(project, len(FORMATS))
    same(expected, without_ours(captured(url, queue, len(FORMATS))))


def test_b71_released_copies_do_not_differ(some_fleet: Fleet) -> None:
    """Parked, released, delivered, redelivered, parked again: nothing piles up in the message."""
    project, url, queue = some_fleet.project, some_fleet.env["PROJECT_BROKER"], some_fleet.env["PROJECT_QUEUE"]
    backlog = project.send.throttle.backlog
    project.send.throttle.set_rate(0)
    send_all(project, queue, project.send.apply_async)
    project.send.throttle.reset_rate()
    release_all(project, len(FORMATS))
    first = captured(url, queue, len(FORMATS))
    backlog.recover(list(first))
    release_all(project, len(FORMATS))
    second = captured(url, queue, len(FORMATS))
    tickets = [{m["headers"][HEADER] for m in messages.values()} for messages in (first, second)]
    assert tickets[0].isdisjoint(tickets[1])
    assert without_ours(first) == without_ours(second)


def test_each_format_runs(some_fleet: Fleet) -> None:
    """And Celery still understands it, from both paths."""
    project = some_fleet.project
    some_fleet.worker()
    project.send.throttle.set_rate(0)
    for serializer, compression in FORMATS:
        for sending in (project.send.apply_async, lambda *a, **k: project.app.send_task("send", *a, **k)):
            sending((f"{serializer}-{compression}",), serializer=serializer, compression=compression)
    some_fleet.until(lambda: project.send.throttle.depth() == 2 * len(FORMATS), 10, "all parked")
    project.send.throttle.reset_rate()
    starts = some_fleet.started(2 * len(FORMATS))
    assert sorted(start.what for start in starts) == sorted(2 * [f"{s}-{c}" for s, c in FORMATS])


def test_protocol_1(fleet_of: Callable[..., Fleet]) -> None:
    """Messages of old producers keep all in the body; they are limited too, and run once."""
    fleet = fleet_of(PROJECT_CONF=json.dumps({"task_protocol": 1}), PROJECT_RATE="20/s", PROJECT_LEASE="1")
    fleet.worker()
    for n in range(10):
        fleet.project.send.delay(n)
        fleet.project.app.send_task("send", (100 + n,))
    fleet.started(20)
    fleet.until(lambda: fleet.project.send.throttle.backlog.flying() == 0, 5, "empty flight")
    assert sorted(int(start.what) for start in fleet.record()) == [*range(10), *range(100, 110)]
