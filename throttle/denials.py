"""What is refused until a moment is refused until then, without asking Redis again.

Who is refused tends to come back at once, and often. A question that Redis refused is answered here until Redis
would allow it, 1 s at most at a time: for so long may a reset or a refund in another process stay unknown.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, NamedTuple

from throttle.decision import Decision
from throttle.question import Question, still_refused

BELIEVED = 10**9  #: ns for which a refusal is believed at most
DRIFT = 10_000  #: two clocks drift apart by less than one part in so many


class _Denial(NamedTuple):
    asked: int  # ns, just before Redis was asked, so that it ends here before it ends there
    until: int
    heard: int  # just after: what is left counts from here, so that nobody is told to come too early
    reply: Any


class Denials:
    """Refusals that still hold. Threads may share it.

    A question is its limits as they say themselves, its keys, its cost: another cost, or a limit that has changed,
    is another question. Only a take is answered; a peek asks Redis.

    Args:
        size: refusals remembered; the one longest without a new answer from Redis goes first.
        now: test clock giving µs, as the limiter's time is that one's then; else it is monotonic.
    """

    def __init__(self, size: int, now: Callable[[], int] | None = None) -> None:
        self._size, self._test = size, now is not None
        #: Nanoseconds.
        self.clock: Callable[[], int] = time.monotonic_ns if now is None else lambda: now() * 1000
        #: What is remembered; empty, there is nothing to look up.
        self.known: OrderedDict[tuple[str, ...], _Denial] = OrderedDict()
        self._buckets: set[str] = set()  # those of all that is remembered, and of some that is not any more
        self._given: dict[str, int] = {}  # buckets that had something given back, and when
        self._lock = Lock()

    def find(self, question: Question) -> Decision | None:
        """The refusal that still holds, with what is left of its times; `None`: ask Redis."""
        denial = self.known.get(self._name(question))
        if denial is None:
            return None
        now = self.clock()
        if not denial.asked <= now < denial.until or (self._given and self._given_since(denial.asked, question.keys)):
            return None
        return still_refused(question, denial.reply, (now - denial.heard) // 1000)

    def add(self, question: Question, reply: Any, wait: float, asked: int) -> None:
        """Redis has refused it, for `wait` seconds; asked when (ns)."""
        name = self._name(question)
        holds = BELIEVED if wait * 1e9 >= BELIEVED else round(wait * 1e6) * 1000
        denial = _Denial(asked, asked + holds - holds // DRIFT, self.clock(), reply)
        with self._lock:
            self.known.pop(name, None)
            self.known[name] = denial
            self._buckets.update(question.keys)
            if len(self.known) > self._size:
                self.known.popitem(last=False)
                if len(self._buckets) > 4 * self._size + 1000:
                    self._buckets = {bucket for one in self.known for bucket in one}

    def taken(self, keys: Sequence[str]) -> None:
        """Something else, that costs less, was let pass here: what is refused is so for longer, so ask for how long."""
        there = [key for key in keys if key in self._buckets]
        if there:
            self.forget(there)

    def forget(self, keys: Sequence[str]) -> None:
        """Something was given back to these buckets, or they were reset: what is known of them no longer holds.

        Nor does what Redis is saying just now to others who asked before.
        """
        now = self.clock()
        with self._lock:
            for key in keys:
                self._given[key] = now
            if len(self._given) > self._size:
                self._given = {key: at for key, at in self._given.items() if at > now - BELIEVED}
                if len(self._given) > self._size:
                    self.known.clear()
                    self._given.clear()

    def _given_since(self, asked: int, keys: Sequence[str]) -> bool:
        return any(self._given.get(key, asked - 1) >= asked for key in keys)

    def _name(self, question: Question) -> tuple[str, ...]:
        if self._test:  # the time is part of what is asked
            mode, _, text = question.text.split(" ", 2)
            return (*question.keys, mode, text)
        return (*question.keys, question.text)
