"""Who has which hash slot of a Redis Cluster, as far as known. No input, no output."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from redis.exceptions import AskError, MovedError, ResponseError, TryAgainError

from throttle.errors import StoreUnavailable

SLOTS = 16384

#: Redirections that one question follows; a cluster at rest has one at most.
HOPS = 5

#: s between two times that all slots are learnt anew.
EVERY = 0.1

#: Part of a question's time that is kept for giving back what was taken.
RESERVE = 0.1

#: Part of it without which no node is asked any more: it would be blamed for the time that another took.
LEAST = 0.02

NO_TIME = "Redis cannot serve: one node of the cluster took the time, and another was not asked"

Address = tuple[str, int]
Remap = Callable[[Address], Address]

#: What a connection to any node has of a client's options; the rest is redis-py's own business.
_KEPT = (
    "username", "password", "credential_provider", "client_name", "protocol", "encoding", "encoding_errors",
    "socket_timeout", "socket_keepalive", "socket_keepalive_options", "socket_read_size",
)  # fmt: skip


class Redirect(NamedTuple):
    """A node's word that another has the slot: for good, or for this one question (`once`)."""

    slot: int
    address: Address
    once: bool


class Slots:
    """The slots and their masters. Threads may share it.

    Args:
        seeds: nodes that are known from the start.
        remap: from a node's address as the cluster has it to the one that we reach it by.
    """

    def __init__(self, seeds: Iterable[Address], remap: Remap | None = None) -> None:
        self._masters: list[Address | None] = [None] * SLOTS
        self._seeds, self._remap = list(seeds), remap or (lambda address: address)
        self._known: set[Address] = set()
        self._due = 0.0
        #: Whether what is known may be wrong.
        self.doubted = True

    @property
    def empty(self) -> bool:
        """Whether nothing was ever learnt."""
        return not self._known

    def master(self, slot: int) -> Address:
        """Who has the slot.

        Raises:
            StoreUnavailable: nobody, as far as known; which is then doubted.
        """
        master = self._masters[slot]
        if master is None:
            self.doubted = True
            raise StoreUnavailable(f"no node of the Redis Cluster is known to have slot {slot}")
        return master

    def due(self, now: float) -> bool:
        """Whether all slots are to be learnt anew, by monotonic seconds; who is told so does it."""
        if not self.doubted or now < self._due:
            return False
        self._due = now + EVERY
        return True

    def informants(self) -> list[Address]:
        """Who can be asked for the slots, each client in another order."""
        known = list(self._known)
        random.shuffle(known)
        return [*known, *(seed for seed in self._seeds if seed not in self._known)]

    def learn(self, reply: Any, asked: Address) -> bool:
        """What a node answered to CLUSTER SLOTS: `[[from, to, [host, port, …], [host of a replica, …], …], …]`.

        Returns whether it knew anything: a node that was just started does not.
        """
        if not reply:
            return False
        masters: list[Address | None] = [None] * SLOTS
        known = set()
        for first, last, *nodes in reply:
            addresses = [self._address(node, asked) for node in nodes]
            masters[first : last + 1] = [addresses[0]] * (last + 1 - first)
            known.update(addresses)
        self._masters, self._known, self.doubted = masters, known, False
        return True

    def follow(self, told: Redirect, asked: Address) -> Address:
        """The node to ask instead. What has moved is remembered, and doubted is then where the others are."""
        host, port = told.address
        address = self._remap((host or asked[0], port))
        if not told.once:
            self._masters[told.slot] = address
            self.doubted = True
        return address

    def _address(self, node: Sequence[Any], asked: Address) -> Address:
        host, port = node[0], int(node[1])
        host = host.decode() if isinstance(host, bytes) else host
        return self._remap((host or asked[0], port))  # one that does not know its own: the one it was asked by


def redirect(error: BaseException | None) -> Redirect | None:
    """What a node's error says of where to ask."""
    if isinstance(error, AskError):
        return Redirect(error.slot_id, (error.host, error.port), once=not isinstance(error, MovedError))
    said = str(error).split() if isinstance(error, ResponseError) else []
    if len(said) == 3 and said[0] in (
        "MOVED",
        "ASK",
    ):  # to redis-py before 6, only a cluster client's parser knows them
        host, _, port = said[2].rpartition(":")
        return Redirect(int(said[1]), (host, int(port)), once=said[0] == "ASK")
    return None


def splits(error: BaseException | None) -> bool:
    """Whether some of the keys have moved already, and some not yet."""
    return isinstance(error, TryAgainError) or (isinstance(error, ResponseError) and str(error).startswith("TRYAGAIN"))


def serves(error: BaseException | None) -> bool:
    """Whether the node is as it should be, though this question is not for it: others may go on asking it."""
    return redirect(error) is not None or "Hash slot not served" in str(error)


def kept(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those options of a cluster client's connections that ours have, too."""
    return {name: value for name, value in options.items() if name in _KEPT or name.startswith("ssl_")}
