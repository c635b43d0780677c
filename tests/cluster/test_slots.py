"""Who has which slot: what nodes say of it, in all the forms that they say it in."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import AskError, ClusterDownError, MovedError, ResponseError, TryAgainError

from throttle.cluster_slots import EVERY, Redirect, Slots, kept, redirect, serves, splits
from throttle.errors import StoreUnavailable

A, B, C, D = ("a", 1), ("b", 2), ("c", 3), ("d", 4)
REPLY: list[Any] = [
    [0, 99, [b"a", 1, b"id-a", []], [b"c", 3, b"id-c", []]],
    [100, 16382, ["b", 2, "id-b", {"hostname": "x"}]],
]  # fmt: skip


def test_what_a_node_knows_is_learnt() -> None:
    slots = Slots([D, A])
    assert slots.empty
    assert slots.informants() == [D, A]
    assert slots.learn(REPLY, A)
    assert not slots.empty
    assert not slots.doubted
    assert [slots.master(slot) for slot in (0, 99, 100, 16382)] == [A, A, B, B]
    assert sorted(slots.informants()) == [A, B, C, D], "replicas and seeds too"
    with pytest.raises(StoreUnavailable, match="slot 16383"):
        slots.master(16383)
    assert slots.doubted, "it may have one by now"


def test_a_node_that_knows_nothing_teaches_nothing() -> None:
    slots = Slots([A])
    slots.learn(REPLY, A)
    slots.doubted = True
    assert not slots.learn([], D)
    assert slots.doubted
    assert slots.master(0) == A


@pytest.mark.parametrize("host", ["", b"", None])
def test_a_node_that_does_not_know_its_name_is_called_as_it_was_asked(host: Any) -> None:
    slots = Slots([A])
    slots.learn([[0, 16383, [host, 7, b"id"]]], ("asked", 1))
    assert slots.master(5) == ("asked", 7)
    assert slots.follow(Redirect(5, ("", 8), once=False), ("other", 1)) == ("other", 8)


def test_addresses_are_mapped_as_the_client_maps_them() -> None:
    slots = Slots([A], lambda address: (f"{address[0]}.outside", address[1] + 1000))
    slots.learn(REPLY, A)
    assert slots.master(0) == ("a.outside", 1001)
    assert slots.follow(Redirect(0, B, once=True), A) == ("b.outside", 1002)


def test_what_has_moved_is_remembered_and_what_is_on_its_way_is_not() -> None:
    slots = Slots([A])
    slots.learn(REPLY, A)
    assert slots.follow(Redirect(7, D, once=True), A) == D
    assert (slots.master(7), slots.doubted) == (A, False)
    assert slots.follow(Redirect(7, D, once=False), A) == D
    assert (slots.master(7), slots.master(8), slots.doubted) == (D, A, True)


def test_all_slots_are_learnt_ten_times_a_second_at_most() -> None:
    slots = Slots([A])
    assert slots.due(5)
    assert not slots.due(5 + EVERY / 2)
    assert slots.due(5 + EVERY)
    slots.learn(REPLY, A)
    assert not slots.due(100)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (MovedError("3999 127.0.0.1:6381"), Redirect(3999, ("127.0.0.1", 6381), once=False)),
        (AskError("3999 h.example:6381"), Redirect(3999, ("h.example", 6381), once=True)),
        (ResponseError("MOVED 1 2001:db8::1:6381"), Redirect(1, ("2001:db8::1", 6381), once=False)),
        (ResponseError("ASK 1 :6381"), Redirect(1, ("", 6381), once=True)),
        (ResponseError("ERR no such thing"), None), (TryAgainError("x"), None), (OSError("MOVED 1 a:2"), None),
        (None, None),
    ],
)  # fmt: skip
def test_redirections(error: Any, says: Redirect | None) -> None:
    assert redirect(error) == says


def test_who_has_half_of_the_keys_says_so() -> None:
    said = [TryAgainError("Multiple keys"), ResponseError("TRYAGAIN Multiple keys"), ResponseError("x"), None]
    assert [splits(error) for error in said] == [True, True, False, False]


def test_a_node_that_is_as_it_should_be() -> None:
    errors = [
        MovedError("1 a:2"),
        ClusterDownError("Hash slot not served"),
        ResponseError("CLUSTERDOWN Hash slot not served"),
    ]
    assert all(serves(error) for error in errors)
    assert not any(serves(error) for error in (ClusterDownError("The cluster is down"), TimeoutError(), None))


def test_of_a_clients_options_those_are_kept_that_make_a_connection() -> None:
    options = {"username": "u", "ssl_cert_reqs": "none", "protocol": 3, "host": "h", "retry": 1, "maint_x": 2,
               "redis_connect_func": print, "cache": 1, "decode_responses": True, "health_check_interval": 9,
               }  # fmt: skip
    assert kept(options) == {"username": "u", "ssl_cert_reqs": "none", "protocol": 3}
