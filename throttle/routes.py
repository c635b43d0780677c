"""Rules that are for no route of an app: a misspelt path limits nothing, and would say nothing."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple

from throttle.paths import Pattern

if TYPE_CHECKING:
    from throttle.rule import Rule
    from throttle.rules import Guard

logger = logging.getLogger(__name__)


class Route(NamedTuple):
    """A route as its app has it.

    Attributes:
        template: "/sms/{id}".
        methods: that it serves; none: whatever comes, or not known.
    """

    template: str
    methods: frozenset[str] = frozenset()


def tell_unserved(guard: Guard, routes: Callable[[], Iterable[Route]], root: str | None = "") -> None:
    """Warn of each rule of a guard that no route is for; once.

    Args:
        guard: whose rules.
        routes: all of the app's.
        root: what rules may have before them; `None`: not known yet, to be called again if that matters.
    """
    guard.is_told = True
    with contextlib.suppress(Exception):  # of a router: that is for it to tell
        known = list(routes())
        if root is None and any(_may_be_above(rule, known) for rule in guard.rules):
            guard.is_told = False
            return
        for text in unserved(guard.rules, known, root or ""):
            logger.warning("rule %s", text)


def _may_be_above(rule: Rule, routes: Sequence[Route]) -> bool:
    path = rule.path
    return path is not None and not _is_served(rule, routes) and any(path.may_be_above(one.template) for one in routes)


def unserved(rules: Iterable[Rule], routes: Sequence[Route], root: str = "") -> list[str]:
    """Which rules no route is for, in words; none of them where no route is known.

    Args:
        rules: those that name no path are for all.
        routes: all of the app's.
        root: what rules may have before them.
    """
    root = root.rstrip("/")
    known = [*routes, *(route._replace(template=root + route.template) for route in routes if root)]
    return [_told(rule, rule.path, known) for rule in rules if rule.path and known and not _is_served(rule, known)]


def _is_served(rule: Rule, routes: Iterable[Route]) -> bool:
    return any(_is_for(rule.path, route) and _serves(route, rule) for route in routes)


def _is_for(path: Pattern | None, route: Route) -> bool:
    return path is not None and path.may_be_for(route.template)


def _serves(route: Route, rule: Rule) -> bool:
    return not rule.methods or not route.methods or not rule.methods.isdisjoint(route.methods)


def _told(rule: Rule, path: Pattern, routes: Sequence[Route]) -> str:
    here = [route for route in routes if _is_for(path, route)]
    near = max(here or routes, key=lambda route: SequenceMatcher(None, path.template, route.template).ratio())
    methods = f", which serves {', '.join(sorted(near.methods))}" if here else ""
    return f"{rule.name!r} is for no route of the app; the nearest to its path is {near.template!r}{methods}"
