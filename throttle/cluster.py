"""A Redis Cluster, asked as one server is: to a `Limiter` it is a client.

Each node is reached as a single server is, by a `Reach` of its own: its connections, its breaker. So a node that
fails costs nobody anything who asks another. The client that a limiter is given tells nodes and options; its own
calls would not keep to a time budget (where a slot is not served, redis-py sleeps for 0.25 s before it looks again).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import redis
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeout

from throttle.cluster_parts import MOVING, SCRIPTS, Answer, Ask, Split, Steps, each, final, named, steps, trip
from throttle.cluster_slots import HOPS, LEAST, NO_TIME, RESERVE, Address, Slots, kept, redirect, serves, splits
from throttle.errors import StoreUnavailable
from throttle.keys import Namer, apart
from throttle.reach import Reach
from throttle.scripts import packed
from throttle.store import Store, translate
from throttle.timely import Timely, until, within
from throttle.wire import taking


class _Thread(threading.local):
    end = math.inf  # the moment (monotonic s) until which this thread waits for nodes


_thread = _Thread()


@contextmanager
def _ending(moment: float) -> Iterator[None]:
    before, _thread.end = _thread.end, min(moment, _thread.end)
    try:
        yield
    finally:
        _thread.end = before


class Dated(Timely):
    """Mixin of a connection: no answer is waited for beyond the thread's moment, whichever question it is part of."""

    def connect(self) -> None:
        """As the client's; a pool calls it before every command."""
        if self._sock is None:
            with until(min(_thread.end, time.monotonic() + self.socket_timeout)):
                super().connect()

    def read_response(self, *args: Any, **options: Any) -> Any:
        """As the client's."""
        left = _thread.end - time.monotonic()
        if left <= 0:
            self.disconnect()  # type: ignore[attr-defined]
            raise RedisTimeout("no time is left for an answer")
        if self._sock is not None:
            self._sock.settimeout(min(left, self.socket_timeout))
        return super().read_response(*args, **options)  # type: ignore[misc]


@cache
def _dated(connection: type[Any]) -> type[Any]:
    return type(f"Timely{connection.__name__}", (Dated, connection), {})


class Node(Reach):
    """One node, reached as a single server is, but within the thread's moment."""

    def answer(self, ask: Ask, *, asking: bool) -> Answer:
        """What the node answers, `asking` if it is to serve a slot that is on its way to it.

        Raises:
            StoreUnavailable: it does not answer, or says that another should be asked: that is its cause then.
            Split: some of the keys are elsewhere.
        """
        if asking or ask.timed:
            answer: Answer = self.call(self._trip, ask, asking)
            return answer
        if ask.what not in SCRIPTS:
            return Answer(self.call(self.store.command, ask.what, *ask.keys))
        if len(ask.args) == 1:
            return Answer(self.ask(ask.what, ask.keys, ask.args[0]))
        return Answer(self.call(self.store.run_plain, ask.what, ask.keys, ask.args))

    def _trip(self, ask: Ask, asking: bool) -> Answer:
        """With what must come just before it, over the same connection."""
        before = [("TIME",)] * ask.timed + [("ASKING",)] * asking
        missing: RedisError | None = None
        for command in ask.commands:
            try:
                return trip(self._together([*before, command]), ask)
            except NoScriptError as exc:
                missing = exc
            except RedisError as exc:
                raise translate(exc) from exc
        raise translate(missing or RedisError("no command")) from missing

    def _together(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        pool, replies = self.store.client.connection_pool, []
        connection = taking(pool)()
        try:
            connection.send_packed_command([packed(*command) for command in commands])
            for _ in commands:
                try:
                    replies.append(connection.read_response(disable_decoding=True))
                except ResponseError as exc:  # the others are still to be read
                    replies.append(exc)
        except BaseException:
            connection.disconnect()
            raise
        finally:
            pool.release(connection)
        return replies

    def _end(self, began: float) -> float:
        return _thread.end

    def _again(self, call: Callable[[], Any], error: StoreUnavailable, began: float) -> Any:
        if splits(error.__cause__):
            raise Split(MOVING) from error
        if serves(error.__cause__):
            self.breaker.success()
            raise error
        return super()._again(call, error, began)


class Cluster:
    """What a `Store` has for a client where Redis is a cluster.

    Args:
        theirs: the client that the limiter was given.
        namer: names of the keys.
        timeout: seconds one question may take.
        spread: whether each bucket has a hash slot of its own.
    """

    def __init__(self, theirs: redis.RedisCluster, namer: Namer, timeout: float, *, spread: bool) -> None:
        client: Any = theirs
        nodes = client.get_nodes()
        self._theirs, self._pool = client, client.get_redis_connection(nodes[0]).connection_pool
        remap = getattr(client.nodes_manager, "address_remap", None)
        self._slots = Slots([(node.host, int(node.port)) for node in nodes], remap)
        self._namer, self._timeout, self._spread = namer, timeout, spread
        self._nodes: dict[Address, Node] = {}
        self._making, self._learning = threading.Lock(), threading.Lock()

    def evalsha(self, sha: str, count: int, *items: Any) -> Any:
        """The reply of a script that requests need; of several, if no node has all its keys."""
        name, keys = named(sha), items[:count]
        if self._spread and name != "alive":
            keys = tuple(map(apart, keys))
        return self._done(steps(name, keys, items[count:]))

    def execute_command(self, *command: Any) -> Any:
        """A plain command for each of the keys that it names (DEL)."""
        verb, *keys = command
        return self._done(each(verb, list(map(apart, keys)) if self._spread else keys))

    def _done(self, asking: Steps) -> Any:
        """What the steps come to, once done."""
        end = time.monotonic() + self._timeout
        try:
            asks = next(asking)
            while True:
                kept_back = RESERVE * self._timeout
                asks = asking.send([self._answer(ask, end if ask.last else end - kept_back) for ask in asks])
        except StopIteration as done:
            return done.value

    def _answer(self, ask: Ask, end: float) -> Answer | Exception:
        if end - time.monotonic() < LEAST * self._timeout:
            return StoreUnavailable(NO_TIME)
        try:
            with _ending(end):
                return self._found(ask)
        except Split as split:
            return split if len(ask.keys) > 1 else final(split)
        except StoreUnavailable as error:
            return final(error)

    def _found(self, ask: Ask) -> Answer:
        """The answer of whoever has the slot."""
        address, once = self._master(ask.slot), False
        for _ in range(HOPS):
            try:
                return self._node(address).answer(ask, asking=once)
            except StoreUnavailable as error:
                address, once = self._elsewhere(ask.slot, address, error)
        raise StoreUnavailable(f"nodes of the Redis Cluster do not agree on who has slot {ask.slot}")

    def _elsewhere(self, slot: int, asked: Address, error: StoreUnavailable) -> tuple[Address, bool]:
        """Where to ask, and whether for once, after a node has not answered; raises the error if nowhere."""
        told = redirect(error.__cause__)
        if told:
            return self._slots.follow(told, asked), told.once
        self._slots.doubted = True
        master = self._master(slot)
        if master == asked:
            raise error
        return master, False

    def _master(self, slot: int) -> Address:
        if self._slots.doubted:
            self._learn()
        return self._slots.master(slot)

    def _learn(self) -> None:
        """Learn all slots of one who knows. Who comes meanwhile goes by what was known, if anything was."""
        left = _thread.end - time.monotonic()
        if left <= 0 or not self._learning.acquire(timeout=left if self._slots.empty else 0):
            return
        try:
            if self._slots.due(time.monotonic()):
                self._ask_around()
        finally:
            self._learning.release()

    def _ask_around(self) -> None:
        failed = None
        for address in sorted(self._slots.informants(), key=lambda address: self._node(address).breaker.failed):
            node = self._node(address)
            try:
                with _ending((time.monotonic() + _thread.end) / 2):  # one that stands still leaves time for the next
                    reply = node.call(node.store.command, "CLUSTER", "SLOTS")
            except StoreUnavailable as error:
                failed = error
                continue
            if self._slots.learn(reply, address):
                for gone in self._nodes.keys() - {*self._slots.informants()}:
                    self._nodes.pop(gone, None)
                return
        if failed and self._slots.empty:
            raise failed

    def _node(self, address: Address) -> Node:
        node = self._nodes.get(address)
        if node is None:
            with self._making:
                store = Store(lambda: self._client(address), self._namer, timeout=self._timeout)
                node = self._nodes.setdefault(address, Node(store, self._timeout))
        return node

    def _client(self, address: Address) -> redis.Redis:
        host, port = address
        options = kept(self._pool.connection_kwargs)
        greet = getattr(self._theirs, "user_on_connect_func", None)
        if greet:
            options["redis_connect_func"] = partial(_greeted, greet)
        made = redis.ConnectionPool(
            connection_class=self._pool.connection_class, host=host, port=port,
            max_connections=self._pool.max_connections, **options,
        )  # fmt: skip
        client: redis.Redis = within(redis.Redis(connection_pool=made), self._timeout)
        if client.connection_pool is not made:  # else it is of a kind that nothing is known of
            client.connection_pool.connection_class = _dated(made.connection_class)
        return client


def _greeted(greet: Callable[[Any], Any], connection: Any) -> None:
    connection.on_connect()
    greet(connection)
