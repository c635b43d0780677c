"""Leases: units of a busy key taken several at a time, so that most of its requests ask Redis nothing.

Only while a key's limits are far from biting, and only for keys that are asked about often; near the limit each
request asks for itself. What was taken ahead is used within `SPAN` or lost. So for every interval of length t at most
burst + rate * t + units * limiters pass, where each process has one limiter.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from throttle.decision import Decision
from throttle.errors import ThrottleError
from throttle.limits import TokenBucket
from throttle.question import Question

SPAN = 0.1  #: s within which what was taken ahead is used, or lost
HOT = 0.01  #: s within which a key's next question must come, to be worth it: 10 of them in a span
ROOM = 10  #: times the units of a lease that must be left, so that what is taken ahead is missed by nobody
MOST = 1000  #: units of a lease
KEYS = 1000  #: keys remembered; the longest unused goes first
NOTHING = Decision(False, 0, 0, 0.0, 0.0)


class _Lease:
    __slots__ = ("filling", "left", "said", "seen", "until")  # `filling`: for so many questions; 0: not now

    def __init__(self, said: Decision, seen: float) -> None:
        self.said, self.seen = said, seen  # what Redis said last, and when it was last asked for
        self.left, self.until, self.filling = 0, 0.0, 0

    def is_used(self, now: float) -> bool:
        return bool(self.filling) or (self.left > 0 and now < self.until)


class Leases:
    """What one process has taken ahead. Threads may share it; a fork inherits nothing.

    Args:
        units: of each bucket that are taken ahead; so a lease answers as many questions of cost 1.
        now: test clock giving µs, as the limiter's time is that one's then; else it is monotonic.
    """

    def __init__(self, units: int, now: Callable[[], int] | None = None) -> None:
        if isinstance(units, bool) or not isinstance(units, int) or not 0 <= units <= MOST:
            raise ThrottleError(f"lease={units!r}: say how many units to take at a time, up to {MOST}; 0 for none")
        self.units, self._test = units, now is not None
        #: Seconds.
        self.clock: Callable[[], float] = time.monotonic if now is None else lambda: now() / 1e6
        self._held: OrderedDict[tuple[str, ...], _Lease] = OrderedDict()
        self._of: dict[str, _Lease] = {}  # the lease that a bucket is in
        self._lock, self._pid = Lock(), os.getpid()

    def find(self, question: Question) -> Decision | None:
        """The answer, if it was taken ahead."""
        lease = self._held.get(self._name(question))
        if lease is None or self._pid != os.getpid():
            return None
        with self._lock:
            now = self.clock()
            if lease.left <= 0 or not now < lease.until:
                return None
            lease.left, lease.seen = lease.left - 1, now
            said = lease.said
        remaining = said.remaining + lease.left * question.cost
        return Decision(True, said.limit, remaining, 0.0, said.reset_after, said.policies)

    def begins(self, question: Question) -> int:
        """For how many such questions to ask now; 0: only for itself. Who hears so tells `ends` what came of it."""
        lease = self._held.get(self._name(question))
        if lease is None or self._pid != os.getpid() or not question.cost:
            return 0
        with self._lock:
            now, count = self.clock(), self.units // question.cost
            hot = 0 <= now - lease.seen < HOT
            room = lease.said.allowed and lease.said.remaining >= ROOM * self.units
            if count < 2 or not hot or not room or self._is_lent(question.keys, now):
                return 0
            lease.filling = count
            self._of.update(dict.fromkeys(question.keys, lease))
            return count

    def _is_lent(self, buckets: Sequence[str], now: float) -> bool:
        """Whether one of them is in a lease: other questions, of other costs or with other limits, have theirs."""
        if len(self._of) > 4 * KEYS:
            self._of = {bucket: lease for bucket, lease in self._of.items() if lease.is_used(now)}
        return any(bucket in self._of and self._of[bucket].is_used(now) for bucket in buckets)

    def ends(self, question: Question, said: Decision | None, asked: float) -> Decision | None:
        """The answer, as Redis said so to a question for a whole lease; `None`: there is no room for that.

        Args:
            question: that of one.
            said: `None` if Redis did not answer.
            asked: when (s).
        """
        with self._lock:
            lease = self._of.get(question.keys[0]) or _Lease(NOTHING, 0.0)
            self._held[self._name(question)] = lease  # others may have crowded it out meanwhile
            count, lease.filling, lease.seen, lease.said = lease.filling, 0, self.clock(), said or NOTHING
            if not lease.said.allowed:
                return None
            lease.left, lease.until = count - 1, asked + SPAN
            return lease.said._replace(remaining=lease.said.remaining + lease.left * question.cost)

    def note(self, question: Question, said: Decision) -> None:
        """Redis said so to a question of its own."""
        if not _can_be_lent(question):
            return
        if self._pid != os.getpid():  # its lock may have been held by a thread that is not here
            self._held, self._of, self._lock, self._pid = OrderedDict(), {}, Lock(), os.getpid()
        with self._lock:
            name, now = self._name(question), self.clock()
            lease = self._held.get(name)
            if lease is None:
                self._held[name] = _Lease(said, now)
            else:
                lease.said, lease.seen = said, now
                self._held.move_to_end(name)
            if len(self._held) > KEYS:
                self._held.popitem(last=False)

    def forget(self, buckets: Sequence[str]) -> None:
        """They were reset, or had something given back: what was taken ahead of that is not used any more."""
        if self._pid != os.getpid():  # a fork has taken nothing
            return
        with self._lock:
            for lease in {id(lease): lease for bucket in buckets if (lease := self._of.get(bucket))}.values():
                lease.left, lease.filling = 0, min(lease.filling, 1)

    def _name(self, question: Question) -> tuple[str, ...]:
        if self._test:  # the time is part of what is asked
            return (*question.keys, question.text.split(" ", 2)[2])
        return (*question.keys, question.text)


def _can_be_lent(question: Question) -> bool:
    """Whether the units are of buckets alone: those of a window or a calendar are not to be used in the next one."""
    limits: Any = question.limits
    return all(isinstance(limit, TokenBucket) and not limit.depth for limit in limits)
