"""A Django project with views of every kind; the tests of this process share it, for Django has one configuration."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.utils.functional import SimpleLazyObject

if not settings.configured:
    settings.configure(
        SECRET_KEY="tests",
        ALLOWED_HOSTS=["*"],
        DEBUG=False,
        ROOT_URLCONF="tests.http.django_urls",
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=[
            "django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions", "rest_framework",
            "throttle.django",
        ],
        MIDDLEWARE=["throttle.django.ThrottleMiddleware"],
        THROTTLE={"REDIS": "redis://localhost", "RULES": []},
        USE_TZ=True,
        LOGGING_CONFIG=None,
        REST_FRAMEWORK={
            "DEFAULT_THROTTLE_RATES": {"anon": "3/min", "user": "3/m", "export": ["2/min", "3/day"], "open": None},
            "DEFAULT_AUTHENTICATION_CLASSES": [],
        },
    )  # fmt: skip

import django

django.setup()
logging.getLogger("django.request").setLevel(logging.CRITICAL)  # one line for each of thousands of 404s


class User:
    def __init__(self, pk: str | None) -> None:
        self.pk, self.is_authenticated = pk, pk is not None


#: How users were looked up.
lookups: list[str] = []


class Login:
    """Stands for AuthenticationMiddleware: the header X-User says who."""

    sync_capable = async_capable = True

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: Any) -> Any:
        user = User(request.headers.get("X-User"))

        def found() -> User:
            assert not _on_a_loop(), "this would ask the database"
            lookups.append("sync")
            return user

        async def auser() -> User:
            lookups.append("async")
            return user

        request.user, request.auser = SimpleLazyObject(found), auser
        return self.get_response(request)


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
