"""Which requests a rule is for: templates of paths, as frameworks write them, and patterns.

| written | matches |
| --- | --- |
| `/sms` | `/sms` |
| `/sms/{id}`, `/sms/<id>`, `/sms/<int:id>` | one segment where the parameter stands |
| `/files/{name:path}`, `/files/<path:name>` | any number of segments there |
| `/api/*` | `/api` and all below |
| `/*/export`, `/report-*` | one segment, or what is left of it |

A path that a client sends takes time in proportion to its length to match, whatever it is; hence the two
refusals below.
"""

from __future__ import annotations

import re

from throttle.errors import ThrottleError

_PARAMETER = re.compile(r"(\{[^{}/]*\}|<[^<>/]*>|\*)")
_ONE, _ANY = "[^/]+", ".*"


class Pattern:
    """A template or pattern of paths.

    Args:
        template: as in the table above; a slash before it may be left out, as Django does.

    Raises:
        ThrottleError: two parameters in one segment, or two that take any number of segments.
    """

    __slots__ = ("_fullmatch", "is_template", "template")

    def __init__(self, template: str) -> None:
        self.template = template if template.startswith(("/", "*")) else "/" + template
        #: Whether it is one route's, and not a pattern of several.
        self.is_template = "*" not in template
        self._fullmatch = re.compile(_regex(self.template), re.DOTALL).fullmatch

    def matches(self, paths: tuple[str, ...], route: str | None = None) -> bool:
        """Whether a request is meant: by the template its framework found, or by one of its paths."""
        return route == self.template or any(map(self._fullmatch, paths))

    def __repr__(self) -> str:
        return f"Pattern({self.template!r})"


def _regex(template: str) -> str:
    below = template.endswith("/*")
    parts = _PARAMETER.split(template[:-2] if below else template)
    wild = [_wild(part, i == len(parts) - 2 and not parts[-1]) for i, part in enumerate(parts) if i % 2]
    if wild.count(_ANY) + below > 1:
        raise ThrottleError(f"path {template!r}: one parameter only may take any number of segments")
    if any(len(_PARAMETER.findall(segment)) > 1 for segment in template.split("/")):
        raise ThrottleError(f"path {template!r}: one parameter per segment; say {{…}} for the whole segment")
    texts = [re.escape(part) if i % 2 == 0 else wild[i // 2] for i, part in enumerate(parts)]
    return "".join(texts) + ("(?:/.*)?" if below else "")


def _wild(parameter: str, is_last: bool) -> str:
    if parameter == "*":
        return _ANY if is_last else "[^/]*"
    inner = parameter[1:-1]
    return _ANY if inner.endswith(":path") or inner.startswith("path:") else _ONE
