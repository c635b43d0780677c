"""The setting THROTTLE: what may be in it, and the guard that is made of it.

| name | |
| --- | --- |
| REDIS | URL, client, or factory of a client |
| RULES | list of `Rule`s, or of dicts of their arguments: `limits` (one, or a list), `path`, `methods`, `key`, … |
| SCOPE | what shares buckets; "django" unless said |
| EXEMPT | paths, which begin with "/" or "*", and callables |
| IDENTITY | dict of `Identity`'s arguments: `trusted_proxies`, … |
| API_KEY, USER, ON_REFUSED, COST, STYLE, PREFLIGHTS | as `Guard` has them; USER is who is logged in unless said |
| FIELDS | dict of more settings of the response fields |
| TIMEOUT, ON_STORE_ERROR, MODE, DENIALS, LEASE | as `Limiter` has them |
| GUARD | a `Guard` of your own, instead of all of these |

Where a callable may stand, its dotted path may too. Under ASGI callables run on the loop, and may be async.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from throttle import AsyncLimiter, Limiter
from throttle.checks import several
from throttle.errors import ThrottleError
from throttle.http import Identity
from throttle.rules import Guard, Pattern, Rule

_LIMITER = ("TIMEOUT", "ON_STORE_ERROR", "MODE", "DENIALS", "LEASE")
_GUARD = ("API_KEY", "USER", "ON_REFUSED", "COST", "STYLE", "PREFLIGHTS")
NAMES = ("REDIS", "RULES", "SCOPE", "EXEMPT", "IDENTITY", "FIELDS", "GUARD", *_GUARD, *_LIMITER)

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


def guard(*, is_async: bool = False) -> Guard:
    """The guard that the setting THROTTLE describes.

    Args:
        is_async: whether it is to be awaited.

    Raises:
        ImproperlyConfigured: naming all that is wrong with it.
    """
    return _guards()[is_async]


@lru_cache(1)
def _guards() -> tuple[Guard, Guard]:
    made, wrong = _made()
    if made is None:
        raise ImproperlyConfigured("THROTTLE: " + "; ".join(wrong))
    return made


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "THROTTLE":
        _guards.cache_clear()


setting_changed.connect(_forget)  # tests override settings


def problems() -> list[str]:
    """What is wrong with the setting, each with its remedy."""
    return _made()[1]


def _made() -> tuple[tuple[Guard, Guard] | None, list[str]]:
    said = getattr(settings, "THROTTLE", None)
    if not isinstance(said, Mapping):
        return None, ['it is missing: say THROTTLE = {"REDIS": "redis://localhost:6379/0", "RULES": [...]}']
    wrong = [_unknown(name) for name in said if name not in NAMES]
    reader = _Reader(said, wrong)
    made = reader.own() if "GUARD" in said else reader.made()
    return (None if wrong else made), wrong


def _unknown(name: Any) -> str:
    close = get_close_matches(str(name).upper(), NAMES, 1)
    return f"{name!r} is no setting; " + (f"did you mean {close[0]!r}?" if close else f"say {', '.join(NAMES)}")


class _Reader:
    """Makes guards of the setting, and notes what is wrong instead of stopping there."""

    def __init__(self, said: Mapping[str, Any], wrong: list[str]) -> None:
        self._said, self._wrong = said, wrong

    def own(self) -> tuple[Guard, Guard] | None:
        self._wrong += [f"{name} is for the guard made here: say it to GUARD" for name in self._said if name != "GUARD"]
        guard = self._try("GUARD", lambda: _named(self._said["GUARD"]))
        if isinstance(guard, Guard):
            return guard, guard
        if guard is not None:
            self._wrong.append(f"GUARD {guard!r} is no Guard")
        return None

    def made(self) -> tuple[Guard, Guard] | None:
        scope = self._said.get("SCOPE", "django")
        said = self._try("RULES", several, "", self._said.get("RULES", ()), '[{"limits": "9/min", "key": "address"}]')
        rules = [self._try(f"RULES[{i}]", _rule, one) for i, one in enumerate(said or ())]
        identity = self._try("IDENTITY", lambda: Identity(**{"scope": scope, **self._said.get("IDENTITY", {})}))
        exempt = self._try("EXEMPT", self._exempt)
        limiter = self._try("REDIS", self._limiter, Limiter, scope)
        if self._wrong:
            return None
        # An async client of the user's own belongs to one loop; theirs here is a sync one, which waits in a thread.
        is_url = isinstance(_named(self._said["REDIS"]), str)
        awaited = self._try("REDIS", self._limiter, AsyncLimiter, scope) if is_url else limiter
        made = [self._try("", self._guard, one, rules, identity, exempt) for one in (limiter, awaited)]
        return None if self._wrong else (made[0], made[1])

    def _limiter(self, kind: Any, scope: str) -> Any:
        if not self._said.get("REDIS"):
            raise ThrottleError('say where it is: "REDIS": "redis://localhost:6379/0"')
        more = {name.lower(): self._said[name] for name in _LIMITER if name in self._said}
        return kind(_named(self._said["REDIS"]), scope, **more)

    def _exempt(self) -> list[Any]:
        said = self._said.get("EXEMPT", ())
        return [_exempt(one) for one in several("", said, '["/health/", "/static/*"]')]

    def _guard(self, limiter: Any, rules: list[Rule], identity: Identity, exempt: list[Any]) -> Guard:
        more = {name.lower(): _named(self._said[name]) for name in _GUARD if name in self._said}
        return Guard(limiter, *rules, identity=identity, exempt=exempt, **more, **self._said.get("FIELDS", {}))

    def _try(self, name: str, make: Callable[..., Any], *args: Any) -> Any:
        try:
            return make(*args)
        except (ThrottleError, TypeError, ValueError, ImportError, AttributeError) as error:
            problem = f"{name}: {error}" if name else str(error)
            if problem not in self._wrong:
                self._wrong.append(problem)
            return None


def _rule(said: Any) -> Rule:
    """A rule of the dict of its arguments."""
    if isinstance(said, Rule):
        return said
    if not isinstance(said, Mapping) or "limits" not in said:
        raise ThrottleError(f'{said!r} is no rule: say {{"limits": "10/min", "key": "address"}}')
    limits = said["limits"] if isinstance(said["limits"], list) else [said["limits"]]
    more = {name: _named(value) if name in ("key", "cost") else value for name, value in said.items()}
    del more["limits"]
    return Rule(*map(_named, limits), **more)


def _exempt(said: Any) -> Any:
    if not isinstance(said, str):
        return said
    if said.startswith(("/", "*")):
        return Pattern(said) and said
    try:
        return import_string(said)
    except ImportError as error:
        raise ThrottleError(f"{said!r} is no callable ({error}); a path begins with / or *") from None


def _named(said: Any) -> Any:
    """What a dotted path names, in a list too. Rates begin with digits, words and header names have no dots."""
    if isinstance(said, (list, tuple)) and type(said) in (list, tuple):
        return tuple(map(_named, said))
    return import_string(said) if isinstance(said, str) and _DOTTED.fullmatch(said) else said
