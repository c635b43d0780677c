"""One rule: limits, whom they count, and which requests they are for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from throttle.asking import Asking
from throttle.checks import callable_with, check_cost, check_flag, check_text, methods_of
from throttle.errors import ThrottleError
from throttle.keyed import Of, check_name
from throttle.limits import Limit
from throttle.paths import Pattern
from throttle.policing import KEYS, ascii_text, check_distinct, check_key, counts_others, in_rule, limit_of

#: Whom to count apart: one of `KEYS`, a callable given the `Asking`, several of these, or `None`: all together.
Key = "str | Callable[[Asking], object] | tuple[Key, ...] | None"

#: A limit of a rule: a limit, a rate, a callable given the `Asking` that returns one or `None`; or a pair of one
#: of these and a key.
Limited = Limit | str | Callable[[Asking], Any] | tuple[Any, Any] | Of


class Rule:
    """Limits, and which requests they are for.

    Args:
        limits: each a limit; or a rate, of which a whole period's count may come at once ("10/min" is
            `TokenBucket("10/min", 10)`); or a callable given the `Asking` that returns one of these, or `None` where
            there is no limit (tiers); or a pair of one of these and a key of its own.
        path: template or pattern (`throttle.paths` has the forms); `None`: every path.
        methods: one or several; GET is HEAD too. `None`: every method.
        key: whom to count apart. "address"; "user", "api_key": the address of those who have none; "who": API
            key, else user, else address; "route": each route, and all unknown paths as one; a callable given the
            `Asking`, whose `None` is the address (what looks like a credential is stored as a digest); several in a
            tuple; `None`: all requests together.
        cost: units, or a callable given the `Asking`; what the guard says unless said.
        name: what its limits are called if they have no names; unless said, methods and path. Two rules with
            one name that hold equal limits share their buckets.
        last: whether the rules after this one are not for its requests.

    Raises:
        ThrottleError, TypeError: a rule that makes no sense.
    """

    def __init__(
        self,
        *limits: Limited,
        path: str | None = None,
        methods: str | Iterable[str] | None = None,
        key: Any = None,
        cost: int | Callable[[Asking], Any] | None = None,
        name: str | None = None,
        last: bool = False,
    ) -> None:
        _check(path, cost, name, last)
        said = methods_of(methods)
        self.path = None if path is None else Pattern(path)
        self.methods = frozenset((*said, "HEAD") if "GET" in said else said)
        self.cost, self.last = cost, last
        self.name = name or ascii_text(" ".join(part for part in (",".join(said), path) if part))
        self.limits = tuple(self._pair(one, key) for one in limits)
        check_distinct([limit for limit, _ in self.limits])

    def _pair(self, limited: Any, key: Any) -> tuple[Any, Any]:
        """A limit and its key; the limit ready, unless a callable has yet to say it."""
        if isinstance(limited, Of):
            return in_rule(limited.limit, self.name), limited
        if _is_pair(limited):
            limited, key = limited
        elif (own := getattr(limited, "key", None)) in KEYS or callable(own):
            key = own
        check_key(key)
        if callable(limited):
            callable_with("limit", limited, "Asking")
            return limited, key
        limit = in_rule(limit_of(limited), self.name)
        if key is None and limit is not None and counts_others(limit):
            raise ThrottleError(f"limit {limit.label!r} counts each {limit.key!r} apart: a rule needs a key")
        return limit, key

    def matches(self, asking: Asking) -> bool:
        """Whether this rule is for such a request."""
        if self.methods and asking.method.upper() not in self.methods:
            return False
        return self.path is None or self.path.matches(asking)

    def __repr__(self) -> str:
        return f"Rule({self.name or 'every request'!r}, {len(self.limits)} limits)"


def _check(path: Any, cost: Any, name: Any, last: Any) -> None:
    if path is not None:
        check_text("path", path, '"/sms/{id}"')
    if name is not None:
        check_text("name", name, '"login"')
    if cost is not None:
        check_cost(cost)
    check_name(name)
    check_flag("last", last)


def _is_pair(limited: Any) -> bool:
    """Whether it is a limit with a key, and not a rate such as (100, 7200)."""
    if not isinstance(limited, tuple) or len(limited) != 2:
        return False
    return limited[1] is None or isinstance(limited[1], (str, tuple)) or callable(limited[1])
