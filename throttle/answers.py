"""What a limiter makes of Redis's replies and of their absence, whichever way it asks: `Limiter`, `AsyncLimiter`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from throttle.alive import Alive
from throttle.decision import Decision
from throttle.denials import Denials
from throttle.errors import CostExceedsLimit, StoreUnavailable, ThrottleError
from throttle.keys import Namer
from throttle.leases import Leases
from throttle.outage import Outage
from throttle.question import OUTSIDE, UNLIMITED, Asked, Question, Scope, decision
from throttle.shadow import Shadow

#: What a limiter does with a refusal.
MODES = ("enforce", "shadow")


class Answers:
    """Questions of one scope, and what their replies mean under denial cache, failure policy and shadow mode.

    Args:
        namer, scope: names of the keys.
        now: test clock giving µs since the epoch.
        on_store_error, denials, lease, mode: as `Limiter` has them.
    """

    def __init__(
        self,
        namer: Namer,
        scope: str,
        now: Callable[[], int] | None,
        *,
        on_store_error: str,
        denials: int,
        lease: int,
        mode: str,
    ) -> None:
        if mode not in MODES:
            raise ThrottleError(f"mode={mode!r}: say {' or '.join(map(repr, MODES))}")
        if isinstance(denials, bool) or not isinstance(denials, int) or denials < 0:
            raise ThrottleError(f"denials={denials!r}: say how many refusals to remember, 0 for none")
        #: Seconds, by which people wait and refusals end: where there is a test clock, that one's.
        self.clock: Callable[[], float] = time.monotonic if now is None else lambda: now() / 1e6
        self.shadow = Shadow(scope, self.clock) if mode == "shadow" else None
        self.scope = Scope(namer, scope, now, "s:" if self.shadow else "b:")
        self.denials = Denials(denials, now) if denials else None
        leases = Leases(lease, now)
        self.leases = leases if lease > 1 and not self.shadow else None
        self.outage = Outage("open" if self.shadow else on_store_error, scope, self.clock, now)
        self.alive = Alive(namer.scope(scope), self.outage.local, self.clock) if self.outage.local else None

    def question(self, mode: str, asked: Sequence[Asked], key: object, cost: int) -> Question | None:
        """'take' or 'peek'; `None` where there is no limit at all, or one that only shadows what can never pass."""
        try:
            return self.scope.question(mode, asked, key, cost)
        except CostExceedsLimit as error:
            if self.shadow is None:
                raise
            self.shadow.note(f"cost {error.cost} exceeds capacity {error.capacity}")
            return None

    def known(self, question: Question) -> Decision | None:
        """A refusal that still holds."""
        said = self.denials.find(question) if self.denials is not None else None
        return self.shadow.of(said) if said is not None and self.shadow else said

    def without(self, question: Question, error: StoreUnavailable) -> Decision:
        """The answer while Redis gives none; raises the error where that is the policy."""
        return self.outage.answer(question, error)

    def heard(self, question: Question, reply: Any, asked: int) -> Decision:
        """What Redis answered; `asked` when (ns), if it may be remembered, else 0."""
        try:
            said = decision(question, reply)
        except StoreUnavailable as error:
            return self.without(question, error)
        if asked and self.denials is not None:
            if not said.allowed:
                self.denials.add(question, reply, said.retry_after, asked)
            elif self.denials.known:
                self.denials.taken(question.keys)
        return said if self.shadow is None else self.shadow.of(said)

    def forget(self, keys: Sequence[str]) -> None:
        """Something was given back to these buckets, or may have been."""
        if self.denials is not None:
            self.denials.forget(keys)
        if self.leases is not None:
            self.leases.forget(keys)


def outside(reply: Any) -> bool:
    """Whether the borders of a quota were not those of now: the question must be asked again."""
    return type(reply) in (bytes, str) and reply[:7] in (OUTSIDE, "outside")


__all__ = ["MODES", "UNLIMITED", "Answers", "outside"]


def check_timeout(timeout: Any) -> None:
    """Raise `ThrottleError` for what is no timeout: told by the first question, it would be an outage."""
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < math.inf:
        raise ThrottleError(f"timeout={timeout!r}: say seconds, as in timeout=0.25")


class Counting:
    """What every limiter counts, and what all of them check before anything is made."""

    _answers: Answers

    @property
    def shadowed(self) -> int:
        """Questions of this limiter that would have been refused, were it not in shadow mode."""
        return self._answers.shadow.count if self._answers.shadow else 0

    @property
    def unanswered(self) -> int:
        """Questions of this limiter that Redis did not answer."""
        return self._answers.outage.count
