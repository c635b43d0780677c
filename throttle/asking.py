"""One request as limits see it, and what was decided about it, by however many layers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from throttle.decision import Decision
from throttle.http import Refusal
from throttle.http.received import received

#: Where adapters keep a request's ledger: a key of the ASGI scope, of the WSGI environ, an attribute elsewhere.
LEDGER = "throttle.ledger"

_FORWARDED = frozenset((b"x-forwarded-for", b"forwarded", "x-forwarded-for", "forwarded"))


class Ledger:
    """What was taken for one request: a second layer takes nothing twice, and all tell the same.

    Attributes:
        taken: the buckets that this request has paid, each a scope, a policy and a key.
        decision: all decisions as one: that which refused first, else the limit nearest to empty.
        fields: this decision as response fields.
    """

    __slots__ = ("decision", "fields", "taken")

    def __init__(self) -> None:
        self.taken: set[tuple[str, str, str]] = set()
        self.decision: Decision | None = None
        self.fields: dict[str, str] = {}

    @classmethod
    def of(cls, place: MutableMapping[str, Any]) -> Ledger:
        """The ledger kept in a mapping that lives as long as the request does; a new one if there is none."""
        ledger = place.get(LEDGER)
        if not isinstance(ledger, Ledger):
            ledger = place[LEDGER] = cls()
        return ledger

    def add(self, decision: Decision) -> None:
        """Note what was decided. `fields` are the caller's to renew: it knows the style."""
        if decision.policies or not decision.allowed:
            self.decision = decision if self.decision is None else merged(self.decision, decision)

    def missing(self, present: Iterable[str], status: int = 200) -> dict[str, str]:
        """The fields that an answer still needs.

        What a layer within has said stays: it knew more. `Retry-After` goes with a 429 or 503 only, which no cache
        may store (RFC 6585 section 4).

        Args:
            present: names of the fields it has, in any case.
            status: of the answer; 101 for a websocket that is accepted.
        """
        has = set(map(str.lower, present))
        refused = "Retry-After" in self.fields
        told = {name: value for name, value in self.fields.items() if name != "Retry-After"} if refused else self.fields
        if not has.isdisjoint(map(str.lower, told)):
            told = {}
        if refused and status in (429, 503):
            rest = {"Retry-After": self.fields["Retry-After"], "Cache-Control": "no-store"}
            told = {**told, **{name: value for name, value in rest.items() if name.lower() not in has}}
        return told


def merged(one: Decision, other: Decision) -> Decision:
    """Two decisions as one: the refusal with the longer wait, else the one with fewer units left."""
    first, second = (one, other) if _urgency(one) >= _urgency(other) else (other, one)
    return first._replace(policies=(*first.policies, *second.policies))


def _urgency(decision: Decision) -> tuple[bool, float, int]:
    return (not decision.allowed, decision.retry_after, -decision.remaining)


@dataclass(slots=True)
class Asking:
    """A request. Callables of rules are given it: `request` is the framework's own.

    Attributes:
        method: as sent.
        path: decoded, without the query.
        peer: address of the other end of the connection; `None` over a Unix socket.
        headers: pairs, text or bytes, or a mapping.
        route: template of the route, where the framework has already found it: "/sms/{id}".
        root: what of the path belongs to a server or app further out (ASGI root_path, WSGI SCRIPT_NAME).
        request: the framework's request; the scope or environ where there is no framework.
        api_key, user: who asks, checked; filled in by a guard that was told how.
        find_route: finds the template where `route` is `None`; called at most once, where it matters.
        ledger: of this request, shared by all layers.
    """

    method: str
    path: str
    peer: str | None = None
    headers: Any = ()
    route: str | None = None
    root: str = ""
    request: Any = None
    api_key: str | None = None
    user: Any = None
    find_route: Callable[[], str | None] | None = None
    ledger: Ledger = field(default_factory=Ledger)

    def header(self, name: str, default: str | None = None) -> str | None:
        """A header's value, several lines of it joined by ", "."""
        lines = received(self.headers, (name.lower(),)).get(name.lower())
        return ", ".join(lines) if lines else default

    @property
    def paths(self) -> tuple[str, ...]:
        """The path, and what is left of it for this app: rules may be written either way. Slashes are single."""
        path, root = self.path, self.root.rstrip("/")
        if "//" in path:
            path = re.sub("/{2,}", "/", path)
        if root and path.startswith(root + "/"):
            return (path, path[len(root) :])
        return (path,)

    @property
    def template(self) -> str | None:
        """Template of the route; `None` where no route is known."""
        if self.route is None and self.find_route is not None:
            find, self.find_route = self.find_route, None
            self.route = find()
        return self.route

    @property
    def is_forwarded(self) -> bool:
        """Whether it may have come through a proxy: fields say so, or it cannot be told at once."""
        headers = self.headers
        if type(headers) is not list:
            return True
        for name, _ in headers:  # noqa: SIM110 - a generator would be resumed for each field
            if name.lower() in _FORWARDED:
                return True
        return False

    @property
    def is_preflight(self) -> bool:
        """Whether a browser asks what it may ask (CORS)."""
        return (
            self.method == "OPTIONS"
            and self.header("origin") is not None
            and self.header("access-control-request-method") is not None
        )


class Outcome(NamedTuple):
    """What a guard says of a request.

    Attributes:
        fields: for the answer, whatever it is; those of all layers so far.
        decision: this guard's; `None` where no rule applied.
        refusal: what to answer instead; `None` if the request may pass.
    """

    fields: dict[str, str]
    decision: Decision | None = None
    refusal: Refusal | None = None

    @property
    def allowed(self) -> bool:
        """Whether the request may pass."""
        return self.refusal is None
