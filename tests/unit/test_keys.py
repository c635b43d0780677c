"""Names in Redis: whatever users call things, slot and structure stay ours; B31, B35, B67."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kombu.transport import redis as kombu_redis
from redis.crc import key_slot

from throttle.errors import ThrottleError
from throttle.keys import PARTS, Namer

ODD = ["a b", "é", "日本", "x{y}z", "}{", "{}", "{", "a:b", "a\nb", "\x00", "🙂" * 50, "", "-", "%", "%2D", "~",
       "~" + "0" * 40, "a,b", "a|b", "\ud800", "'", '"', "*", "?", "[a]", "\\", "a" * 64, "a" * 65,
       "é" * 64]  # fmt: skip


def test_b31_each_is_independent() -> None:
    namer = Namer()
    assert len({namer.identity(key) for key in ODD}) == len(ODD)
    assert namer.identity("-") != "-", "which stands for no key"


@given(st.text(), st.text())
def test_b31_two_keys_are_two_identities(one: str, other: str) -> None:
    namer = Namer()
    assert (namer.identity(one) == namer.identity(other)) == (one == other)


@given(st.text())
def test_identities_have_no_structure(key: str) -> None:
    identity = Namer().identity(key)
    assert identity
    assert identity.isascii()
    assert not set(identity) & set("{}|:, \n\\*?[]")
    assert len(identity) <= 64


@pytest.mark.parametrize("scope", ODD, ids=range(len(ODD)))
def test_b31_all_keys_of_a_scope_lie_in_one_slot(scope: str) -> None:
    namer = Namer()
    keys = [*namer.backlog(scope), *(f"{namer.scope(scope)}b:{{x}}|{namer.identity(key)}" for key in ODD)]
    assert len({key_slot(key.encode()) for key in keys}) == 1
    start = keys[0].index("{")
    assert {key[start : key.index("}") + 1] for key in keys} == {keys[0][start : keys[0].index("}") + 1]}


def test_what_a_key_is_does_not_depend_on_what_came_before() -> None:
    """To a cache keyed by value, 1, 1.0 and True are one."""
    for order in itertools.permutations([1, True, 1.0, "1"]):
        namer = Namer()
        assert {repr(key): namer.identity(key) for key in order} == {"1": "1", "True": "True", "1.0": "1.0", "'1'": "1"}
    assert Namer().identity(["a", 1]) == Namer().identity("['a', 1]")


def test_b35_long_and_secret_values() -> None:
    secret = "sk_live_" + "x" * 2**20
    namer = Namer(secret="pepper")
    began = time.perf_counter()
    stored = namer.identity(secret)
    assert time.perf_counter() - began < 0.05
    assert len(namer.scope("s" * 1000) + "b:1|" + stored) <= 150
    assert "sk_live" not in stored
    assert stored != Namer(secret="salt").identity(secret)
    assert stored == Namer(secret="pepper").identity(secret)
    info = namer._short.cache_info()
    assert info.currsize <= 2, "a cache of long keys would hold gigabytes"


@pytest.mark.parametrize("prefix", ["", "a{b", "}"])
def test_a_prefix_cannot_move_the_slot(prefix: str) -> None:
    with pytest.raises(ThrottleError, match="braces"):
        Namer(prefix)


def test_b67_no_key_of_kombu_or_celery_begins_like_ours() -> None:
    channel = kombu_redis.Channel
    theirs = {
        channel.unacked_key, channel.unacked_index_key, channel.unacked_mutex_key, channel.keyprefix_queue % "q",
        channel.keyprefix_fanout.format(db=0), channel.sep, "celery", "celery-task-meta-", "celery-taskset-meta-",
        "chord-unlock-",
    }  # fmt: skip
    namer = Namer()
    ours = [*namer.backlog("q"), namer.scope("q") + "b:1|-", namer.leader, namer.scopes, namer.channel]
    assert all(key.startswith("throttle:") for key in ours)
    assert not [key for key in theirs if key.startswith("throttle:")]
    assert len(set(ours)) == len(PARTS) + 4
