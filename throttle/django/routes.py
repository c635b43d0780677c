"""The routes of a Django project."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.urls import get_resolver, get_script_prefix
from django.urls.resolvers import LocalePrefixPattern

from throttle.django.requests import readable
from throttle.django.settings import guard
from throttle.routes import Route, tell_unserved, unserved

#: What is left of regular expressions that are more than groups: whatever they match, they may.
_REGEX = re.compile(r"[\\\[\](){}|+?*^$]")


def tell() -> None:
    """Warn of rules that no route is for; once."""
    if not guard().is_told:
        tell_unserved(guard(), routes, get_script_prefix())


def problems() -> list[str]:
    """The same for the system checks, instead."""
    guard().is_told = True
    return unserved(guard().rules, list(routes()))


def routes(resolver: Any = None, prefix: str = "") -> Iterator[Route]:
    """All that the project has."""
    for one in (resolver or get_resolver()).url_patterns:
        for template in _templates(one.pattern):
            if hasattr(one, "url_patterns"):
                yield from routes(one, prefix + template)
            else:
                yield Route(_understood(readable(prefix + template)))


def _templates(pattern: Any) -> list[str]:
    """As it stands; of languages those that rules name, one more for those that take any, and none."""
    if not isinstance(pattern, LocalePrefixPattern):
        return [str(pattern)]
    named = {rule.path.template.strip("/").partition("/")[0] for rule in guard().rules if rule.path}
    codes = [code for code, _ in settings.LANGUAGES]
    return [*(f"{code}/" for code in codes if code in named or code == codes[0]), ""]


def _understood(template: str) -> str:
    sign = _REGEX.search(template)
    return template if sign is None else template[: sign.start()].rpartition("/")[0] + "/*"
