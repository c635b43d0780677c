"""Throttle classes for Django REST framework.

    REST_FRAMEWORK = {
        "DEFAULT_THROTTLE_CLASSES": ["throttle.drf.AnonRateThrottle", "throttle.drf.UserRateThrottle"],
        "DEFAULT_THROTTLE_RATES": {"anon": "30/min", "user": "600/min", "export": ["5/min", Quota(100, "day")]},
    }
    THROTTLE = {"REDIS": "redis://localhost:6379/0"}

    class ExportView(APIView):
        throttle_classes = [UserRateThrottle, ScopedRateThrottle]
        throttle_scope = "export"

They take the place of the framework's own, by the same names, scopes and rates; a rate may also be a limit, a callable
given the `Asking` (tiers), or a list of these. All of one view are asked in one decision: what one refuses is not taken
from the others, and the wait is the longest.

Users whom the framework's own authentication finds (tokens) are known to these alone: middleware and
`throttle.django.limit` come before it.

A refusal is the framework's `Throttled`, so exception handlers get it. Whatever they make of it, and every other
answer, gets the fields that are missing, `Retry-After` included. `BacklogFull`, `StoreUnavailable` and `Throttled` that
a view raises are answered by `throttle.django.ThrottleMiddleware`, or by `exception_handler`.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

try:
    import http_sf  # noqa: F401 (what throttle.http needs; this extra brings all)
    from django.core.exceptions import ImproperlyConfigured
    from rest_framework import views
    from rest_framework.exceptions import APIException
    from rest_framework.settings import api_settings
    from rest_framework.throttling import BaseThrottle
except ImportError as missing:
    raise ImportError('throttle.drf needs REST framework and http-sf: pip install "celery-throttled[drf]"') from missing

from throttle.asking import Outcome
from throttle.django.requests import asking_of, check, tell
from throttle.django.settings import guard
from throttle.errors import ThrottleError
from throttle.http import Refusal
from throttle.rules import Rule
from throttle.views import ANSWERED, answer_to

__all__ = [
    "AnonRateThrottle", "RateThrottle", "Refused", "ScopedRateThrottle", "UserRateThrottle", "exception_handler",
]  # fmt: skip


class Refused(APIException):  # type: ignore[misc]  # the framework has no types
    """A refusal other than 429: the store is down and the limiter closed, or the cost is more than a limit holds.

    Attributes:
        wait: seconds, shown as `Retry-After`; `None` if waiting does not help.
    """

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(_detail(refusal.body))
        self.status_code = refusal.status
        self.wait = _wait(refusal)


def _detail(body: bytes) -> str | None:
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, LookupError, TypeError):  # the body is `on_refused`'s, and may be anything
        return None


def _wait(refusal: Refusal) -> int | None:
    waits = {name.lower(): value for name, value in refusal.fields.items()}.get("retry-after", "")
    return int(waits) if waits.isdecimal() else None


def _several(rate: Any) -> tuple[Any, ...]:
    return tuple(rate) if isinstance(rate, list) else (rate,)


@lru_cache(1024)
def _rule(limits: tuple[Any, ...], key: Any, cost: Any, name: str) -> Rule:
    return Rule(*limits, key=key, cost=cost, name=name)


class RateThrottle(BaseThrottle):  # type: ignore[misc]
    """Limits of a class: make a subclass with a `scope`, or with a `rate`.

    Attributes:
        scope: its name in DEFAULT_THROTTLE_RATES; also what the limits are called.
        rate: instead: a rate, a limit, a callable given the `Asking`, or a list of these; `None` is no limit.
        key: whom to count apart, as `throttle.rules.Rule` has it.
        cost: units, or a callable given the `Asking`; what the guard says unless said.
    """

    scope: str | None = None
    rate: Any = None
    key: Any = "who"
    cost: Any = None

    def __init_subclass__(cls, **more: Any) -> None:
        """What makes no sense is an error when the class is written."""
        super().__init_subclass__(**more)
        _rule(_several(cls.rate), cls.key, cls.cost, cls.scope or cls.__name__)

    def rule(self, request: Any, view: Any) -> Rule | None:
        """What it asks of a request; `None`: nothing.

        Args:
            request: the framework's.
            view: that it is for.

        Raises:
            ImproperlyConfigured: neither a scope with a rate nor a rate.
        """
        rate = self.rate if self.rate is not None else _rate_of(self.scope, type(self).__name__)
        return _rule(_several(rate), self.key, self.cost, self.scope or type(self).__name__)

    def allow_request(self, request: Any, view: Any) -> bool:
        """Whether it may pass; decided once for all throttles of the view."""
        refusal = _decided(self, request, view).refusal
        if refusal is not None and refusal.status != 429:
            raise Refused(refusal)
        self._waits = None if refusal is None else _wait(refusal)
        return refusal is None

    def wait(self) -> int | None:
        """Seconds after which the same request would pass."""
        return self._waits


class AnonRateThrottle(RateThrottle):
    """Counts addresses, of those who are not logged in."""

    scope, key = "anon", "address"

    def rule(self, request: Any, view: Any) -> Rule | None:
        """As `RateThrottle` has it."""
        return None if request.user and request.user.is_authenticated else super().rule(request, view)


class UserRateThrottle(RateThrottle):
    """Counts users; addresses, of those who are not logged in."""

    scope, key = "user", "user"


class ScopedRateThrottle(RateThrottle):
    """Counts as `UserRateThrottle`, apart in each `throttle_scope` that views name."""

    key = "user"

    def rule(self, request: Any, view: Any) -> Rule | None:
        """As `RateThrottle` has it; views without a scope are not limited."""
        self.scope = getattr(view, "throttle_scope", None)
        return super().rule(request, view) if self.scope else None


def exception_handler(exc: Any, context: dict[str, Any]) -> Any:
    """The framework's own, that knows `BacklogFull`, `StoreUnavailable` and `Throttled` too: for EXCEPTION_HANDLER."""
    return views.exception_handler(Refused(answer_to(exc, guard())) if isinstance(exc, ANSWERED) else exc, context)


def _rate_of(scope: str | None, whose: str) -> Any:
    try:
        return api_settings.DEFAULT_THROTTLE_RATES[scope]
    except KeyError:
        raise ImproperlyConfigured(f"{whose} has no rate: set its rate, or DEFAULT_THROTTLE_RATES[{scope!r}]") from None


def problems() -> list[str]:
    """What is wrong with DEFAULT_THROTTLE_RATES, for the system checks."""
    wrong = []
    for scope, rate in api_settings.DEFAULT_THROTTLE_RATES.items():
        try:
            _rule(_several(rate), "who", None, scope)
        except (ThrottleError, TypeError) as error:
            wrong.append(f"{scope!r}: {error}")
    return wrong


def _decided(throttle: RateThrottle, request: Any, view: Any) -> Outcome:
    """What the guard says of all throttles of the view, asked when the first of them is."""
    decided: dict[Any, Outcome] | None = request.__dict__.get("_throttle_decided")
    if decided is None:
        decided = request._throttle_decided = {}
        _tell_at_the_end(view)
    throttles = [one for one in view.get_throttles() if isinstance(one, RateThrottle)]
    if not any(type(one) is type(throttle) for one in throttles):  # asked by hand
        throttles = [throttle]
    rules = tuple(rule for one in throttles if (rule := one.rule(request, view)) is not None)
    if rules not in decided:
        asking = asking_of(request._request)
        asking.request = request
        decided[rules] = check(guard(), asking, *rules) if rules else Outcome({})
    return decided[rules]


def _tell_at_the_end(view: Any) -> None:
    """Of the view's instance, which is this request's alone: its class may be anybody's."""
    finalize = view.finalize_response

    def finalize_response(request: Any, *args: Any, **kwargs: Any) -> Any:
        return tell(getattr(request, "_request", request), finalize(request, *args, **kwargs))

    view.finalize_response = finalize_response
