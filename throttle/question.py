"""One question to the limits of a scope: what to ask Redis, and what its answer says. No input, no output."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from throttle.decision import Decision
from throttle.errors import InvalidRate, StoreUnavailable, ThrottleError
from throttle.keyed import Of
from throttle.keys import Namer
from throttle.limits import Limit, TokenBucket, check_units, policy_of
from throttle.windows import Counted, FixedWindow, SlidingLog, SlidingWindow

#: What one asks: a limit, a limit for a key, or a callable that is given the key and returns a limit (tiers).
Asked = Limit | Of | Callable[[Any], "Limit | None"]

#: The answer where there is no limit.
UNLIMITED = Decision(True, 0, 0, 0.0, 0.0)

OUTSIDE = b"outside"  # how a script begins to answer if a quota's borders were not those of now


class Question(NamedTuple):
    """Ready to be asked: the script, its keys, its one argument; and what to read the reply by."""

    script: str
    keys: Sequence[str]
    text: str
    limits: Sequence[Any]
    cost: int


class _Usual(NamedTuple):
    """What is the same in each question to the same limits: making it anew took 2 µs of the 3.8 of three limits.

    It holds the limits by whose ids it is remembered, so that these are nobody else's.
    """

    limits: tuple[Any, ...]
    buckets: list[str]  # without whom
    text: str


class Scope:
    """Makes questions of one scope and reads the replies.

    Args:
        namer: names of the keys.
        scope: what shares buckets.
        now: test clock giving µs since the epoch.
        part: what the buckets' names begin with, within the scope.
    """

    def __init__(self, namer: Namer, scope: str, now: Callable[[], int] | None = None, part: str = "b:") -> None:
        self._prefix = namer.scope(scope) + part
        self._identity, self._now = namer.identity, now
        self._usual: dict[tuple[int, ...], _Usual] = {}

    def question(self, mode: str, asked: Sequence[Asked], key: object, cost: int) -> Question | None:
        """'take' or 'peek'; `None` where there is no limit at all.

        Raises:
            CostExceedsLimit, InvalidRate, ThrottleError, TypeError: a question that makes no sense.
        """
        at = "-" if self._now is None else self._now()
        if len(asked) == 1 and type(asked[0]) in _BUCKETS:  # the usual: by the shortest way
            bucket: Any = asked[0]
            if not _counts(bucket, key, cost):
                return None
            return Question("acquire", (self._bucket(bucket, key),), f"{mode} {at} {bucket.packed}{cost}", asked, cost)
        if len(asked) == 1 and type(asked[0]) is FixedWindow:
            window = asked[0]
            if not _counts(window, key, cost):
                return None
            text = f"{mode} {at} {window.quota} {window.period} {cost}"
            return Question("acquire_fixed", (self._bucket(window, key),), text, asked, cost)
        usual = self._usual.get((cost, *map(id, asked))) if type(cost) is int else None  # to it, 1 and True are one
        if usual is not None:
            whom = "-" if key is None else self._identity(key)
            keys = [bucket + whom for bucket in usual.buckets]
            return Question("acquire_all", keys, f"{mode} {at} {usual.text}", usual.limits, cost)
        limits, keys = self._resolved(asked, key, cost)
        if not limits:
            return None
        texts = self._texts(limits, cost, None if at == "-" else int(at))
        self._remember(asked, cost, texts)
        return Question("acquire_all", keys, f"{mode} {at} {texts}", limits, cost)

    def _remember(self, asked: Sequence[Asked], cost: int, text: str) -> None:
        """What is asked of these very limits, if it is the same each time."""
        limits: tuple[Any, ...] = tuple(asked)
        if type(cost) is not int or any(type(limit) not in _STEADY or limit.key is not None for limit in limits):
            return
        if any(limit.rate is None for limit in limits):
            return
        if len(self._usual) >= _REMEMBERED:  # somebody makes limits as they come, which is not to fill the memory
            self._usual.clear()
        buckets = [self._bucket(limit, None)[:-1] for limit in limits]
        self._usual[(cost, *map(id, limits))] = _Usual(limits, buckets, text)

    def refund(self, asked: Sequence[Asked], key: object, cost: int) -> Question | None:
        """To give units back."""
        limits, keys = self._resolved(asked, key, cost)
        if not limits:
            return None
        now = None if self._now is None else self._now()
        text = f"{'-' if now is None else now} {self._texts(limits, cost, now)}"
        return Question("refund", keys, text, limits, cost)

    def again(self, question: Question, reply: bytes | str) -> Question:
        """The same, with the borders of quotas as the clock of Redis has them."""
        now = int(reply.split()[1])
        head = question.text.split(" ")[: 2 if question.script == "acquire_all" else 1]
        return question._replace(text=f"{' '.join(head)} {self._texts(question.limits, question.cost, now)}")

    def keys(self, asked: Sequence[Asked], key: object) -> list[str]:
        """Where the buckets are."""
        return self._resolved(asked, key, 0)[1]

    def _resolved(self, asked: Sequence[Asked], key: object, cost: int) -> tuple[list[Limit], list[str]]:
        limits, keys = [], []
        for one in asked:
            limit, whom = one if isinstance(one, Of) else (one, key)
            if callable(limit):
                limit = limit(whom)
            if limit is not None and _counts(limit, whom, cost):
                limits.append(limit)
                keys.append(self._bucket(limit, whom))
        if len(set(keys)) < len(keys):
            raise InvalidRate(f"{', '.join(limit.label for limit in limits)}: each limit needs a name of its own")
        return limits, keys

    def _texts(self, limits: Sequence[Limit], cost: int, now: int | None) -> str:
        at = round(time.time() * 1e6) if now is None else now  # only quotas look at it, and ask again if it is wrong
        return ";".join([f"{limit.asked(at)}{cost}" for limit in limits])

    def _bucket(self, limit: Limit, key: object) -> str:
        whom = key if limit.key is None else _whom(limit, key)
        policy = limit.__dict__.get("_policy") or _policy(limit)
        return f"{self._prefix}{policy}|{'-' if whom is None else self._identity(whom)}"


_BUCKETS = {TokenBucket, *TokenBucket.__subclasses__()}
_STEADY = {*_BUCKETS, FixedWindow, SlidingWindow, SlidingLog}  # what they ask does not change with time
_REMEMBERED = 1000


def _counts(limit: Limit, key: object, cost: int) -> bool:
    """Whether there is such a limit at all; raises if it could never let the cost pass."""
    if not isinstance(limit, (TokenBucket, Counted)):
        raise TypeError(f'{limit!r}: say TokenBucket("5/min") for a rate')
    if limit.rate is None:
        return False
    if type(cost) is not int or not 0 <= cost <= limit.capacity:
        check_units(cost)
        if not limit.closed:
            limit.check_cost(cost, None if key is None else str(key))
    return True


def _whom(limit: Limit, key: object) -> object:
    """Whom a limit with a key of its own counts."""
    if callable(limit.key) or "{" in str(limit.key):  # made of a task's arguments there, given here
        if key is None:
            raise ThrottleError(f"limit {limit.label!r} counts each {limit.key!r} apart: acquire() needs a key")
        return key
    return limit.key


def _policy(limit: Limit) -> str:
    """A limit's name as it stands in Redis; without one, what it says. Remembered: it is asked every time."""
    policy = policy_of(limit, str(limit).replace(" ", ""))
    limit.__dict__["_policy"] = policy
    return policy


def decision(question: Question, reply: Any) -> Decision:
    """What the reply says.

    Raises:
        StoreUnavailable: it is none of ours: a proxy may have spoken.
    """
    try:
        if question.script == "acquire":
            return _of_one(question.limits, question.cost, reply, question.text)
        which, wait, remaining, reset, *delay = reply.split()
        said = _of_several(question.limits, int(which), int(wait), int(remaining), int(reset))
        return said._replace(delay=int(delay[0]) / 1e6) if delay else said
    except (TypeError, ValueError, AttributeError, IndexError):
        raise StoreUnavailable(f"what answers is no Redis, or no script of ours: {reply!r:.60}") from None


def still_refused(question: Question, reply: Any, since: int) -> Decision:
    """What the reply, a refusal, comes to `since` µs later, while it holds: its times are as much shorter."""
    if question.script == "acquire":
        return _of_one(question.limits, question.cost, min(-1, reply + since), question.text)
    which, wait, remaining, reset = map(int, reply.split())
    first, reset = question.limits[which - 1], max(0, reset - since)
    if isinstance(first, TokenBucket) and first.interval:  # units come back meanwhile, though not enough
        remaining = max(0, first.capacity + -reset // first.interval)
    return _of_several(question.limits, which, max(1, wait - since) if wait >= 0 else wait, remaining, reset)


def _of_several(asked: Sequence[Any], which: int, wait: int, remaining: int, reset: int) -> Decision:
    first = asked[which - 1]
    policies = tuple(asked) if which == 1 else (first, *asked[: which - 1], *asked[which:])
    retry_after = wait / 1e6 if wait >= 0 else math.inf
    return Decision(wait == 0, first.capacity, remaining, retry_after, reset / 1e6, policies)


def _in_line(said: Decision, limit: Any, cost: int, asked: str) -> Decision:
    """With the delay until the last of its units has its moment: what the burst alone would have it wait for."""
    lacks = round(said.reset_after * 1e6) + (0 if asked.startswith("take") else cost * limit.interval)
    return said._replace(delay=max(0, lacks - limit.burst * limit.interval) / 1e6) if cost else said


def _of_one(limits: Any, cost: int, reply: int, asked: str) -> Decision:
    """What the time until the bucket is full says, as lib/gcra has it; below zero it is a refusal."""
    limit = limits[0]
    interval, burst = limit.interval, limit.capacity
    if reply >= 0:
        said = Decision(True, burst, max(0, burst + -reply // interval), 0.0, reply / 1e6, limits)
        return said if not limit.depth else _in_line(said, limit, cost, asked)
    reset = -1 - reply
    if not interval:
        return Decision(False, burst, 0, math.inf, reset / 1e6, limits)
    wait = reset + (cost - burst) * interval
    return Decision(False, burst, max(0, burst + -reset // interval), wait / 1e6, reset / 1e6, limits)
