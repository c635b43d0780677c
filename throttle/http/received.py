"""The fields of an answer or a request as they came: whatever object holds them, and whatever is wrong with them."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Iterator
from typing import Any


def received(headers: object, wanted: Container[str] | None = None) -> dict[str, list[str]]:
    """Field values by lower-case name, in the order they came. Never raises; what cannot be read is left out.

    Args:
        headers: a mapping of names to values (or lists of values), or pairs of them; text or bytes.
        wanted: the lower-case names to look for; all of them unless said.
    """
    found: dict[str, list[str]] = {}
    with contextlib.suppress(Exception):
        for name, value in _pairs(headers, wanted):
            found.setdefault(name, []).append(value)
    return found


def _pairs(headers: Any, wanted: Container[str] | None) -> Iterator[tuple[str, str]]:
    items = getattr(headers, "items", None)
    pairs: Iterable[Any] = items() if callable(items) else headers
    for pair in pairs:  # all: the last line of a field is the one that the nearest proxy wrote
        with contextlib.suppress(TypeError, ValueError):  # no pair
            name, value = pair
            field = (_text(name) or "").lower()  # "x-forwarded-for " is another one, and no proxy wrote it
            if field and (wanted is None or field in wanted):
                texts = map(_text, value if isinstance(value, (list, tuple)) else (value,))
                yield from ((field, text.strip()) for text in texts if text is not None)


def _text(value: object) -> str | None:
    """Bytes are ISO-8859-1, as WSGI and ASGI have it: each is a character, and none is an error."""
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode("latin-1")
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return format(value, "f") if isinstance(value, float) else str(value) if is_number else None
