"""How a guard asks: once, whether it may wait or must be awaited.

What a guard does is a generator that yields what may take time, a call of the limiter or an awaitable that a
user's callable returned, and is given what came of it. `run` and `arun` are the two ways to drive one.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import json
import math
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote

from throttle.asking import Asking, Outcome
from throttle.checks import callable_with
from throttle.decision import Decision
from throttle.errors import CostExceedsLimit, StoreUnavailable, ThrottleError
from throttle.http import PROBLEM, Identity, Refusal, Secret, discreet, refusal
from throttle.keyed import Of
from throttle.limits import Limit, TokenBucket, of_rate
from throttle.rates import Rate
from throttle.windows import Counted

if TYPE_CHECKING:
    from throttle.rules import Guard

T = TypeVar("T")
Bucket = tuple[str, str, str]  # scope, policy, key

_MOST = 10**9  # units of a cost that limiters take


class Call(NamedTuple):
    """A call of the limiter: it may wait for Redis."""

    function: Callable[..., Any]
    limits: list[Of]
    cost: int
    is_awaited: bool

    def ask(self) -> Any:
        """What the limiter answers, or promises to."""
        if len(self.limits) == 1:  # the shortest way, to a script of its own
            limit, key = self.limits[0]
            return self.function(limit, key=key, cost=self.cost)
        return self.function(*self.limits, cost=self.cost)


class Pause(NamedTuple):
    """A wait before what was granted may begin: a bucket with a depth has put this request into its line."""

    seconds: float


Steps = Generator["Call | Pause | Awaitable[Any]", Any, T]


def resolved(value: Any) -> Steps[Any]:
    """What a user's callable returned; awaited if need be."""
    if inspect.isawaitable(value):
        return (yield value)
    return value


def run(steps: Steps[T]) -> T:
    """Drive a generator; nothing may need to be awaited."""
    try:
        step = next(steps)
        while True:
            try:
                answer = _done(step)
            except Exception as exc:
                step = steps.throw(exc)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def arun(steps: Steps[T]) -> T:
    """Drive a generator; a limiter that waits does so in a thread."""
    try:
        step = next(steps)
        while True:
            try:
                answer = await (step.ask() if type(step) is Call and step.is_awaited else _awaited(step))
            except Exception as exc:
                step = steps.throw(exc)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def _done(step: Any) -> Any:
    if isinstance(step, Pause):
        return time.sleep(step.seconds)
    answer = step.ask() if isinstance(step, Call) else step
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise ThrottleError("check() cannot await: use acheck(), or a Limiter and callables that are not async")
    return answer


async def _awaited(step: Any) -> Any:
    if isinstance(step, Pause):
        return await asyncio.sleep(step.seconds)
    if not isinstance(step, Call):
        return await step
    answer: Any = await asyncio.to_thread(step.ask)
    return await answer if inspect.isawaitable(answer) else answer


# -- deciding ------------------------------------------------------------------------------------------------


def decide(guard: Guard, asking: Asking, questions: dict[int, list[Of]]) -> Steps[Outcome]:
    """Ask, for each cost, what this request has not paid yet; what was taken is given back if a later one refuses."""
    taken: list[tuple[dict[Bucket, Of], int]] = []
    pause = 0.0
    for cost, asked in questions.items():
        buckets = _unpaid(guard, asking, asked)
        if not buckets:
            continue
        limits = list(buckets.values())
        try:
            decision = yield Call(guard.limiter.acquire, limits, cost, guard.is_awaited)
        except (StoreUnavailable, CostExceedsLimit) as error:
            yield from _give_back(guard, taken)
            return Outcome({}, None, refusal(error) if isinstance(error, StoreUnavailable) else _too_large())
        asking.ledger.add(decision)
        if not decision.allowed:
            yield from _give_back(guard, taken)
            return (yield from _refused(guard, asking, decision))
        taken.append((buckets, cost))
        pause = max(pause, decision.delay)
    for buckets, _ in taken:
        asking.ledger.taken.update(buckets)
    if taken:
        asking.ledger.fields = guard.told(asking)
    if pause:
        yield Pause(pause)
    return Outcome(asking.ledger.fields, asking.ledger.decision)


def _refused(guard: Guard, asking: Asking, decision: Decision) -> Steps[Outcome]:
    asking.ledger.fields = guard.told(asking)
    standard = refusal(decision, guard.style, **guard.settings)
    whole = Refusal(standard.status, {**standard.fields, **asking.ledger.fields}, standard.body)
    answer = yield from guard.refused(asking, decision, whole)
    return Outcome(asking.ledger.fields, decision, answer)


def _unpaid(guard: Guard, asking: Asking, asked: list[Of]) -> dict[Bucket, Of]:
    """Each bucket once: neither two rules nor two layers charge it twice for one request."""
    limits: dict[Bucket, Of] = {}
    for of in asked:
        bucket = _bucket(guard, of)
        if bucket not in limits and bucket not in asking.ledger.taken:
            limits[bucket] = of
    return limits


def _bucket(guard: Guard, of: Of) -> Bucket:
    limit, key = of
    whom = key if limit.key is None or counts_others(limit) else limit.key
    return guard.scope, limit.label, "" if whom is None else f"={whom}"


def _give_back(guard: Guard, taken: list[tuple[dict[Bucket, Of], int]]) -> Steps[None]:
    for buckets, cost in taken:
        with contextlib.suppress(StoreUnavailable):
            yield Call(guard.limiter.refund, list(buckets.values()), cost, guard.is_awaited)


def _too_large() -> Refusal:
    """More than a limit ever holds: waiting would not help, so no Retry-After (RFC 9110 section 15.5.14)."""
    detail = "This request costs more than its limit can ever hold. Split it."
    body = {"type": "about:blank", "title": "Content Too Large", "status": 413, "detail": detail}
    return Refusal(413, {"Content-Type": PROBLEM, "Cache-Control": "no-store"}, json.dumps(body).encode())


# -- limits of rules -----------------------------------------------------------------------------------------

#: Whom to count apart, in words.
KEYS = ("address", "user", "api_key", "who", "route")


#: How keys begin that are made of who asks.
_OURS = ("ip:", "user:", "key:", "route:", "value:")


def given_key(identity: Identity, value: Any) -> Any:
    """What a callable says, as a key: nobody is to pass for an address, a user or an API key by that."""
    if isinstance(value, tuple):
        return identity.key(*map(discreet, value))
    value = discreet(value)
    if isinstance(value, Secret):
        return identity.key(value)
    return identity.key("value", value) if str(value).startswith(_OURS) else value


def check_key(key: Any) -> None:
    """Raise `ThrottleError` for what says nobody."""
    for one in key if isinstance(key, tuple) else (key,):
        if callable(one):
            callable_with("key", one, "Asking")
        elif one is not None and one not in KEYS:
            raise ThrottleError(f"key {one!r} is none of {', '.join(map(repr, KEYS))}, no callable, and not None")


def check_distinct(limits: Sequence[Any]) -> None:
    """Limits of one name would share a bucket.

    Raises:
        ThrottleError: two of one rule have the same.
    """
    names = [name for limit in limits if isinstance(name := getattr(limit, "name", None), str)]
    if len(set(names)) < len(names):
        raise ThrottleError(f"{', '.join(names)}: limits of one rule would share a bucket; give each its own name")


def counts_others(limit: Any) -> bool:
    """Whether a limit's own key is made of a task's arguments: a request has to say another."""
    return callable(limit.key) or "{" in str(limit.key)


def limit_of(said: Any) -> Any:
    """A limit, or the limit that a rate means to requests: a whole period's count may come at once.

    Raises:
        InvalidRate: a rate outside the grammar.
        TypeError: neither a limit nor a rate.
    """
    if said is None or isinstance(said, (TokenBucket, Counted)):
        return said
    if not isinstance(said, (str, tuple, Rate)):
        raise TypeError(f'{said!r} is no limit: say "10/min", TokenBucket("10/min", 20), … or a callable')
    return of_rate(said)


def in_rule(limit: Any, rule: str) -> Any:
    """The limit as one of a rule's: called after it, so that equal limits of two rules do not share a bucket."""
    if limit is None or limit.rate is None:
        return None
    known = limit.__dict__.setdefault("_in_rules", {})  # as many as there are rules: it is asked for every time
    if rule not in known:
        name = limit.name or (f"{rule} {_said(limit)}" if rule else None)
        is_word = limit.key in KEYS
        known[rule] = _renamed(limit, name, is_word) if is_word or name != limit.name else limit
    return known[rule]


def _said(limit: Any) -> str:
    """In short where its burst is what requests take it for."""
    return str(limit.rate) if limit == of_rate(limit.rate) else str(limit)


def _renamed(limit: Limit, name: str | None, without_key: bool) -> Limit:
    """A copy, however its class is made."""
    renamed = copy.copy(limit)
    for remembered in ("_in_rules", "_policy"):
        renamed.__dict__.pop(remembered, None)
    key = None if without_key else limit.key
    for field, value in {"name": name, "label": name or limit.label, "key": key}.items():
        object.__setattr__(renamed, field, value)
    return renamed


def ascii_text(text: str) -> str:
    """As it can stand in a field."""
    return quote(text, safe=" !#$&'()*+,/:;<=>?@[]^_`{|}~-.")


def units(cost: Any) -> int:
    """A cost as a whole number of units: a client may have had a hand in it.

    Raises:
        TypeError: it is no number.
    """
    if isinstance(cost, bool) or not isinstance(cost, (int, float)):
        raise TypeError(f"cost {cost!r} is no number of units")
    if not cost >= 0:  # less than nothing, or no number at all: it must not be a way to pay less
        return 1
    return math.ceil(min(cost, _MOST))
