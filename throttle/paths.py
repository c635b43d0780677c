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
