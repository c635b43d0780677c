"""Who is asking: what a limit counts apart.

An identity is text for `key=`. Of the parts it is made of, no two lists give one identity; parts that are secret
or longer than 64 bytes are a keyed digest (BLAKE2b), so that a dump of Redis, a log or a metric does not tell them.

Sources: RFC 7239 (Forwarded); RFC 4291 section 2.5.5.2 (IPv4 in IPv6), RFC 6052 section 2.1 (IPv4 behind NAT64),
RFC 6177 (a site has a /64 at least).
"""

from __future__ import annotations

import ipaddress
import logging
import re
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from threading import Lock
from typing import Any

from throttle.errors import ThrottleError
from throttle.http.addresses import Address, Network, address_of, forwarded_for
from throttle.http.received import received
from throttle.keys import Namer

logger = logging.getLogger(__name__)

#: What a connection has that comes from no address, over a Unix socket.
NO_ADDRESS = "unix"

_LONGEST = 64  # bytes of an identity as it is; longer ones are a digest
_FORWARDED = ("x-forwarded-for", "forwarded")
_NAT64 = IPv6Network("64:ff9b::/96")

#: What an Authorization field holds; and what may be a token, if it has letters and digits. Long names look so too.
_SCHEME = re.compile(r"\b(?:basic|bearer|digest|token|key|negotiate|hmac[\w-]*)\s+\S", re.ASCII | re.IGNORECASE)
_TOKEN = re.compile(r"[\w.~+/=-]{20,}", re.ASCII)
_UNTRUSTED = (
    "requests: the peer %s is private and sends %s, so it looks like a proxy, yet nothing is trusted and all its "
    "clients count as one: say Identity(trusted_proxies=1), or 0 if it is none"
)
_once = Lock()


class Secret:
    """A part of an identity that is stored as a digest however short it is. Does not print itself."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "secret(…)"


def secret(value: str) -> Secret:
    """Marks a part of an identity as secret: an API key, a session."""
    return Secret(value)


def discreet(value: Any) -> Any:
    """What somebody says names a caller; as a secret if it looks like a credential, for keys are read by others too.

    It depends on nothing but the value: what a client sends beside it must not lead to another bucket.
    """
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    if not isinstance(value, str):
        return value
    return Secret(value) if len(value) > _LONGEST or _is_credential(value) else value


def _is_credential(text: str) -> bool:
    if _SCHEME.search(text):
        return True
    return any(re.search("[0-9]", one) and re.search("[A-Za-z]", one) for one in _TOKEN.findall(text))


def opaque(identity: object, pepper: str) -> bytes:
    """An identity as 12 bytes that tell nothing of it to whoever does not have the pepper.

    Raises:
        ThrottleError: without a pepper: all 2**32 addresses of IPv4 are tried in a minute.
    """
    if not pepper:
        raise ThrottleError("a partition is shown as a keyed digest only: say pepper=, a secret all processes share")
    value = identity.value if isinstance(identity, Secret) else str(identity)
    return blake2b(value.encode("utf-8", "surrogatepass"), key=_short(pepper).encode(), digest_size=12).digest()


class Identity:
    """Says whom to count apart: API key, user or address, in this order of trust.

    Args:
        trusted_proxies: how far forwarded addresses are believed. `None` and 0: not at all, the peer is the
            client. A count: that many proxies stand before this server, the peer is the nearest. CIDRs: a peer
            among them is a proxy, and so on outwards; "unix" among them trusts peers without an address.
        header: the one field that your proxies write: "x-forwarded-for" or "forwarded". Never both: a proxy
            lets the one it does not know pass, as the client wrote it.
        ipv6_prefix: IPv6 addresses alike in so many bits are one client, from 32 to 128.
        pepper: secret that keys the digests; unless said, a constant of the scope.
        scope: whose digests these are: one secret has another digest in another scope.

    Raises:
        ThrottleError: a setting that makes no sense.
    """

    def __init__(
        self,
        trusted_proxies: int | str | Iterable[str] | None = None,
        *,
        header: str = "x-forwarded-for",
        ipv6_prefix: int = 64,
        pepper: str = "",
        scope: str = "default",
    ) -> None:
        if isinstance(ipv6_prefix, bool) or not isinstance(ipv6_prefix, int) or not 32 <= ipv6_prefix <= 128:
            raise ThrottleError(f"ipv6_prefix {ipv6_prefix!r} must be a whole number from 32 to 128")
        if not isinstance(header, str) or header.lower() not in _FORWARDED:
            raise ThrottleError(f"header {header!r} must be one of {', '.join(_FORWARDED)}")
        if not isinstance(pepper, str) or not isinstance(scope, str):
            raise ThrottleError("pepper and scope must be texts: say pepper=os.environ[…]")
        self._header, self._prefix = header.lower(), ipv6_prefix
        self._is_told = trusted_proxies is not None
        self._hops, self._networks, self._trusts_unix = _trust(trusted_proxies)
        self._digest_key = _short(pepper or f"throttle:{scope}")
        self._namer = Namer(secret=self._digest_key)

    def who(self, peer: str | None, headers: object = (), *, api_key: str | None = None, user: object = None) -> str:
        """The identity of whoever asks: of the API key, else of the user, else of the address.

        Only keys and users that have been checked: a new, unchecked one per request would be a new bucket each.

        Args:
            peer: address of the other end of the connection; `None` over a Unix socket.
            headers: of the request: a mapping, or pairs; text or bytes.
            api_key: stored as a digest.
            user: whatever names the user; what looks like a credential is stored as a digest.
        """
        if api_key:
            return self.key("key", secret(api_key))
        if user is not None and user != "":
            return self.key("user", discreet(user))
        return self.key("ip", self.address(peer, headers))

    def key(self, *parts: object) -> str:
        """One identity of several parts; other parts give another one. At most 66 bytes of ASCII.

        Args:
            parts: texts, numbers, or secrets.
        """
        whole = ":".join(map(self._part, parts))
        # "~~" begins no part: what they have of "~" is a digest, which is hexadecimal after that, or escaped
        return whole if len(whole) <= _LONGEST else "~" + self._namer.identity(whole)

    def _part(self, part: object) -> str:
        if not isinstance(part, Secret):
            return self._namer.identity(part)
        value = part.value.encode("utf-8", "surrogatepass")
        digest = blake2b(value, key=self._digest_key.encode(), digest_size=20, person=b"secret")
        return "~" + digest.hexdigest()

    def address(self, peer: str | None, headers: object = ()) -> str:
        """The client's address: IPv4 as it is, IPv6 as its network. Never raises; what is malformed is not believed.

        Args:
            peer: address of the other end of the connection; `None` over a Unix socket.
            headers: of the request: a mapping, or pairs; text or bytes.
        """
        nearest = address_of(peer) if peer else None
        if not self._is_told:
            self._warn(nearest, peer, headers)
        client = self._outermost(nearest, headers) if self._trusts(nearest, 0) else nearest
        return (peer or NO_ADDRESS) if client is None else self._masked(client)

    def _outermost(self, peer: Address | None, headers: object) -> Address | None:
        """From the right, as long as it is a trusted proxy that has written it; the last that is an address."""
        client = peer
        lines = received(headers, (self._header,)).get(self._header, ())
        for hop, address in enumerate(forwarded_for(lines, self._header == "forwarded"), start=1):
            if address is None:
                return client
            client = address
            if not self._trusts(client, hop):
                return client
        return client

    def _trusts(self, address: Address | None, hop: int) -> bool:
        """Whether this is a proxy of ours: by its place, counted from here, or by its address."""
        if self._hops is not None:
            return hop < self._hops
        if address is None:
            return self._trusts_unix
        return any(address in network for network in self._networks)

    def _masked(self, address: Address) -> str:
        if address.version == 4:
            return str(address)
        if address in _NAT64:  # all of IPv4 would be one client; whether it is trusted is another matter
            return str(IPv4Address(int(address) & 0xFFFFFFFF))
        # IPv6Network and not ip_network, which takes small numbers, ::1 for one, for IPv4
        return str(IPv6Network((int(address), self._prefix), strict=False))

    def _warn(self, address: Address | None, peer: str | None, headers: object) -> None:
        if _warned or (peer and address is None) or (address is not None and address.is_global):
            return
        sent = received(headers, _FORWARDED)
        if sent and _first_time():
            logger.warning(_UNTRUSTED, address or NO_ADDRESS, " and ".join(sent))


#: Not empty once this process has warned.
_warned: list[bool] = []


def _first_time() -> bool:
    with _once:
        if not _warned:
            _warned.append(True)
            return True
    return False


def _trust(trusted: int | str | Iterable[str] | None) -> tuple[int | None, tuple[Network, ...], bool]:
    """Hops, or networks and whether peers without an address are trusted."""
    if trusted is None or isinstance(trusted, int):
        if isinstance(trusted, bool) or (trusted or 0) < 0:
            raise ThrottleError(f"trusted_proxies {trusted!r} must be a count, or CIDRs")
        return trusted or 0, (), False
    named = [trusted] if isinstance(trusted, str) else list(trusted) if isinstance(trusted, Iterable) else [trusted]
    if not all(isinstance(one, (str, IPv4Network, IPv6Network)) for one in named):  # a number would be an address
        raise ThrottleError(f'trusted_proxies {trusted!r} must be a count, or CIDRs as "10.0.0.0/8"')
    try:
        networks = tuple(ipaddress.ip_network(one) for one in named if one != NO_ADDRESS)
    except ValueError as error:
        raise ThrottleError(f'trusted_proxies: {error}; say a count, or CIDRs as "10.0.0.0/8"') from error
    return None, networks, NO_ADDRESS in named


@lru_cache(64)
def _short(pepper: str) -> str:
    """64 characters of any pepper: BLAKE2b takes keys of up to 64 bytes, and would refuse a longer one."""
    return blake2b(pepper.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()
