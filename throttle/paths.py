"""Which requests a rule is for: templates of paths, as frameworks write them, and patterns.

| written | matches |
| --- | --- |
| `/sms` | `/sms` |
| `/sms/{id}`, `/sms/<id>`, `/sms/<int:id>` | one segment where the parameter stands |
| `/files/{name:path}`, `/files/<path:name>` | any number of segments there |
| `/api/*` | `/api` and all below |
| `/*/export`, `/report-*` | one segment, or what is left of it |

Some routers take `//sms//7/` for `/sms/7`, so rules do: a limit must not be escaped by writing a path otherwise.
Where the route is known, `/sms/{id}` is not for requests of the route `/sms/status`, although their paths match.

Any path that a client sends is matched in time proportional to its length; hence the two refusals below.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from throttle.errors import ThrottleError

if TYPE_CHECKING:
    from throttle.asking import Asking

_PARAMETER = re.compile(r"(\{[^{}/]*\}|<[^<>/]*>|\*)")
_ONE, _ANY = "[^/]+", ".*"


class Pattern:
    """A template or pattern of paths.

    Args:
        template: as in the table above; a slash before it may be left out, as Django does.

    Raises:
        ThrottleError: two parameters in one segment, or two that take any number of segments.
    """

    __slots__ = ("_count", "_fullmatch", "is_template", "template")

    def __init__(self, template: str) -> None:
        self.template = template if template.startswith(("/", "*")) else "/" + template
        #: Whether it is one route's, and not a pattern of several.
        self.is_template = "*" not in template
        self._count = _parameters(self.template)
        self._fullmatch = re.compile(_regex(self.template), re.DOTALL).fullmatch

    def matches(self, asking: Asking) -> bool:
        """Whether a request is meant: by the template of its route, where that is known, or by its path."""
        by_path = any(map(self._fullmatch, asking.paths))
        # A router is asked only if it matters: that takes longer than all the rest.
        route = asking.template if by_path and self._count and self.is_template else asking.route
        if route is None or not self._fullmatch(route):
            return by_path or route == self.template
        return not self.is_template or _parameters(route) >= self._count

    def may_be_for(self, route: str) -> bool:
        """Whether requests of a route may be meant; where that is hard to say, they may."""
        if self.is_template and self._fullmatch(route) and _parameters(route) < self._count:
            return False  # as `matches` has it
        return _may_meet(tuple(_pieces(self.template)), tuple(_pieces(route)))

    def may_be_above(self, route: str) -> bool:
        """Whether it may be for a route, if something that is not known yet stands before that: a root path."""
        mine, pieces = tuple(_pieces(self.template)), tuple(_pieces(route))
        tails = (mine[i:] for i in range(1, len(mine)))
        return any(_may_meet(tail, pieces) and not _texts(tail).isdisjoint(_texts(pieces)) for tail in tails)

    def __repr__(self) -> str:
        return f"Pattern({self.template!r})"


@lru_cache(1024)
def _parameters(template: str) -> int:
    return len(_PARAMETER.findall(template))


def _regex(template: str) -> str:
    below = template.endswith("/*")
    template = template[:-2] if below else template.rstrip("/")
    parts = _PARAMETER.split(template)
    wild = [_wild(part, template == "*") for i, part in enumerate(parts) if i % 2]
    if wild.count(_ANY) + below > 1:
        raise ThrottleError(f"path {template!r}: one parameter only may take any number of segments")
    if any(_parameters(segment) > 1 for segment in template.split("/")):
        raise ThrottleError(f"path {template!r}: one parameter per segment; say {{…}} for the whole segment")
    texts = [re.escape(part) if i % 2 == 0 else wild[i // 2] for i, part in enumerate(parts)]
    # Starlette's routes end with '$', which matches before a newline too: `/sms%0A` is served as `/sms`.
    return "".join(texts) + ("(?:/.*)?" if below else "/?\\n?")


def _wild(parameter: str, is_all: bool) -> str:
    if parameter == "*":
        return _ANY if is_all else "[^/]*"
    inner = parameter[1:-1]
    return _ANY if inner.endswith(":path") or inner.startswith("path:") else _ONE


# -- two templates -------------------------------------------------------------------------------------------

#: A segment: what stands before and behind its parameters, and whether there are any. `None`: any number of segments.
_Piece = tuple[str, str, bool] | None


def _pieces(template: str) -> Iterator[_Piece]:
    for segment in template.split("/"):
        parts = _PARAMETER.split(segment)
        wild = [_wild(part, template.endswith(segment) and segment == "*") for part in parts[1::2]]
        if _ANY in wild:
            yield None
        elif segment:
            yield parts[0], parts[-1], bool(wild)


@lru_cache(1024)
def _may_meet(one: tuple[_Piece, ...], other: tuple[_Piece, ...]) -> bool:
    """Whether there may be a path of both."""
    if not one or not other:
        return not any((*one, *other))  # what is left may be none at all
    if one[0] is None or other[0] is None:
        rest, whole = (one, other) if one[0] is None else (other, one)
        return _may_meet(rest[1:], whole) or _may_meet(rest, whole[1:])
    return _is_alike(one[0], other[0]) and _may_meet(one[1:], other[1:])


def _texts(pieces: tuple[_Piece, ...]) -> set[str]:
    return {piece[0] for piece in pieces if piece and not piece[2]}


def _is_alike(one: tuple[str, str, bool], other: tuple[str, str, bool]) -> bool:
    """Whether there may be a segment of both."""
    if not one[2] and not other[2]:
        return one[0] == other[0]
    if one[2] and other[2]:
        return _begins(one[0], other[0]) and _begins(one[1][::-1], other[1][::-1])
    wild, text = (one, other[0]) if one[2] else (other, one[0])
    return len(text) >= len(wild[0]) + len(wild[1]) and text.startswith(wild[0]) and text.endswith(wild[1])


def _begins(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)
