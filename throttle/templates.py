"""Keys and costs made of a call's arguments: templates over their names, values, callables given them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from string import Formatter
from typing import Any

from throttle.errors import ThrottleError


def names_in(template: object) -> list[str]:
    """Names of the arguments a template uses; none for values and callables.

    Raises:
        ThrottleError: it cannot be read, or names none.
    """
    if not isinstance(template, str):
        return []
    try:
        fields = [field for _, field, _, _ in Formatter().parse(template) if field is not None]
    except ValueError as exc:
        raise ThrottleError(f"{template!r} is no template over the arguments: {exc}") from exc
    names = [field.partition(".")[0].partition("[")[0] for field in fields]
    if any(not name or name.isdigit() for name in names):
        raise ThrottleError(f"{template!r} must name its arguments, as in '{{customer}}'")
    return names


def maker(said: object) -> Callable[[Mapping[str, Any], Sequence[Any], Mapping[str, Any]], object]:
    """How to make a key or cost of a call: given its arguments by name, then as they were passed."""
    if callable(said):
        return lambda values, args, kwargs: said(*args, **kwargs)
    names = names_in(said)
    if not names:
        constant = said.format() if isinstance(said, str) else said
        return lambda values, args, kwargs: constant
    template = str(said)
    if template == f"{{{names[0]}}}":
        return lambda values, args, kwargs: values[names[0]]
    return lambda values, args, kwargs: template.format_map(values)


def applied(what: str, said: object, make: Callable[..., object], *call: Any, whose: str = "the task's") -> object:
    """What `make` makes of a call.

    Raises:
        ThrottleError: nothing can be made of these arguments.
    """
    try:
        return make(*call)
    except ThrottleError:
        raise
    except Exception as exc:
        raise ThrottleError(f"cannot make the {what} {said!r} of {whose} arguments: {exc!r}") from exc


class Arguments:
    """A function's arguments by name, whichever way they were passed."""

    def __init__(self, function: Callable[..., Any]) -> None:
        parameters = list(inspect.signature(function).parameters.values())
        named = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self._positional = [p.name for p in named]
        self._any = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self._defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        self._name = getattr(function, "__qualname__", str(function))
        self.names = [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL]

    def check(self, what: str, template: object) -> None:
        """That a template names what the function takes.

        Raises:
            ThrottleError: it does not, or is the name of an argument where its value was meant.
        """
        for name in names_in(template):
            if not self._any and name not in self.names:
                takes = ", ".join(self.names) or "no arguments"
                raise ThrottleError(f"{what} template {template!r} names {name!r}, but {self._name} takes {takes}")
        if isinstance(template, str) and template in self.names:
            raise ThrottleError(f'{what} {template!r} is the same for all calls; did you mean "{{{template}}}"?')

    def values(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Name by name, defaults included."""
        return {**self._defaults, **dict(zip(self._positional, args, strict=False)), **kwargs}
