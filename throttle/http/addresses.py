"""The address a request comes from, as far as it can be believed.

Sources: RFC 7239 (Forwarded), and the custom of `X-Forwarded-For`. Each proxy appends the address that
connected to it, so both are read from the right: what stands left of the outermost trusted proxy's entry was
written by the client, and may be anything.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

#: Characters read of a forwarding field, from the right: about 100 hops. A client may send 1 MiB.
_TAIL = 4096

_BRACKETS = re.compile(r"\[([^\[\]]{2,60})\](?::\w{1,32})?", re.ASCII)
_PORT = re.compile(r"([\d.]{7,15}):\w{1,32}", re.ASCII)

# Of the text reversed, for the right end is the one to be trusted: what a client wrote on the left, an
# unbalanced quote for one, must not change how this is read. Reversed, an escaped quote is a quote and a \.
_ELEMENT = re.compile(r'(?:"(?:"\\|[^"])*"(?!\\)|[^",])*')
_PAIR = re.compile(r"""\s*(?:([!#$%&'*+.^_`|~\w-]+)=("(?:\\.|[^"\\])*"|[^\s;,"]*)\s*)?(?:;|$)""", re.ASCII)


def address_of(text: str) -> Address | None:
    """An address as peers and proxies write it: port and zone are left out, IPv4 in IPv6 is IPv4."""
    text = text.strip()
    if match := _BRACKETS.fullmatch(text) or _PORT.fullmatch(text):
        text = match[1]
    if len(text) > 100:
        return None
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def forwarded_for(lines: Sequence[str], is_rfc_7239: bool) -> Iterator[Address | None]:
    """The addresses in a forwarding field, the last one first; `None` for what is none.

    Args:
        lines: the field's values.
        is_rfc_7239: whether it is `Forwarded`.
    """
    text = ",".join(lines)
    tail = text[-_TAIL:]
    elements = _elements(tail) if is_rfc_7239 else reversed(tail.split(","))
    budget = tail.count(",") if len(text) > _TAIL else _TAIL  # the leftmost piece of a tail is cut
    for _, element in zip(range(budget), elements):  # noqa: B905 (the shorter one ends it)
        yield address_of(_for(element) if is_rfc_7239 else element)


def _elements(text: str) -> Iterator[str]:
    """The elements of a `Forwarded`, the last one first; ends where the text is malformed."""
    backwards, at = text[::-1], 0
    while at <= len(backwards):
        match = _ELEMENT.match(backwards, at)
        end = match.end() if match else at
        if end < len(backwards) and backwards[end] != ",":
            yield ""
            return
        yield backwards[at:end][::-1]
        at = end + 1


def _for(element: str) -> str:
    """What an element of `Forwarded` says it is for; '' if nothing, or two things."""
    found, at = [], 0
    while at < len(element):
        match = _PAIR.match(element, at)
        if match is None:
            return ""
        if match[1] and match[1].lower() == "for":
            found.append(re.sub(r"\\(.)", r"\1", match[2][1:-1]) if match[2].startswith('"') else match[2])
        at = max(match.end(), at + 1)
    return found[0] if len(found) == 1 else ""
