"""A question about buckets in different hash slots of a Redis Cluster. No input, no output.

No script reaches two slots. So all buckets are looked at first, and one that refuses decides: nothing was changed.
If none does, units are taken from one after another, always in the same order; should one refuse now, as others were
quicker, what was taken is given back. Meanwhile others see less than there is, never more. What cannot be given back
(a node does not answer, the process dies) comes back by itself: fewer pass until then, never more.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from functools import cache
from typing import Any, NamedTuple

from redis.crc import key_slot

from throttle.errors import StoreUnavailable
from throttle.question import OUTSIDE
from throttle.scripts import script

#: The scripts that requests need.
SCRIPTS = ("acquire", "acquire_fixed", "acquire_all", "refund", "alive")

#: What is taken last, as it is given back worst: of a log the oldest units, so that those that stay count for longer;
#: of a line nothing, as who stands behind was told a moment already.
_LATE = {"log": 1, "queue": 2}


class Ask(NamedTuple):
    """A script, or a plain command, whose keys are in one slot."""

    what: str
    keys: Sequence[str]
    args: Sequence[Any]
    timed: bool = False  # the node's clock is to be read just before
    last: bool = False  # it may use the time kept for giving back

    @property
    def slot(self) -> int:
        """The slot of its keys."""
        return slot_of(self.keys[0])

    @property
    def commands(self) -> list[tuple[Any, ...]]:
        """What a node is sent: the second, if it says that it does not know the script."""
        if self.what not in SCRIPTS:
            return [(self.what, *self.keys)]
        made, rest = script(self.what), (len(self.keys), *self.keys, *self.args)
        return [("EVALSHA", made.sha, *rest), ("EVAL", made.text, *rest)]


class Answer(NamedTuple):
    """The reply; and the node's clock (µs) just before, if that was wanted."""

    reply: Any
    at: int = 0


class Split(Exception):
    """Some keys of a script have moved to another node and some not yet: ask for each alone."""


MOVING = "Redis cannot serve: keys are on their way to another node"


#: Says what to ask, at once if it is several, and is told the answers or errors; returns the reply to it all.
Steps = Generator[Sequence[Ask], Sequence["Answer | Exception"], Any]


class _Part(NamedTuple):
    place: int  # among the limits of the question
    key: str
    said: str  # what the scripts take of its limit, with the cost

    @property
    def kind(self) -> str:
        return self.said.partition(" ")[0]

    def ask(self, mode: str, at: str, *, timed: bool = False) -> Ask:
        return Ask("acquire_all", (self.key,), (f"{mode} {at} {self.said}",), timed)

    def back(self, at: str, since: int | None) -> Ask:
        since_then = "" if since is None else f" {since}"
        return Ask("refund", (self.key,), (f"{at} {self.said}{since_then}",), last=True)


class _Said(NamedTuple):
    """What `acquire_all` says of one part."""

    place: int
    wait: float  # µs; infinite while closed
    remaining: int
    reset: int
    delay: int
    outside: int | None = None  # µs: by this clock its quota's borders are not those of now

    @property
    def refuses(self) -> bool:
        return self.wait > 0 or self.outside is not None


def trip(replies: Sequence[Any], ask: Ask) -> Answer:
    """What a node answered to the question and to what came just before it; raises the first error among it."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return Answer(replies[-1], int(replies[0][0]) * 10**6 + int(replies[0][1]) if ask.timed else 0)


def final(error: Exception) -> StoreUnavailable:
    """The same without its cause: who sees that might ask again, and the nodes have been asked again already."""
    return StoreUnavailable(str(error))


@cache
def named(sha: str) -> str:
    """Which script has that digest."""
    return next(name for name in SCRIPTS if script(name).sha == sha)


def slot_of(key: str) -> int:
    """The hash slot of a key."""
    return int(key_slot(key.encode()))


def each(verb: str, keys: Sequence[str]) -> Steps:
    """A plain command for each key; the sum of its replies.

    Raises:
        StoreUnavailable: a node does not answer.
    """
    answers = yield [Ask(verb, (key,), (), last=True) for key in keys]
    for answer in answers:
        if not isinstance(answer, Answer):
            raise answer
    return sum(answer.reply for answer in answers if isinstance(answer, Answer))


def steps(name: str, keys: Sequence[str], args: Sequence[Any]) -> Steps:
    """One script where one slot has all keys; else one for each key.

    Raises:
        StoreUnavailable: a node does not answer, and no other refuses.
    """
    if len({slot_of(key) for key in keys}) == 1:
        (answer,) = yield [Ask(name, keys, args, last=True)]
        if isinstance(answer, Answer):
            return answer.reply
        if not isinstance(answer, Split):
            raise answer
    head, _, rest = args[0].partition(" ")
    if name == "refund":
        return (yield from _given(head, _parts(keys, rest)))
    at, _, rest = rest.partition(" ")
    return (yield from _decided(head, at, _parts(keys, rest)))


def _parts(keys: Sequence[str], rest: str) -> list[_Part]:
    parts = [_Part(place, key, said) for place, (key, said) in enumerate(zip(keys, rest.split(";"), strict=True))]
    return sorted(parts, key=lambda part: (_LATE.get(part.kind, 0), slot_of(part.key)))


def _decided(mode: str, at: str, parts: Sequence[_Part]) -> Steps:
    """Looked at, and if all pass, taken from all or from none."""
    first = parts[:1] if mode == "take" else []
    others = parts[len(first) :]
    heard, failed = _heard(others, (yield [part.ask("peek", at) for part in others]))
    refused = [said for said in heard if said.refuses]
    if refused and first:  # it may have one wait for longer
        more, _ = _heard(first, (yield [part.ask("peek", at) for part in first]))
        refused += [said for said in more if said.refuses]
    if refused:
        return _refused(refused)
    if failed:
        raise failed
    return (yield from _taken(at, parts)) if mode == "take" else _allowed(heard)


def _taken(at: str, parts: Sequence[_Part]) -> Steps:
    passed: list[tuple[_Part, _Said, int]] = []
    for part in parts:
        (answer,) = yield [part.ask("take", at, timed=at == "-" and part is not parts[-1])]
        heard, failed = _heard([part], [answer])
        if isinstance(answer, Answer) and not heard[0].refuses:
            passed.append((part, heard[0], answer.at if at == "-" else int(at)))
            continue
        yield [one.back(at, since) for one, _, since in passed if one.kind != "queue"]
        if failed:
            raise failed
        return _refused(heard)
    return _allowed([said for _, said, _ in passed])


def _given(at: str, parts: Sequence[_Part]) -> Steps:
    """Given back to each. Quotas first: if one's borders are wrong, all is asked again, so nothing may be done yet."""
    failed, done = None, False
    for part in sorted(parts, key=lambda part: part.kind != "quota"):
        (answer,) = yield [part.back(at, None)]
        if not isinstance(answer, Answer):
            failed = answer
        elif not done and _outside(answer.reply) is not None:
            return answer.reply
        else:
            done = True
    if failed:
        raise failed
    return 1


def _heard(parts: Sequence[_Part], answers: Sequence[Answer | Exception]) -> tuple[list[_Said], Exception | None]:
    """What was said, and why something was not."""
    heard, failed = [], None
    for part, answer in zip(parts, answers, strict=True):
        if isinstance(answer, Answer):
            heard.append(_read(part, answer.reply))
        else:
            failed = failed or answer
    return heard, failed


def _outside(reply: Any) -> int | None:
    return int(reply.split()[1]) if isinstance(reply, bytes) and reply.startswith(OUTSIDE) else None


def _read(part: _Part, reply: bytes) -> _Said:
    outside = _outside(reply)
    if outside is not None:
        return _Said(part.place, 0, 0, 0, 0, outside)
    _, wait, remaining, reset, *delay = map(int, reply.split())
    return _Said(part.place, wait if wait >= 0 else math.inf, remaining, reset, delay[0] if delay else 0)


def _allowed(heard: Sequence[_Said]) -> bytes:
    """As `acquire_all` says it: of the limit nearest to empty, with the longest delay."""
    said = min(heard, key=lambda said: (said.remaining, said.place))
    delay = max(one.delay for one in heard)
    return f"{said.place + 1} 0 {said.remaining} {said.reset}{f' {delay}' if delay else ''}".encode()


def _refused(heard: Sequence[_Said]) -> bytes:
    """As `acquire_all` says it: of the limit that has one wait longest. Of two clocks, the one behind is outside."""
    outside = [said.outside for said in heard if said.outside is not None]
    if outside:
        return b"%b %d" % (OUTSIDE, min(outside))
    said = max(heard, key=lambda said: (said.wait, -said.place))
    wait = -1 if math.isinf(said.wait) else int(said.wait)
    return f"{said.place + 1} {wait} {said.remaining} {said.reset}".encode()
