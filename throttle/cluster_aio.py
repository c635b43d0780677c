"""A Redis Cluster, awaited: to an `AsyncLimiter` it is a client. As `throttle.cluster`, which see."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import redis.asyncio as aioredis
from redis.exceptions import NoScriptError, RedisError
from redis.exceptions import TimeoutError as RedisTimeout

from throttle.cluster_parts import MOVING, SCRIPTS, Answer, Ask, Split, Steps, each, final, named, steps, trip
from throttle.cluster_slots import HOPS, LEAST, NO_TIME, RESERVE, Address, Slots, kept, redirect, serves, splits
from throttle.errors import StoreUnavailable
from throttle.keys import apart
from throttle.loops import AsyncReach, _within
from throttle.scripts import packed
from throttle.store import translate
from throttle.together import STALL

#: Part of the time that whoever waits for all of it allows: the nodes' own time is to end first, as theirs tells which
#: of them is to blame.
WITHIN = 0.96


class AsyncNode(AsyncReach):
    """One node, reached as a single server is."""

    async def answer(self, ask: Ask, *, asking: bool) -> Answer:
        """As `throttle.cluster.Node` has it."""
        if asking or ask.timed:
            answer: Answer = await self._answered(partial(self._trip, ask, asking))
            return answer
        if ask.what not in SCRIPTS:
            return Answer(await self.command(ask.what, *ask.keys))
        return Answer(await self.ask(ask.what, ask.keys, *ask.args))

    async def slots(self) -> Any:
        """Its reply to CLUSTER SLOTS, which in RESP 3 holds more than scripts give: redis-py is to read it."""
        return await self._answered(partial(self.client.execute_command, "CLUSTER", "SLOTS"))

    async def _trip(self, ask: Ask, asking: bool) -> Answer:
        """With what must come just before it, over the same connection."""
        before = [("TIME",)] * ask.timed + [("ASKING",)] * asking
        missing: RedisError | None = None
        for command in ask.commands:
            try:
                return trip(await self._together([*before, command]), ask)
            except NoScriptError as exc:
                missing = exc
        raise missing or RedisError("no command")

    async def _together(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        together = self._here().together
        if together:
            asked = [together.ask(packed(*command)) for command in commands]
            return list(await asyncio.gather(*asked, return_exceptions=True))
        async with self.client.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            return list(await pipe.execute(raise_on_error=False))

    async def _again(self, call: Callable[[], Awaitable[Any]], error: RedisError, end: float) -> Any:
        if splits(error):
            raise Split(MOVING) from error
        if serves(error):
            self.breaker.success()
            raise translate(error) from error
        return await super()._again(call, error, end)


class AsyncCluster:
    """What an `AsyncReach` has for a client, in one event loop, where Redis is a cluster.

    Args:
        theirs: the client that the limiter was given.
        timeout: seconds one question may take.
        spread: whether each bucket has a hash slot of its own.
    """

    def __init__(self, theirs: aioredis.RedisCluster, timeout: float, *, spread: bool) -> None:
        client: Any = theirs
        manager = client.nodes_manager
        seeds = [*manager.startup_nodes.values(), *client.get_nodes()]
        remap = getattr(manager, "address_remap", None)
        self._slots = Slots(dict.fromkeys((node.host, int(node.port)) for node in seeds), remap)
        self._options = dict(client.get_connection_kwargs())
        self._timeout, self._spread = timeout, spread
        self._nodes: dict[Address, AsyncNode] = {}
        self._learning = asyncio.Lock()

    async def evalsha(self, sha: str, count: int, *items: Any) -> Any:
        """The reply of a script that requests need; of several, if no node has all its keys."""
        name, keys = named(sha), items[:count]
        if self._spread and name != "alive":
            keys = tuple(map(apart, keys))
        return await self._done(steps(name, keys, items[count:]))

    async def execute_command(self, *command: Any) -> Any:
        """A plain command for each of the keys that it names (DEL)."""
        verb, *keys = command
        return await self._done(each(verb, list(map(apart, keys)) if self._spread else keys))

    @property
    def connection_pool(self) -> AsyncCluster:
        """What is let go of where a client's connections are."""
        return self

    async def disconnect(self, inuse_connections: bool = True) -> None:
        """Close the connections to all nodes; idle ones each node lets go of itself, when it fails."""
        for node in self._nodes.values() if inuse_connections else ():
            await node.aclose()

    async def _done(self, asking: Steps) -> Any:
        """What the steps come to, once done."""
        end = time.monotonic() + WITHIN * self._timeout
        early = end - RESERVE * self._timeout
        try:
            asks = next(asking)
            while True:
                asked = [self._answer(ask, end if ask.last else early) for ask in asks]
                asks = asking.send(await asyncio.gather(*asked) if len(asked) > 1 else [await one for one in asked])
        except StopIteration as done:
            return done.value

    async def _answer(self, ask: Ask, end: float) -> Answer | Exception:
        if end - time.monotonic() < LEAST * self._timeout:
            return StoreUnavailable(NO_TIME)
        try:
            return await self._found(ask, end)
        except Split as split:
            return split if len(ask.keys) > 1 else final(split)
        except StoreUnavailable as error:
            return final(error)

    async def _found(self, ask: Ask, end: float) -> Answer:
        """The answer of whoever has the slot."""
        address, once = await self._master(ask.slot, end), False
        for _ in range(HOPS):
            try:
                node = self._node(address)
                answer: Answer = await _answered(node, end, node.answer(ask, asking=once))
            except StoreUnavailable as error:
                address, once = await self._elsewhere(ask.slot, address, error, end)
            else:
                return answer
        raise StoreUnavailable(f"nodes of the Redis Cluster do not agree on who has slot {ask.slot}")

    async def _elsewhere(self, slot: int, asked: Address, error: StoreUnavailable, end: float) -> tuple[Address, bool]:
        """Where to ask, and whether for once, after a node has not answered; raises the error if nowhere."""
        told = redirect(error.__cause__)
        if told:
            return self._slots.follow(told, asked), told.once
        self._slots.doubted = True
        master = await self._master(slot, end)
        if master == asked:
            raise error
        return master, False

    async def _master(self, slot: int, end: float) -> Address:
        if self._slots.doubted and (self._slots.empty or not self._learning.locked()):
            async with self._learning:
                if self._slots.due(time.monotonic()):
                    await self._ask_around(end)
        return self._slots.master(slot)

    async def _ask_around(self, end: float) -> None:
        """Learn all slots of one who knows."""
        failed = None
        for address in sorted(self._slots.informants(), key=lambda address: self._node(address).breaker.failed):
            half = (time.monotonic() + end) / 2  # one that stands still leaves time for the next
            node = self._node(address)
            try:
                reply = await _answered(node, half, node.slots())
            except StoreUnavailable as error:
                failed = error
                continue
            if self._slots.learn(reply, address):
                for gone in self._nodes.keys() - {*self._slots.informants()}:
                    await self._nodes.pop(gone).aclose()
                return
        if failed and self._slots.empty:
            raise failed

    def _node(self, address: Address) -> AsyncNode:
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = AsyncNode(partial(self._client, address), self._timeout)
        return node

    def _client(self, address: Address) -> aioredis.Redis:
        (host, port), options = address, self._options
        kind = options.get("connection_class", aioredis.Connection)
        most = options.get("max_connections")
        pool: Any = aioredis.ConnectionPool(  # questions share one; where slots are is asked over another
            connection_class=kind, host=host, port=port, max_connections=most and max(2, most), **kept(options)
        )
        return aioredis.Redis(connection_pool=pool)


async def _answered(node: AsyncNode, end: float, answer: Awaitable[Any]) -> Any:
    """The node's answer, if it comes by then."""
    try:
        return await _within(end - time.monotonic(), answer)
    except RedisTimeout as exc:
        if time.monotonic() < end + STALL:  # else it was the loop that was late
            node.breaker.failure()
        raise translate(exc) from None
