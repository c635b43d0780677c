"""What is said wrongly when limits are set up: told there, with the remedy, and not with the first request."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from throttle.errors import ThrottleError

if TYPE_CHECKING:
    from throttle.rules import Guard

_METHOD = re.compile(r"[!#$%&'*+.^_`|~\w-]+", re.ASCII)


def callable_with(what: str, said: Any, *given: str) -> None:
    """That it is a callable for these arguments.

    Args:
        what: what it is for.
        said: what was said.
        given: what it is called with.

    Raises:
        ThrottleError: it is none, or takes others.
    """
    wanted = " and ".join(given)
    if not callable(said):
        raise ThrottleError(f"{what} {said!r} is no callable: say a function that is given the {wanted}")
    try:
        signature = inspect.signature(said)
    except (TypeError, ValueError):  # written in C, some do not tell
        return
    try:
        signature.bind(*given)
    except TypeError as error:
        raise ThrottleError(f"{what} {said!r} is called with the {wanted}, and does not take that ({error})") from None


def methods_of(said: Any) -> list[str]:
    """Methods, in capitals and sorted.

    Raises:
        ThrottleError: they are none.
    """
    named = several("methods", () if said is None else said, '"POST", or several as ["GET", "POST"]')
    for one in named:
        if not isinstance(one, str) or not _METHOD.fullmatch(one):
            raise ThrottleError(f'methods {said!r}: say "POST", or several as ["GET", "POST"]')
    return sorted({one.upper() for one in named})


def several(what: str, said: Any, example: str) -> list[Any]:
    """What may be one text or several things.

    Raises:
        ThrottleError: it is neither.
    """
    if isinstance(said, str):
        return [said]
    if not isinstance(said, Iterable):
        raise ThrottleError(f"{what} {said!r} is no list: say {example}".lstrip())
    return list(said)


def check_cost(said: Any) -> None:
    """Raise `ThrottleError` for what is no number of units and no callable that says one."""
    if callable(said):
        callable_with("cost", said, "Asking")
    elif isinstance(said, bool) or not isinstance(said, (int, float)) or not 0 <= said < float("inf"):
        raise ThrottleError(f"cost {said!r} is no number of units: say 1, 5, … or a function that is given the Asking")


def check_text(what: str, said: Any, example: str) -> None:
    """Raise `ThrottleError` for what is no text."""
    if not isinstance(said, str):
        raise ThrottleError(f"{what} {said!r} is no text: say {example}")


def check_flag(what: str, said: Any) -> None:
    """Raise `ThrottleError` for what is neither `True` nor `False`: "no" for one, which would be taken for yes."""
    if not isinstance(said, bool):
        raise ThrottleError(f"{what} is {said!r}: say True or False")


def the_guard(said: Any, call: str) -> Guard:
    """The guard.

    Args:
        said: what stands in its place.
        call: how it is to be written.

    Raises:
        ThrottleError: it is none.
    """
    from throttle.rules import Guard

    if not isinstance(said, Guard):
        raise ThrottleError(f"{_short(said)} is no Guard: say {call}, where guard = Guard(Limiter(url), Rule(…))")
    return said


def the_app(said: Any, kind: type | None, call: str) -> Any:
    """The app.

    Args:
        said: what stands in its place.
        kind: its class; `None`: anything that can be called.
        call: how it is to be written.

    Raises:
        ThrottleError: it is none.
    """
    if not callable(said) if kind is None else not isinstance(said, kind):
        what = "app" if kind is None else f"{kind.__name__} app"
        raise ThrottleError(f"{_short(said)} is no {what}: say {call}")
    return said


def _short(said: Any) -> str:
    """Of what kind it is; a repr could hold a password."""
    return repr(said) if said is None or isinstance(said, (bool, int, float)) else f"a {type(said).__name__}"
