"""Requests as nobody sends them by mistake: a grammar, seeded, so that number i of a seed is the same for ever."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from random import Random

#: Stands in each secret that is sent: no key in Redis and no line of a log may hold it.
SECRET = "hunter2"

#: Proxies of ours, where an app trusts any.
PROXIES = ("10.0.0.1", "10.0.0.2", "::ffff:10.0.0.3")

_V4 = [f"198.51.100.{n}" for n in range(40)] + [f"203.0.113.{n}" for n in range(20)]
_NETS = [f"2001:db8:{n:x}:1" for n in range(20)]
_ODD = [None, "", "testclient", "nonsense é", "fe80::1%eth0", "fe80::2%25en1", "::1"]
#: Who may ask, several ways to write one of them included.
PEERS: tuple[str | None, ...] = (
    *_V4,
    *(f"::ffff:{address}" for address in _V4[:10]),
    *(f"64:ff9b::{address}" for address in _V4[:10]),
    *(f"{net}::{host:x}" for net in _NETS for host in (1, 0xFFFF)),
    *_ODD,
)
#: How many of them are to be told apart: addresses, networks, and connections without an address, with one of the
#: two words, or from a link (fe80::/64) or this machine (::/64).
CALLERS = len(_V4) + len(_NETS) + 5


@dataclass
class Sent:
    """One request as a server has read it from its socket: bytes, and names in the case they came in."""

    method: str
    target: str
    headers: list[tuple[bytes, bytes]]
    body: bytes
    peer: str | None
    is_websocket: bool = False

    @property
    def raw(self) -> bytes:
        """As it goes over a socket."""
        lines = [name + b": " + value for name, value in self.headers]
        head = f"{self.method} {self.target} HTTP/1.1".encode("utf-8", "surrogatepass")
        return b"\r\n".join([head, *lines, b"", b""]) + self.body


METHODS = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "PROPFIND", "PRI", "get")
_TOKEN = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_PIECES = (
    "/", "//", "/.", "/..", "/../", "/.../", "%2f", "%2F", "%5c", "%00", "%0a", "%0d%0a", "%c0%af", "%e0%80%af", "%ff",
    "%f8%88%80%80%80", "%ed%a0%80", "%", "%zz", "%u0041", "%25", "%2e%2e", "{id}", "<int:id>", "*", ";a=b", ":80", "@",
    "~", "+", "%20", "%E2%82%AC", "%F0%9F%92%A9", ".json", ".", "\\", "'", '"', "|", "^", "`", "0" * 40, "-1", "nan",
)  # fmt: skip
_NAMES = (
    b"X-Forwarded-For", b"x-forwarded-for", b"X-FORWARDED-FOR", b"Forwarded", b"X-Real-IP", b"X-Forwarded-Host",
    b"X-Forwarded-Proto", b"X_Forwarded_For", b"True-Client-IP", b"Via", b"X-API-Key", b"X-Api-Key", b"Authorization",
    b"Proxy-Authorization", b"Cookie", b"X-User", b"X-Cost", b"X-Tenant", b"Origin", b"Access-Control-Request-Method",
    b"Host", b"Accept", b"Range", b"If-None-Match", b"X-HTTP-Method-Override", b"X-CSRFToken", b"Referer", b"Date",
    b"User-Agent", b"Content-Encoding", b"TE", b"Upgrade", b"Retry-After", b"RateLimit", b"RateLimit-Policy",
)  # fmt: skip
_VALUES = (
    b"", b" ", b"\t", b",", b",,,", b";", b'"', b'"\\', b"'", b"\x00", b"\x7f", b"\xff\xfe", b"\xc3\xa9", b"\xc0\xaf",
    b"0", b"-1", b"1e9", b"1e999", b"nan", b"inf", b"99999999999999999999", b"None", b"null", b"true", b"[]", b"{}",
    b"%s%n%d", b"${jndi:ldap://x}", b"../../etc/passwd", b"{customer}", b"=?utf-8?q?x?=", b"a\r\n b", b"POST", b"*",
    b"bytes=0-", b"https://example.com", b"application/json", b"chunked, gzip", b'"burst";r=9999;t=1', b"free", b"pro",
)  # fmt: skip
_HOPS = (
    "192.0.2.9", "192.0.2.9:8080", "192.0.2.9:_x", "[2001:db8::9]", "[2001:db8::9]:443", "2001:db8::9", "::1", "",
    "[fe80::1%25eth0]:80", "fe80::1%eth0", "::ffff:192.0.2.9", "64:ff9b::192.0.2.9", "10.0.0.1", "127.0.0.1", "unknown",
    "_hidden", "192.0.2.256", "192.0.2", "0x7f.1", "3221225985", "٣.0.2.1", "[", "]", "[]", "[::1", "1.2.3.4.5", '"',
    '"10.0.0.1"', "\\", "for=1.2.3.4", " ", "\t", "\x00", "localhost", "203.0.113.0/24", "-1", "é", "2001:db8::9::1",
)  # fmt: skip
_TYPES = (
    b"application/json", b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=x", b"text/plain",
    b"multipart/form-data", b"application/json; charset=utf-7", b"application/json; charset=\xff", b"", b"/",
    b"application/x-www-form-urlencoded; charset=no-such", b'multipart/form-data; boundary="', b"application/xml",
)  # fmt: skip


class Grammar:
    """Makes requests for one app.

    Args:
        seed: of all of them.
        paths: that the app has.
        bodies: that it takes; others are made of them.
        proxies: whether peers may be proxies of ours: what comes from one ends with an address it has seen.
    """

    def __init__(self, seed: str, paths: tuple[str, ...], bodies: tuple[bytes, ...], proxies: bool = False) -> None:
        self._seed, self._paths, self._bodies, self._proxies = seed, paths, bodies, proxies

    def request(self, number: int) -> Sent:
        """Number so and so."""
        rng = Random(f"{self._seed}:{number}")
        headers = [self._header(rng) for _ in range(rng.choice((0, 1, 1, 2, 3, 4, 8)))]
        if rng.random() < 0.4:
            headers.append(_credential(rng))
        body = self._body(rng) if rng.random() < 0.5 else b""
        if body or rng.random() < 0.1:
            headers.append((b"Content-Type", rng.choice(_TYPES) if rng.random() < 0.6 else _TYPES[rng.random() < 0.5]))
        peer = rng.choice(PEERS)
        if self._proxies and rng.random() < 0.5:
            headers, peer = _through_a_proxy(rng, headers, peer or "198.51.100.0"), rng.choice(PROXIES)
        return Sent(self._method(rng), self._target(rng), headers, body, peer, rng.random() < 0.02)

    def _method(self, rng: Random) -> str:
        if rng.random() < 0.9:
            return rng.choice(METHODS[: rng.choice((2, 2, 2, 4, len(METHODS)))])
        return "".join(rng.choices(_TOKEN, k=rng.choice((1, 5, 200))))

    def _target(self, rng: Random) -> str:
        path = rng.choice(self._paths)
        for _ in range(rng.choice((0, 0, 0, 0, 0, 0, 1, 2, 5))):
            at = rng.randrange(len(path) + 1)
            path = path[:at] + rng.choice(_PIECES) + path[at:]
        fate = rng.random()
        if fate < 0.02:
            path = rng.choice(
                ("*", "", "http://example.com" + path, "//example.com" + path, "?" + path, "#", path * 500)
            )
        elif fate < 0.1:
            path = "/" + "".join(f"%{rng.randrange(256):02x}" for _ in range(rng.choice((1, 3, 30))))
        return path + (
            "" if rng.random() < 0.8 else rng.choice(("?", "?a=b&a", "?%00=%ff", "?" + "x" * 2000, "??", "?="))
        )

    def _header(self, rng: Random) -> tuple[bytes, bytes]:
        name = rng.choice(_NAMES)
        fate = rng.random()
        if fate < 0.03:
            name = bytes(rng.choices(_TOKEN.encode(), k=rng.choice((1, 20, 300))))
        if name.lower() in (b"x-forwarded-for", b"x_forwarded_for", b"x-real-ip") and fate < 0.9:
            return name, _chain(rng)
        if name == b"Forwarded" and fate < 0.9:
            return name, _elements(rng)
        if fate > 0.998:
            return name, rng.choice((b"x", b",", b'"\\', b"1.2.3.4,", b"for=1.2.3.4,")) * 30_000
        return name, rng.choice(_VALUES) if rng.random() < 0.8 else rng.randbytes(rng.choice((1, 10, 200)))

    def _body(self, rng: Random) -> bytes:
        body, fate = rng.choice(self._bodies), rng.random()
        if fate < 0.4:
            return body
        if fate < 0.6:
            value = rng.choice(
                (None, True, 1, -0.0, 1e308, 10**40, [], {}, [[]], "\ud800", "\x00", {"to": []}, "x" * 9999)
            )
            return json.dumps(rng.choice((value, {"to": value, "text": value}, [value], {"to": "x"}))).encode()
        if fate < 0.7:
            return rng.choice(
                (b"[" * 20_000, b'{"a":' * 20_000, b"NaN", b"1" * 5000, b"\xff\xfe", b"\x1f\x8b\x08", b"--x")
            )
        cut = bytearray(body or b"{}")
        for _ in range(rng.choice((1, 3))):
            cut[rng.randrange(len(cut))] = rng.randrange(256)
        return bytes(cut[: rng.randrange(len(cut) + 1)] if fate < 0.8 else cut)


def _chain(rng: Random) -> bytes:
    hops = (rng.choice(_HOPS) for _ in range(rng.choice((0, 1, 1, 2, 3, 10, 40))))
    return rng.choice((", ", ",", " ,", ",,")).join(hops).encode("utf-8")


def _elements(rng: Random) -> bytes:
    elements = []
    for _ in range(rng.choice((1, 1, 2, 5))):
        hop = rng.choice(_HOPS)
        quoted = rng.choice((hop, f'"{hop}"', '"' + hop.replace("1", "\\1") + '"', f'"{hop}'))
        pairs = [f"{rng.choice(('for', 'For', 'FOR', 'by', 'for ', ''))}={quoted}", "proto=https", 'host="a,b;c"']
        elements.append(rng.choice((";", "; ", ";;")).join(rng.sample(pairs, rng.choice((1, 2, 3)))))
    return ", ".join(elements).encode("utf-8")


def _credential(rng: Random) -> tuple[bytes, bytes]:
    """One that could be real; a few of each, as callers have them."""
    token = f"{SECRET}-{rng.randrange(20):016d}-{rng.choice(('', 'x' * 20, 'y' * 100))}"
    basic = base64.b64encode(f"user:{token}".encode())
    return rng.choice((
        (b"X-API-Key", token.encode()), (b"Authorization", b"Bearer " + token.encode()),
        (b"authorization", b"Token " + token.encode()), (b"Authorization", b"Basic " + basic),
        (b"Cookie", b"theme=dark; sessionid=" + token.encode() + b"; x"), (b"X-API-Key", b"pro"),
        (b"X-Auth-Token", b'"' + token.encode() + b'"'), (b"X-API-Key", b"free"),
    ))  # fmt: skip


def _through_a_proxy(rng: Random, headers: list[tuple[bytes, bytes]], client: str) -> list[tuple[bytes, bytes]]:
    """As a proxy hands it on: names with "_" are dropped, and the client's address is added on the right."""
    kept = [(name, value) for name, value in headers if b"_" not in name]
    seen = client.partition("%")[0].encode()
    for name, entry in (
        (b"X-Forwarded-For", seen),
        (b"Forwarded", b'for="[' + seen + b']"' if b":" in seen else b"for=" + seen),
    ):
        lines = [i for i, (header, _) in enumerate(kept) if header.lower() == name.lower()]
        if lines and rng.random() < 0.5:
            header, value = kept[lines[-1]]
            kept[lines[-1]] = (header, value + b", " + entry)
        else:
            kept.append((name, entry))
    return kept


def damaged(rng: Random, raw: bytes) -> bytes:
    """What a request is when it has come through something bad, or from somebody bad."""
    head, _, body = raw.partition(b"\r\n\r\n")
    line, _, rest = head.partition(b"\r\n")
    method, target, *_ = [*line.split(b" "), b"", b""]
    end = b"\r\n\r\n"
    headers = rng.choice((
        b"no colon here\r\n" + rest, b": no name\r\n" + rest, b"X-Forwarded-For : 1.2.3.4\r\n" + rest,
        b" fold" + end + rest, rest + b"\r\n\tfolded", b"Content-Length: 5\r\nContent-Length: 6", b"Content-Length: -1",
        b"Content-Length: x", b"Content-Length: 99999999999999999999", b"Transfer-Encoding: chunked" + end + b"zz\r\n",
        b"X: y\r\n" * 300,
        b"Transfer-Encoding: chunked" + end + b"5\r\nab", b"Expect: 100-continue\r\nContent-Length: 4",
        b"X: " + b"y" * 70_000,
        b"Transfer-Encoding: chunked\r\nContent-Length: 4" + end + b"0" + end + raw,
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 99\r\n" + rest,
    ))  # fmt: skip
    return rng.choice((
        raw[: rng.randrange(len(raw) + 1)], raw.replace(b"\r\n", b"\n"), raw.replace(b"\r\n", b"\r"), b"\r\n" * 5 + raw,
        raw.replace(b"HTTP/1.1", rng.choice((b"HTTP/1.0", b"HTTP/2", b"HTTP/9.9", b"http/1.1", b"HTTP/", b"X"))),
        method + b" " + target + b"\r\n", method + b" /" + b"a" * 70_000 + b" HTTP/1.1" + end, raw + raw,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + raw, b"PRI * HTTP/2.0" + end + b"SM" + end, b"\x00" * 300,
        rng.randbytes(rng.choice((1, 50, 5000))), *[line + b"\r\n" + headers + end + body] * 12,
    ))  # fmt: skip
