"""What `@throttled` says of one task: its limits, whom they count apart, and what a call costs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from string import Formatter
from typing import Any

from throttle.errors import InvalidRate, ThrottleError
from throttle.limits import Limit, check_units, lane_of

_YEAR = 366 * 86400


class Spec:
    """One task's throttling, checked as far as possible when it is written down.

    Args:
        limits: the policies, all or nothing.
        scope: what shares buckets and backlog; the task's name unless said.
        cost: units a call takes: a number, a template over the arguments ("{pages}"), or a callable
            given the arguments.
        max_wait: seconds (or a timedelta) that a task may have to wait, as far as can be told when it comes.
        max_backlog: tasks that may wait in the scope.

    Raises:
        ThrottleError, InvalidRate, CostExceedsLimit: what can be seen to be wrong.
    """

    def __init__(
        self,
        limits: Sequence[Limit],
        scope: str | None,
        cost: object,
        max_wait: float | timedelta | None = None,
        max_backlog: int | None = None,
    ) -> None:
        self.limits = tuple(limit for limit in limits if limit.rate is not None)
        self.scope, self.cost = scope, cost
        if not limits:
            raise ThrottleError('@throttled needs a limit: @throttled("10/s")')
        names = [limit.name or str(i) for i, limit in enumerate(self.limits, 1)]
        if len(set(names)) < len(names):
            raise InvalidRate(f"{', '.join(names)}: limits of one task would share a bucket; give each its own name")
        if isinstance(cost, int):
            check_units(cost)
            for limit in self.limits:
                if not limit.closed:
                    limit.check_cost(cost)
        elif not callable(cost) and not _names(cost):
            raise InvalidRate(f"cost must be a whole number, a template or a callable, not {cost!r}")
        #: µs that a task may wait, and tasks among which it may; 0 for any.
        self.bounds = (_longest(max_wait), _most(max_backlog))
        self._keys = [None if limit.key is None else _value(limit.key) for limit in self.limits]
        self._cost = _value(cost)
        self._arguments: _Arguments | None = None

    def copy(self) -> Spec:
        """The same, for another task: it will be bound to that one's arguments."""
        made = Spec.__new__(Spec)
        made.__dict__.update(self.__dict__, _arguments=None)
        return made

    @property
    def active(self) -> bool:
        """False when every limit is `None`: then nothing of ours runs."""
        return bool(self.limits)

    def bind(self, function: Callable[..., Any]) -> None:
        """Check the templates against the task's signature.

        Raises:
            ThrottleError: a template names what the task does not take.
        """
        arguments = _Arguments(function)
        for what, template in [("key", limit.key) for limit in self.limits] + [("cost", self.cost)]:
            for name in _names(template):
                if not arguments.takes(name):
                    takes = ", ".join(arguments.names) or "no arguments"
                    raise ThrottleError(
                        f"{what} template {template!r} names {name!r}, "
                        f"but {getattr(function, '__qualname__', function)} takes {takes}"
                    )
            if isinstance(template, str) and template in arguments.names:
                raise ThrottleError(f'{what} {template!r} is the same for all calls; did you mean "{{{template}}}"?')
        self._arguments = arguments

    def resolve(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], identity: Callable[[object], str]
    ) -> tuple[str, tuple[str, ...], tuple[int, ...]]:
        """Lane, stored key and cost per limit, of one call.

        Raises:
            ThrottleError: key or cost cannot be made of these arguments.
            CostExceedsLimit: the cost could never pass.
        """
        values = self._arguments.values(args, kwargs) if self._arguments else dict(kwargs)
        keys = [
            "-" if make is None else identity(_applied("key", limit.key, make, values, args, kwargs))
            for limit, make in zip(self.limits, self._keys, strict=True)
        ]
        cost = self._units(values, args, kwargs)
        for limit, key in zip(self.limits, keys, strict=True):
            if not limit.closed:
                limit.check_cost(cost, None if key == "-" else key)
        apart = [key for limit, key in zip(self.limits, keys, strict=True) if limit.key is not None]
        return lane_of(apart, identity), tuple(keys), (cost,) * len(keys)

    def _units(self, values: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
        if isinstance(self.cost, int):
            return self.cost
        found = _applied("cost", self.cost, self._cost, values, args, kwargs)
        try:
            return check_units(int(found) if isinstance(found, str) else found)
        except ValueError as exc:
            raise InvalidRate(f"cost {self.cost!r} gave {found!r}, which is no whole number of units") from exc


def _longest(max_wait: object) -> int:
    if max_wait is None:
        return 0
    seconds = max_wait.total_seconds() if isinstance(max_wait, timedelta) else max_wait
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= _YEAR:
        raise ThrottleError(f"max_wait must be seconds or a timedelta, above 0 and up to a year, not {max_wait!r}")
    return round(seconds * 1e6)


def _most(max_backlog: object) -> int:
    if max_backlog is None:
        return 0
    if isinstance(max_backlog, bool) or not isinstance(max_backlog, int) or not 0 < max_backlog <= 10**9:
        raise ThrottleError(f"max_backlog must be a whole number of tasks from 1, not {max_backlog!r}")
    return max_backlog


def _names(template: object) -> list[str]:
    """Names of the arguments a template uses; none for values and callables."""
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


def _value(said: object) -> Callable[[Mapping[str, Any], Sequence[Any], Mapping[str, Any]], object]:
    """How to make a key or cost of a call."""
    if callable(said):
        return lambda values, args, kwargs: said(*args, **kwargs)
    names = _names(said)
    if not names:
        constant = said.format() if isinstance(said, str) else said
        return lambda values, args, kwargs: constant
    template = str(said)
    if template == f"{{{names[0]}}}":
        return lambda values, args, kwargs: values[names[0]]
    return lambda values, args, kwargs: template.format_map(values)


def _applied(what: str, said: object, make: Callable[..., object], *call: Any) -> object:
    try:
        return make(*call)
    except ThrottleError:
        raise
    except Exception as exc:
        raise ThrottleError(f"cannot make the {what} {said!r} of the task's arguments: {exc!r}") from exc


class _Arguments:
    """A task's arguments by name, whichever way they were passed."""

    def __init__(self, function: Callable[..., Any]) -> None:
        parameters = list(inspect.signature(function).parameters.values())
        named = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self._positional = [p.name for p in named]
        self._any = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self._defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        self.names = [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL]

    def takes(self, name: str) -> bool:
        return self._any or name in self.names

    def values(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._defaults, **dict(zip(self._positional, args, strict=False)), **kwargs}
