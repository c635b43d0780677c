"""A Django request as limits see it, and answers as Django has them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.admindocs import utils
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpResponse
from django.urls import Resolver404, resolve

from throttle.asking import Asking, Ledger, Outcome
from throttle.http import Refusal
from throttle.rules import Guard, Rule
from throttle.wsgi import headers_of

_USERS = ("user", "who")


def asking_of(request: Any) -> Asking:
    """A request as limits see it; its ledger is where WSGI and ASGI middleware around Django keeps it too.

    Args:
        request: Django's.
    """
    return Asking(
        method=request.method or "GET",
        path=request.path,
        peer=request.META.get("REMOTE_ADDR") or None,
        headers=headers_of(request.META),  # request.headers would be remembered, as they were before later middleware
        root=request.path.removesuffix(request.path_info),
        request=request,
        route=_route(request),
        find_route=lambda: _found(request),
        ledger=_ledger(request),
    )


def _ledger(request: Any) -> Ledger:
    return Ledger.of(request.scope if isinstance(request, ASGIRequest) else request.META)


def _route(request: Any) -> str | None:
    """The template, where it is known, or where the path would lead rules astray: they do not know `/items.json`."""
    if request.resolver_match is None:
        return _found(request) if "." in _last(request.path_info) else None
    return _template(request, request.resolver_match)


def _found(request: Any) -> str | None:
    """The template that routing will choose: middleware runs before it."""
    match = _resolved(request, request.path_info)
    return None if match is None else _template(request, match)


def _resolved(request: Any, path: str) -> Any:
    try:
        return resolve(path, getattr(request, "urlconf", None))
    except Resolver404:
        return None


def _template(request: Any, match: Any) -> str | None:
    match = _without_format(request, match)
    return None if match.route is None else readable(match.route)


def _without_format(request: Any, match: Any) -> Any:
    """REST framework has a second route, `/items.<format>`, for each that takes format suffixes: it is the same one."""
    framework = sys.modules.get("rest_framework.settings")
    if framework is None or "." not in _last(request.path_info):
        return match
    suffix = f".{match.kwargs.get(framework.api_settings.FORMAT_SUFFIX_KWARG)}"
    path = request.path_info.rstrip("/").removesuffix(suffix)
    found = (_resolved(request, one) for one in (path, path + "/")) if path != request.path_info.rstrip("/") else ()
    return next((one for one in found if one is not None and one.func is match.func), match)


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def readable(route: str) -> str:
    """A template as rules have it."""
    return _readable("/" + route.lstrip("/"))


@lru_cache(4096)
def _readable(route: str) -> str:
    """What `re_path` and REST framework's routers write as a regular expression: "/users/<pk>/"."""
    if not any(sign in route for sign in "^$()\\"):
        return route
    for simplified in (utils.remove_non_capturing_groups, utils.replace_named_groups, utils.replace_unnamed_groups):
        route = simplified(route)
    return str(utils.replace_metacharacters(route))


# -- asking --------------------------------------------------------------------------------------------------


def check(guard: Guard, asking: Asking, *rules: Rule) -> Outcome:
    """Ask the rules, or those of the guard, for who is logged in if any of them wants to know."""
    if _wants_user(guard, asking, rules or guard.rules):
        asking.user = _key_of(getattr(asking.request, "user", None))
    return guard.check(asking, *rules)


async def acheck(guard: Guard, asking: Asking, *rules: Rule) -> Outcome:
    """As `check`, and nothing blocks the loop: finding a user may ask the database."""
    if _wants_user(guard, asking, rules or guard.rules):
        asking.user = await _auser(asking.request)
    return await guard.acheck(asking, *rules)


def _wants_user(guard: Guard, asking: Asking, rules: Sequence[Rule]) -> bool:
    """Finding a user takes queries that a refused request should not cost."""
    if guard.user is not None or asking.user is not None:
        return False
    return any(of_users(rule) and rule.matches(asking) for rule in rules)


def of_users(rule: Rule) -> bool:
    """Whether it counts users apart, or has callables that may want to know them."""
    keys = [one for _, key in rule.limits for one in (key if isinstance(key, tuple) else (key,))]
    said = [rule.cost, *keys, *(limit for limit, _ in rule.limits)]
    return any(key in _USERS for key in keys) or any(map(callable, said))


async def _auser(request: Any) -> Any:
    if hasattr(request, "auser"):  # from Django 5.0 on
        return _key_of(await request.auser())
    return await sync_to_async(lambda: _key_of(getattr(request, "user", None)))()


def _key_of(user: Any) -> Any:
    return user.pk if user is not None and user.is_authenticated else None


# -- answering -----------------------------------------------------------------------------------------------


def tell(request: Any, response: Any) -> Any:
    """Add to a response the fields that it misses. What Ninja's views return is none yet: the middleware tells."""
    if not hasattr(response, "headers"):
        return response
    for name, value in _ledger(request).missing(response.headers.keys(), response.status_code).items():
        response[name] = value
    return response


def response_of(request: Any, answer: Refusal) -> Any:
    """A refusal as Django's response."""
    body = b"" if request.method == "HEAD" else answer.body
    return HttpResponse(body, status=answer.status, headers=answer.fields)
