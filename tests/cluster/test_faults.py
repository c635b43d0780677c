"""A cluster whose slots move and whose nodes stand still, die and come back; real servers, real time. B38, B43, B44."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import redis

from tests.cluster.conftest import Make, at_once
from tests.services import RedisCluster, RedisServer, free_port, redis_cluster, redis_server
from throttle import FixedWindow, Limiter, SlidingLog, StoreUnavailable, TokenBucket
from throttle.cluster import Node
from throttle.cluster_aio import AsyncNode
from throttle.cluster_parts import Ask, slot_of
from throttle.keys import Namer, apart

BUDGET = 0.25
SLACK = 0.05  # s; what B44 allows beside the budget

LIMIT = TokenBucket("1/h", 1000, name="limit")


@pytest.fixture
def own(cluster: RedisCluster) -> Iterator[RedisCluster]:
    """A cluster whose nodes may be stopped: afterwards all run again."""
    yield cluster
    for node in cluster.nodes:
        if node.process is None:
            node.start()
        os.kill(node.process.pid, signal.SIGCONT)  # type: ignore[union-attr]
    cluster.until_ok()


def bucket(scope: str, key: object = None, limit: Any = LIMIT) -> str:
    name = Namer().scope(scope) + f"b:{limit.label}|{'-' if key is None else key}"
    return apart(name)


def key_on(cluster: RedisCluster, node: RedisServer, scope: str, limit: Any = LIMIT) -> int:
    """A key whose bucket is on that node."""
    return next(key for key in range(999) if cluster.node_of(slot_of(bucket(scope, key, limit))) is node)


def timed(call: Any, *args: Any, **options: Any) -> tuple[float, Any]:
    began = time.monotonic()
    try:
        said = call(*args, **options)
    except StoreUnavailable as error:
        said = error
    return time.monotonic() - began, said


def until(true: Any, seconds: float) -> float:
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds
        time.sleep(0.01)
    return time.monotonic() - began


# -- slots that move -----------------------------------------------------------------------------------------


@contextmanager
def asking(limiter: Any, *limits: Any, threads: int = 4) -> Iterator[list[bool]]:
    """While this many threads ask, without pause."""
    passed: list[bool] = []
    failed: list[BaseException] = []
    stop = threading.Event()

    def ask() -> None:
        try:
            while not stop.is_set():
                passed.append(limiter.acquire(*limits).allowed)
        except BaseException as error:
            failed.append(error)

    workers = [threading.Thread(target=ask) for _ in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield passed
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    if failed:
        raise failed[0]


def test_a_slot_moves_while_its_bucket_is_asked(cluster: RedisCluster, make: Make) -> None:
    """ASK, then MOVED: nobody fails, and not one more passes than the bucket holds."""
    limiter, slot = make(cluster, "moves", denials=0), slot_of(bucket("moves"))
    limit = TokenBucket("1/h", 400, name="limit")
    others = [node for node in cluster.masters if node is not cluster.node_of(slot)]
    with asking(limiter, limit) as passed:
        for target in (*others, cluster.node_of(slot)):
            cluster.begin_move(slot, target)
            time.sleep(0.02)
            cluster.move_keys(slot, target)
            time.sleep(0.02)
            cluster.end_move(slot, target)
        until(lambda: passed[-1:] == [False], 20)
    assert passed.count(True) == 400
    assert limiter.unanswered == 0


def test_a_bucket_that_is_new_while_its_slot_moves(cluster: RedisCluster, make: Make) -> None:
    """What is not there yet is made where the slot is going to."""
    limiter, slot = make(cluster, "new"), slot_of(bucket("new"))
    source = cluster.node_of(slot)
    target = next(node for node in cluster.masters if node is not source)
    cluster.begin_move(slot, target)
    for node in cluster.masters:
        node.ask("SCRIPT", "FLUSH")
    assert limiter.acquire(LIMIT).remaining == 999
    assert limiter.acquire(LIMIT, FixedWindow("9/h")).policies
    assert limiter.peek(LIMIT).remaining == 998
    limiter.refund(LIMIT)
    assert (source.ask("CLUSTER", "COUNTKEYSINSLOT", slot), target.ask("CLUSTER", "COUNTKEYSINSLOT", slot)) == (0, 1)
    limiter.reset(LIMIT)
    assert target.ask("CLUSTER", "COUNTKEYSINSLOT", slot) == 0
    cluster.end_move(slot, target)
    assert limiter.acquire(LIMIT).remaining == 999


def test_several_limits_of_one_slot_half_of_which_has_moved(cluster: RedisCluster, make: Make) -> None:
    """TRYAGAIN: each is asked for alone then, at whichever node has it."""
    limits = [TokenBucket("1/h", 50, name="limit"), FixedWindow("60/h", name="f"), SlidingLog("40/h", name="g")]
    limiter = make(cluster, "halves", spread=False, denials=0)
    slot = slot_of(Namer().scope("halves"))
    target = next(node for node in cluster.masters if node is not cluster.node_of(slot))
    assert limiter.acquire(*limits)
    cluster.begin_move(slot, target)
    assert cluster.move_keys(slot, target, most=2) == 2
    assert limiter.acquire(*limits).remaining == 38
    limiter.refund(*limits)
    assert limiter.acquire(*limits, cost=2).remaining == 37
    passed = [one for said in at_once(6, lambda _: [limiter.acquire(*limits) for _ in range(10)]) for one in said]
    assert sum(one.allowed for one in passed) == 37
    assert passed[-1].policies[0].label == "g"
    limiter.reset(limits[2])
    assert limiter.acquire(*limits)
    cluster.move_keys(slot, target)
    cluster.end_move(slot, target)
    assert limiter.acquire(*limits).remaining in (9, 8), "a ms of the first may be lost"


def test_keys_on_their_way_while_several_limits_are_asked(cluster: RedisCluster, make: Make) -> None:
    """All of it at once: never more than the limits hold, and no error."""
    limits = [TokenBucket("1/h", 300, name="limit"), FixedWindow("320/h", name="f"), SlidingLog("310/h", name="g")]
    for spread in (True, False):
        scope = f"storm {spread}"
        limiter = make(cluster, scope, spread=spread, denials=0)
        slot = slot_of(bucket(scope) if spread else Namer().scope(scope))
        targets = [node for node in cluster.masters if node is not cluster.node_of(slot)]
        with asking(limiter, *limits) as passed:
            for target in targets:
                cluster.begin_move(slot, target)
                while cluster.move_keys(slot, target, most=1):
                    time.sleep(0.01)
                cluster.end_move(slot, target)
            until(lambda: passed[-1:] == [False], 20)
        assert passed.count(True) in (300, 299)


# -- nodes that stand still, and nodes that die --------------------------------------------------------------


@pytest.mark.parametrize("still", [True, False])
def test_b43_b44_one_node_fails_within_the_budget_and_the_others_go_on(
    still: bool, own: RedisCluster, make: Make
) -> None:
    node = own.masters[1]
    ways = {way: make(own, way, on_store_error=way, timeout=BUDGET, denials=0) for way in ("open", "closed", "local")}
    here = {way: key_on(own, own.masters[2], way) for way in ways}
    there = {way: key_on(own, node, way) for way in ways}
    few = TokenBucket("1/h", 5, name="few")
    pairs = {way: (few.of(key_on(own, own.masters[2], way, few)), LIMIT.of(there[way])) for way in ways}
    for way, limiter in ways.items():
        assert (
            limiter.acquire(LIMIT, key=here[way]).remaining == limiter.acquire(LIMIT, key=there[way]).remaining == 999
        )
    stop(node, still)
    for way, limiter in ways.items():
        took, said = zip(*(timed(limiter.acquire, LIMIT, key=there[way]) for _ in range(30)), strict=True)
        assert max(took) <= BUDGET + SLACK
        assert sorted(took)[25] < 0.01, "its breaker is open"
        if way == "closed":
            assert all(isinstance(one, StoreUnavailable) for one in said)
        else:
            assert all(one.allowed and bool(one.policies) == (way == "local") for one in said)
        assert limiter.unanswered == 30
        for n in range(30):
            seconds, one = timed(limiter.acquire, LIMIT, key=here[way])
            assert one.remaining == 998 - n, "another node's breaker is another's"
            assert seconds < SLACK
        assert timed(limiter.acquire, *pairs[way])[0] <= BUDGET + SLACK
        assert limiter.peek(pairs[way][0]).remaining == 5, "nothing is taken for what is not decided"
    go_on(node, still)
    for way, limiter in ways.items():
        assert until(partial(answered, limiter, LIMIT, key=there[way]), 4) <= 2


def stop(node: RedisServer, still: bool) -> None:
    if still:
        os.kill(node.process.pid, signal.SIGSTOP)  # type: ignore[union-attr]
    else:
        node.stop()


def go_on(node: RedisServer, still: bool) -> None:
    """And until it serves again: a master waits for two seconds of its own after a restart."""
    if still:
        os.kill(node.process.pid, signal.SIGCONT)  # type: ignore[union-attr]
    else:
        node.start()
        until(lambda: b"cluster_state:ok" in node.ask("CLUSTER", "INFO"), 10)


def answered(limiter: Any, *limits: Any, **options: Any) -> bool:
    """Whether Redis answered it."""
    before = limiter.unanswered
    timed(limiter.acquire, *limits, **options)
    return bool(limiter.unanswered == before)


def test_b44_all_nodes_stand_still(own: RedisCluster, make: Make) -> None:
    """However many of them would be asked."""
    limiter = make(own, "still", on_store_error="open", timeout=BUDGET)
    limits = [TokenBucket("9/h", 9, name=f"n{n}") for n in range(7)]
    assert {own.node_of(slot_of(bucket("still", None, limit))) for limit in limits} == set(own.nodes)
    for warm in (False, True):
        if warm:
            assert until(lambda: limiter.acquire(*limits).policies, 4) <= 2
        for node in own.nodes:
            stop(node, still=True)
        took = [timed(limiter.acquire, *limits)[0] for _ in range(12)]
        for node in own.nodes:
            go_on(node, still=True)
        assert max(took) <= BUDGET + SLACK
        assert sum(took) <= 10 * (BUDGET + SLACK)


def test_nobody_is_blamed_for_the_time_that_another_took(own: RedisCluster, make: Make) -> None:
    limiter, still = make(own, "blame", on_store_error="open", timeout=BUDGET), own.nodes[0]
    limits = [TokenBucket("9/h", 9, name=f"n{n}") for n in range(12)]
    assert limiter.acquire(*limits).remaining == 8
    mine = [limit for limit in limits if own.node_of(slot_of(bucket("blame", None, limit))) is not still]
    stop(still, still=True)
    for _ in range(4):
        assert timed(limiter.acquire, *limits)[0] <= BUDGET + SLACK
        assert limiter.acquire(*mine).policies
    go_on(still, still=True)
    cluster = inside(limiter)
    failed = [node.breaker.failed for node in cluster._nodes.values()]
    said = cluster._answer(Ask("acquire", (bucket("blame"),), ("no time is left",)), time.monotonic())
    assert isinstance(said if isinstance(limiter, Limiter) else limiter.run(said), StoreUnavailable)
    assert [node.breaker.failed for node in cluster._nodes.values()] == failed


def test_a_node_that_stands_still_keeps_nobody_from_learning_who_has_what(own: RedisCluster, make: Make) -> None:
    for still in own.nodes:
        limiter = make(own, f"learn {still.port}", timeout=BUDGET)
        live = next(node for node in own.nodes if node is not still)
        key = key_on(own, live, f"learn {still.port}")
        stop(still, still=True)
        assert timed(limiter.acquire, LIMIT, key=key)[1].remaining == 999
        go_on(still, still=True)


def inside(limiter: Any) -> Any:
    """What stands for a client in it."""
    if isinstance(limiter, Limiter):
        return limiter._store.client
    return limiter.limiter._reach._made[limiter.loop].client


def test_a_node_that_has_failed_is_asked_for_the_slots_last(own: RedisCluster, make: Make) -> None:
    limiter, failed = make(own, "last"), own.nodes[1]
    assert limiter.acquire(LIMIT).policies
    cluster = inside(limiter)
    before = calls(failed, b"cluster|slots")
    for _ in range(20):
        cluster._node(("127.0.0.1", failed.port)).breaker.failed = 1
        cluster._slots.doubted, cluster._slots._due = True, 0
        assert limiter.acquire(LIMIT).policies
        assert not cluster._slots.doubted
    assert calls(failed, b"cluster|slots") == before


def test_a_node_of_no_cluster_is_not_believed_and_one_that_has_left_is_forgotten(own: RedisCluster, make: Make) -> None:
    limiter, lonely = make(own, "lonely"), redis_server("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    try:
        assert limiter.acquire(LIMIT).policies
        cluster, address = inside(limiter), ("127.0.0.1", lonely.port)
        cluster._slots._seeds.insert(0, address)
        cluster._slots.informants = lambda: [address, ("127.0.0.1", own.nodes[0].port)]
        cluster._slots.doubted, cluster._slots._due = True, 0
        assert limiter.acquire(LIMIT).policies
        assert calls(lonely, b"cluster|slots") == 1
        assert not cluster._slots.doubted, "another was asked too"
        del cluster._slots.informants
        cluster._slots._seeds.remove(address)
        cluster._slots.doubted, cluster._slots._due = True, 0
        assert address in cluster._nodes
        assert limiter.acquire(LIMIT).policies
        assert address not in cluster._nodes
    finally:
        lonely.remove()


def test_time_that_a_slow_node_took_is_not_there_for_one_that_stands_still(own: RedisCluster, make: Make) -> None:
    limiter = make(own, "slow and still", on_store_error="open", timeout=BUDGET)
    limits = [TokenBucket("9/h", 9, name=f"n{n}") for n in range(12)]
    assert limiter.acquire(*limits).remaining == 8
    for slow, still in itertools.pairwise(own.nodes):
        slow.ask("CLIENT", "PAUSE", 150, "ALL")
        stop(still, still=True)
        assert timed(limiter.acquire, *limits)[0] <= BUDGET + SLACK
        go_on(still, still=True)
        until(partial(answered, limiter, *limits), 4)


def test_what_was_taken_before_a_node_stood_still_is_given_back_within_the_budget(
    own: RedisCluster, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    limiter = make(own, "back", on_store_error="open", timeout=BUDGET)
    limits = sorted(
        (TokenBucket("9/h", 9, name=f"n{n}") for n in range(12)), key=lambda limit: slot_of(bucket("back", None, limit))
    )
    last = own.node_of(slot_of(bucket("back", None, limits[-1])))
    assert limiter.acquire(*limits).remaining == 8
    for kind in (Node, AsyncNode):
        answer = kind.answer

        def stopping(self: Any, ask: Any, answer: Any = answer, **options: Any) -> Any:
            if bucket("back", None, limits[-1]) in ask.keys and ask.args[0].startswith("take"):
                stop(last, still=True)
            return answer(self, ask, **options)

        monkeypatch.setattr(kind, "answer", stopping)
    seconds, said = timed(limiter.acquire, *limits)
    assert seconds <= BUDGET + SLACK
    assert not said.policies
    monkeypatch.undo()
    go_on(last, still=True)
    elsewhere = [one for one in limits if own.node_of(slot_of(bucket("back", None, one))) is not last]
    assert elsewhere
    assert {limiter.peek(limit).remaining for limit in elsewhere} == {8}


def test_a_slot_that_nobody_serves(own: RedisCluster, make: Make) -> None:
    """CLUSTERDOWN: at once; and the node that says so is asked for its other slots all the while."""
    limiter = make(own, "nobody", on_store_error="closed", timeout=BUDGET, denials=0)
    slot = slot_of(bucket("nobody"))
    owner = own.node_of(slot)
    keys = [key for key in range(99) if slot_of(bucket("nobody", key)) != slot]
    other = next(key for key in keys if own.node_of(slot_of(bucket("nobody", key))) is owner)
    assert limiter.acquire(LIMIT).remaining == 999
    for node in own.nodes:
        node.ask("CLUSTER", "DELSLOTS", slot)
    for n in range(10):
        seconds, said = timed(limiter.acquire, LIMIT)
        assert isinstance(said, StoreUnavailable)
        assert seconds < SLACK
        assert limiter.acquire(LIMIT, key=other).remaining == 999 - n
    owner.ask("CLUSTER", "ADDSLOTS", slot)
    assert until(partial(answered, limiter, LIMIT), 4) <= 2


def test_a_cluster_that_is_down_when_the_limiter_is_made(own: RedisCluster) -> None:
    client = own.client()
    for node in own.nodes:
        node.stop()
    limiter = Limiter(client, "down", on_store_error="closed")
    factory = Limiter(own.client, "down", on_store_error="open")
    for _ in range(6):
        assert isinstance(timed(limiter.acquire, LIMIT)[1], StoreUnavailable)
        assert timed(factory.acquire, LIMIT)[1].policies == ()
    for node in own.nodes:
        node.start()
    own.until_ok()
    assert until(partial(answered, limiter, LIMIT), 4) <= 2
    assert until(partial(answered, factory, LIMIT), 4) <= 2


@pytest.fixture(scope="module")
def replicated() -> Iterator[RedisCluster]:
    cluster = redis_cluster(3, 1, "--cluster-node-timeout", "400", "--repl-diskless-sync-delay", "0")
    yield cluster
    cluster.remove()


@pytest.mark.parametrize("still", [True, False])
def test_b38_after_a_failover_the_new_master_is_asked(
    still: bool, replicated: RedisCluster, make: Make, request: pytest.FixtureRequest
) -> None:
    """Within two seconds of it, without a restart; the old one comes back as a replica and is not asked."""
    cluster, scope = replicated, request.node.name
    cluster.until_ok()
    limiter = make(cluster, scope, on_store_error="closed", timeout=BUDGET, denials=0)
    slot = slot_of(bucket(scope))
    old = cluster.node_of(slot)
    assert limiter.acquire(LIMIT).remaining == 999
    old.ask("WAIT", 1, 1000)
    stop(old, still)
    took: list[float] = []

    def serves() -> bool:
        seconds, said = timed(limiter.acquire, LIMIT)
        took.append(seconds)
        return not isinstance(said, StoreUnavailable)

    def asked(node: RedisServer) -> RedisServer:
        for first, last, master, *_ in node.ask("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(one for one in cluster.nodes if one.port == master[1])
        return old

    alive = next(node for node in cluster.masters if node is not old)
    until(lambda: serves() or asked(alive) is not old, 15)
    assert until(serves, 5) <= 2
    assert max(took) <= BUDGET + SLACK
    before = limiter.peek(LIMIT).remaining
    assert before >= 995
    if still:
        os.kill(old.process.pid, signal.SIGCONT)  # type: ignore[union-attr]
    else:
        old.start()
    until(lambda: b"role:slave" in old.ask("INFO", "replication"), 5)
    assert [limiter.acquire(LIMIT).remaining for _ in range(5)] == [before - n for n in range(1, 6)]
    cluster.until_ok()


def test_b40_a_bucket_that_is_lost_is_a_full_one(cluster: RedisCluster, make: Make) -> None:
    limiter, limit = make(cluster, "lost"), TokenBucket("1/h", 10, name="limit")
    passed = 0
    for n in range(40):
        passed += bool(limiter.acquire(limit))
        if n == 20:
            cluster.node_of(slot_of(bucket("lost"))).ask("DEL", bucket("lost"))
            limiter._answers.forget(limiter._scope.keys([limit], None))
    assert passed == 20


def test_threads_share_what_is_known_of_the_slots(cluster: RedisCluster) -> None:
    for node in cluster.masters:
        node.ask("CONFIG", "RESETSTAT")
    limiter = Limiter(redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port), "shared", timeout=5)
    before = sum(calls(node, b"cluster|slots") for node in cluster.masters)
    at_once(12, lambda n: [limiter.acquire(LIMIT, key=f"{n} {k}") for k in range(20)])
    assert limiter.unanswered == 0
    assert sum(calls(node, b"cluster|slots") for node in cluster.masters) == before + 1


def calls(node: RedisServer, command: bytes) -> int:
    for line in node.ask("INFO", "commandstats").splitlines():
        if line.startswith(b"cmdstat_" + command + b":"):
            return int(line.split(b"calls=")[1].split(b",")[0])
    return 0
