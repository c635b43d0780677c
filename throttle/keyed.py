"""What all limits share: a name fit for HTTP fields, and being asked for one key."""

from __future__ import annotations

from typing import Any, NamedTuple

from throttle.errors import InvalidRate


class Of(NamedTuple):
    """A limit and whom to count under it, so that one question can ask several limits for different keys."""

    limit: Any
    key: object


class Keyed:
    """Mixin of every limit."""

    def of(self, key: object) -> Of:
        """This limit for that key: `acquire(per_address.of(address), per_key.of(api_key), endpoint)`."""
        return Of(self, key)


def check_name(name: str | None) -> None:
    """A policy's name appears in HTTP fields.

    Raises:
        InvalidRate: it cannot.
    """
    if name is not None and not (name.isascii() and name.isprintable() and name):
        raise InvalidRate(f"name {name!r} must be printable ASCII: it appears in HTTP fields")
