"""The Django app, for its system checks: it has no models, urls or commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks

from throttle.django.requests import of_users
from throttle.django.routes import problems as unserved
from throttle.django.settings import guard, problems

MIDDLEWARE = "throttle.django.ThrottleMiddleware"
_USERS = "django.contrib.auth.middleware.AuthenticationMiddleware"


class ThrottleConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    """`"throttle.django"` in INSTALLED_APPS."""

    name = "throttle.django"
    label = "throttle"
    verbose_name = "Throttle"

    def ready(self) -> None:
        """Registers the check."""
        checks.register(check)


def check(app_configs: Any = None, **_: Any) -> list[Any]:
    """What `manage.py check` says of the setting THROTTLE and of where the middleware stands."""
    wrong = [checks.Error(f"THROTTLE: {problem}", id="throttle.E001") for problem in problems()]
    if drf := sys.modules.get("throttle.drf"):
        wrong += [checks.Error(f"DEFAULT_THROTTLE_RATES: {one}", id="throttle.E002") for one in drf.problems()]
    return wrong or list(_warnings(list(settings.MIDDLEWARE)))


def _warnings(middleware: Sequence[str]) -> Any:
    hint = "Mind its prefix, and the slash at its end."
    yield from (checks.Warning(f"THROTTLE: rule {one}.", hint=hint, id="throttle.W003") for one in unserved())
    if MIDDLEWARE not in middleware and guard().rules:
        hint = f"Add {MIDDLEWARE!r} to MIDDLEWARE."
        yield checks.Warning("The rules of THROTTLE are asked by its middleware only.", hint=hint, id="throttle.W001")
    elif MIDDLEWARE in middleware and _USERS in middleware[middleware.index(MIDDLEWARE) :] and _counts_users():
        text = "ThrottleMiddleware stands before AuthenticationMiddleware: it does not see users, and counts addresses."
        yield checks.Warning(text, hint="Move it below AuthenticationMiddleware.", id="throttle.W002")


def _counts_users() -> bool:
    return guard().user is None and any(map(of_users, guard().rules))
