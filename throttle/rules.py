"""Rules: which limits a request is asked of, and for whom. No framework, and no input or output but the limiter's.

    guard = Guard(
        Limiter("redis://localhost", scope="api"),
        Rule(("300/min", "address"), (by_plan, "api_key"), ("1000/s", None), path="/sms/{id}", methods="POST"),
        Rule("5/min", path="/login", key="address", name="login"),
        exempt=["/health", "/static/*"],
        api_key=checked_key,
    )
    outcome = guard.check(Asking("POST", "/sms/7", peer="192.0.2.1", headers=[...]))

All rules that match apply together, in one decision: a refusal by one takes nothing from the others.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from throttle.asking import Asking, Ledger, Outcome
from throttle.checks import callable_with, check_cost, check_flag, check_text, several
from throttle.decision import Decision
from throttle.errors import ThrottleError
from throttle.http import Identity, Refusal, fields
from throttle.keyed import Of
from throttle.limits import TokenBucket
from throttle.paths import Pattern
from throttle.policing import Steps, arun, decide, given_key, in_rule, limit_of, resolved, run, units
from throttle.rule import Limited, Rule

__all__ = ["Asking", "Guard", "Ledger", "Limited", "Outcome", "Pattern", "Rule", "limit_of"]


class Guard:
    """Asks the limits of all rules that match a request, and says what to answer.

    Args:
        limiter: a `Limiter`; an `AsyncLimiter` for `acheck`.
        rules: all that match apply together, in one decision; in the order given, until one that is `last`.
        identity: says how far forwarded addresses are believed.
        api_key: a callable given the `Asking` that returns the key if it is a valid one, else `None`; or a header's
            name, believed as it is: only where something before this app has checked it, for otherwise each
            invented key is a new bucket.
        user: a callable given the `Asking` that returns whatever names the user, or `None`.
        exempt: paths (templates or patterns) and callables given the `Asking` that are not limited.
        style: of the response fields, as `throttle.http.fields` has it.
        on_refused: called with the `Asking` and the decision; may return another `Refusal`. Fields that it does not
            have are added to it.
        cost: units of a request where a rule says none, or a callable given the `Asking`.
        preflights: whether CORS preflights are limited: browsers send them unasked, and cannot show a 429 of one.
        settings: more of `throttle.http.fields`.

    Raises:
        ThrottleError, TypeError: a setting that makes no sense.
    """

    def __init__(
        self,
        limiter: Any,
        *rules: Rule,
        identity: Identity | None = None,
        api_key: str | Callable[[Asking], Any] | None = None,
        user: Callable[[Asking], Any] | None = None,
        exempt: Iterable[str | Callable[[Asking], Any]] = (),
        style: str | tuple[str, ...] = "draft-8",
        on_refused: Callable[[Asking, Decision], Any] | None = None,
        cost: int | Callable[[Asking], Any] = 1,
        preflights: bool = False,
        **settings: Any,
    ) -> None:
        sample = Decision(False, 0, 0, 1.0, 1.0, (TokenBucket("1/s"),))
        fields(sample, style, **settings)  # a misspelt setting is an error now
        is_limiter = hasattr(limiter, "acquire") and not isinstance(limiter, type)
        if not is_limiter or not all(isinstance(rule, Rule) for rule in rules):
            raise ThrottleError(
                'a guard takes a limiter, then rules: Guard(Limiter(url), Rule("9/min", key="address"))'
            )
        _check(identity, api_key, user, on_refused, cost, preflights)
        self.limiter, self.rules = limiter, rules
        #: Whether it was told which rules are for no route.
        self.is_told = False
        self.scope = str(getattr(limiter, "scope", ""))
        self.is_awaited = inspect.iscoroutinefunction(getattr(limiter, "acquire", None))
        self.identity = identity or Identity()
        self._direct = lru_cache(4096)(self.identity.who)  # reading an address takes longer than the rules
        self.api_key, self.user, self.on_refused, self.cost = api_key, user, on_refused, cost
        self.exempt = _exempt(exempt)
        self.style, self.preflights, self.settings = style, preflights, settings

    def check(self, asking: Asking, *rules: Rule) -> Outcome:
        """Ask the limits that apply, and take from them; sleeps where a `LeakyBucket` lets it in with a delay.

        Args:
            asking: the request.
            rules: instead of the guard's own, for a decorator or a dependency.

        Raises:
            ThrottleError: the limiter or a callable must be awaited: `acheck` does.
        """
        return run(self._steps(asking, rules or self.rules))

    async def acheck(self, asking: Asking, *rules: Rule) -> Outcome:
        """As `check`; what returns an awaitable is awaited, and a `Limiter` waits in a thread."""
        return await arun(self._steps(asking, rules or self.rules))

    def _steps(self, asking: Asking, rules: Iterable[Rule]) -> Steps[Outcome]:
        applying = self._applying(asking, rules)
        if not applying or (self._may_be_exempt(asking) and (yield from self._is_exempt(asking))):
            return Outcome(asking.ledger.fields)
        if self.api_key is not None or self.user is not None:
            yield from self._introduce(asking)
        questions = yield from self._questions(asking, applying)
        return (yield from decide(self, asking, questions))

    def _applying(self, asking: Asking, rules: Iterable[Rule]) -> list[Rule]:
        applying = []
        for rule in rules:
            if rule.matches(asking):
                applying.append(rule)
                if rule.last:
                    break
        return applying

    def _may_be_exempt(self, asking: Asking) -> bool:
        return bool(self.exempt) or asking.method == "OPTIONS"

    def _is_exempt(self, asking: Asking) -> Steps[bool]:
        if not self.preflights and asking.is_preflight:
            return True
        for one in self.exempt:
            if isinstance(one, Pattern):
                if one.matches(asking):
                    return True
            elif (yield from resolved(one(asking))):
                return True
        return False

    def _introduce(self, asking: Asking) -> Steps[None]:
        """Who asks, where it is not known yet."""
        if asking.api_key is None and self.api_key is not None:
            told = self.api_key
            key = asking.header(told) if isinstance(told, str) else (yield from resolved(told(asking)))
            asking.api_key = None if key is None else str(key)
        if asking.user is None and self.user is not None:
            asking.user = yield from resolved(self.user(asking))

    def _questions(self, asking: Asking, rules: Iterable[Rule]) -> Steps[dict[int, list[Of]]]:
        """What to ask, by cost: one question takes one cost of each limit."""
        questions: dict[int, list[Of]] = {}
        for rule in rules:
            cost = self.cost if rule.cost is None else rule.cost
            count = units((yield from resolved(cost(asking))) if callable(cost) else cost)
            for limit, key in rule.limits:
                if callable(limit):
                    limit = in_rule(limit_of((yield from resolved(limit(asking)))), rule.name)
                if limit is not None:
                    # No generator where there is nothing to wait for: it is one of the costs of each request.
                    whom = self._named(asking, key) if type(key) is str else (yield from self._whom(asking, key))
                    questions.setdefault(count, []).append(Of(limit, whom))
        return questions

    def _whom(self, asking: Asking, key: Any) -> Steps[Any]:
        """Whom a key says; text for the limiter, or `None` for all together."""
        if isinstance(key, Of):
            return key.key
        if isinstance(key, tuple):
            parts = []
            for one in key:
                parts.append((yield from self._whom(asking, one)) or "")  # noqa: PERF401 (a comprehension cannot yield)
            return self.identity.key(*parts)
        if not callable(key):
            return None if key is None else self._named(asking, key)
        value = yield from resolved(key(asking))
        if value is None:
            return self._named(asking, "address")
        return given_key(self.identity, value)

    def _named(self, asking: Asking, key: str) -> str:
        if key == "route":
            return self.identity.key("route", self._route(asking))
        api_key = asking.api_key if key in ("api_key", "who") else None
        user = asking.user if key in ("user", "who") else None
        if not api_key and user in (None, "") and not asking.is_forwarded:
            return self._direct(asking.peer)
        return self.identity.who(asking.peer, asking.headers, api_key=api_key, user=user)

    def _route(self, asking: Asking) -> str:
        """Template of the route: the framework's, else of the first rule that has one. Never the path as sent."""
        if asking.template is not None:
            return asking.template
        paths = (rule.path for rule in self.rules if rule.path is not None and rule.path.is_template)
        return next((path.template for path in paths if path.matches(asking)), "-")

    def told(self, asking: Asking) -> dict[str, str]:
        """The response fields of all that was decided of a request, in this guard's style."""
        decision = asking.ledger.decision
        return {} if decision is None else fields(decision, self.style, **self.settings)

    def refused(self, asking: Asking, decision: Decision, refusal: Refusal) -> Steps[Refusal]:
        """The answer that says no, after `on_refused` was asked."""
        custom = None if self.on_refused is None else (yield from resolved(self.on_refused(asking, decision)))
        if custom is None:
            return refusal
        has = {name.lower() for name in custom.fields}
        kept: Mapping[str, str] = {name: value for name, value in refusal.fields.items() if name.lower() not in has}
        return Refusal(custom.status, {**kept, **custom.fields}, custom.body)


def _check(identity: Any, api_key: Any, user: Any, on_refused: Any, cost: Any, preflights: Any) -> None:
    if identity is not None and not isinstance(identity, Identity):
        raise ThrottleError(f"identity {identity!r} is no Identity: say Identity(trusted_proxies=1)")
    if api_key is not None and not isinstance(api_key, str):
        callable_with("api_key", api_key, "Asking")
    if user is not None:
        callable_with("user", user, "Asking")
    if on_refused is not None:
        callable_with("on_refused", on_refused, "Asking", "Decision")
    check_cost(cost)
    check_flag("preflights", preflights)


def _exempt(said: Any) -> list[Pattern | Callable[[Asking], Any]]:
    """Paths and callables, ready to be asked."""
    exempt: list[Pattern | Callable[[Asking], Any]] = []
    for one in [said] if callable(said) else several("exempt", said, '["/health", "/static/*"]'):
        if callable(one):
            callable_with("exempt", one, "Asking")
            exempt.append(one)
        else:
            check_text("exempt", one, '"/health"')
            exempt.append(Pattern(one))
    return exempt
