"""Who is asking: whom to believe, and what is not told; B35, B104–B106."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from throttle import ThrottleError, TokenBucket
from throttle.http import Identity, discreet, identity, opaque, secret
from throttle.http.addresses import address_of, forwarded_for
from throttle.keys import Namer
from throttle.testing import fake_store

PROXY = "10.0.0.1"


@pytest.fixture(autouse=True)
def new_process() -> Iterator[None]:
    """That has not warned yet."""
    identity._warned.clear()
    yield
    identity._warned.clear()


def xff(value: Any) -> dict[str, Any]:
    return {"X-Forwarded-For": value}


# -- addresses -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("192.0.2.1", "192.0.2.1"), (" 192.0.2.1 ", "192.0.2.1"), ("192.0.2.1:8080", "192.0.2.1"),
        ("192.0.2.1:_x", "192.0.2.1"), ("2001:DB8::1", "2001:db8::1"), ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:443", "2001:db8::1"), ("FE80::1%eth0", "fe80::1"), ("[fe80::1%25eth0]:80", "fe80::1"),
        ("::ffff:192.0.2.1", "192.0.2.1"), ("[::FFFF:c000:201]:80", "192.0.2.1"), ("0:0:0:0:0:0:0:1", "::1"),
        ("23189987", None), ("", None), ("unknown", None), ("_hidden", None), ("192.0.2.256", None),
        ("192.0.2.01", None), ("192.0.2", None), ("٣.0.2.1", None), ("[192.0.2.1", None), ("1.2.3.4:80:80", None),
        ("2001:db8::1::", None),
        ("1.2.3.4, 5.6.7.8", None), ("\x00", None), ("1" * 10**6, None), ("192.0.2.1/24", None),
    ],
)  # fmt: skip
def test_addresses_as_they_are_written(text: str, address: str | None) -> None:
    found = address_of(text)
    assert (None if found is None else str(found)) == address


def test_b104_a_forged_header_is_not_believed() -> None:
    nobody = Identity()
    rng = random.Random(1)
    forged = [f"{rng.randrange(1, 224)}.1.2.{rng.randrange(256)}" for _ in range(100)]
    assert {nobody.who("203.0.113.9", xff(address)) for address in forged} == {"ip:203.0.113.9"}
    assert {nobody.who("203.0.113.9", {"Forwarded": f"for={address}"}) for address in forged} == {"ip:203.0.113.9"}
    assert {Identity(["10.0.0.0/8"]).who("203.0.113.9", xff(address)) for address in forged} == {"ip:203.0.113.9"}
    assert {Identity(0).who("203.0.113.9", xff(address)) for address in forged} == {"ip:203.0.113.9"}


@pytest.mark.parametrize(
    ("trusted", "sent", "client"),
    [
        (1, "6.6.6.6, 203.0.113.9", "203.0.113.9"),
        (1, "203.0.113.9", "203.0.113.9"),
        (2, "6.6.6.6, 203.0.113.9, 10.0.0.2", "203.0.113.9"),
        (2, "203.0.113.9", "203.0.113.9"),
        (3, "6.6.6.6, 203.0.113.9, 198.51.100.7, 10.0.0.2", "203.0.113.9"),
        (1, "23189987", PROXY), (1, "evil, 23189987", PROXY), (1, "", PROXY), (1, "203.0.113.9,", PROXY),
        (1, "unknown", PROXY), (1, "203.0.113.9:51234", "203.0.113.9"),
        (1, ["6.6.6.6", "203.0.113.9"], "203.0.113.9"), (1, [b"6.6.6.6, 203.0.113.9"], "203.0.113.9"),
        ("10.0.0.0/8", "6.6.6.6, 203.0.113.9", "203.0.113.9"),
        (["10.0.0.0/8", "198.51.100.7"], "6.6.6.6, 203.0.113.9, 198.51.100.7, 10.0.0.2", "203.0.113.9"),
        (["10.0.0.0/8"], "garbage, 10.0.0.2", "10.0.0.2"), (["10.0.0.0/8"], "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        (["10.0.0.0/8"], "garbage", PROXY), (["2001:db8::/32"], "203.0.113.9", PROXY),
        (["0.0.0.0/0"], "203.0.113.9, ::ffff:10.0.0.2", "203.0.113.9"),
    ],
)  # fmt: skip
def test_b104_forwarded_addresses_are_read_from_the_right(trusted: Any, sent: Any, client: str) -> None:
    assert Identity(trusted).address(PROXY, xff(sent)) == client


def test_b104_rotating_what_stands_on_the_left_changes_nothing() -> None:
    for trusted in (1, ["10.0.0.0/8"]):
        who = Identity(trusted)
        assert len({who.who(PROXY, xff(f"{n}.1.1.1, 203.0.113.9")) for n in range(1, 101)}) == 1


def test_b104_many_lines_push_none_of_the_proxys_out() -> None:
    lines = [("x-forwarded-for", "6.6.6.6"), ("a", "b")] * 10_000
    assert Identity(1).address(PROXY, [*lines, ("X-Forwarded-For", "203.0.113.9")]) == "203.0.113.9"


@pytest.mark.parametrize("name", ["X-Forwarded-For ", "\tX-Forwarded-For", "X_Forwarded_For", "X-Forwarded-For\x00"])
def test_b104_a_name_that_looks_like_it_is_another(name: str) -> None:
    assert Identity(1).address(PROXY, [("x-forwarded-for", "203.0.113.9"), (name, "6.6.6.6")]) == "203.0.113.9"


@pytest.mark.parametrize(
    ("sent", "client"),
    [
        ("for=203.0.113.9", "203.0.113.9"), ("For=203.0.113.9;proto=https;by=10.0.0.1", "203.0.113.9"),
        ("for=6.6.6.6, for=203.0.113.9", "203.0.113.9"), ('for="203.0.113.9:4711"', "203.0.113.9"),
        ('proto=http ; FOR="[2001:db8:cafe::17]:4711"', "2001:db8:cafe::/64"), ("for=unknown", PROXY),
        ("for=_hidden, for=_secret", PROXY), ("proto=https", PROXY), ("for=1.1.1.1;for=2.2.2.2", PROXY), ("for", PROXY),
        ("=", PROXY), (";;", PROXY), ("for=203.0.113.9;", "203.0.113.9"), ('for="203.0.113.9', PROXY),
        # what a client wrote on the left swallows nothing of what the proxy wrote on the right
        ('for=", for=203.0.113.9', "203.0.113.9"), ('for="\\, for=203.0.113.9', "203.0.113.9"),
        ('x, for=203.0.113.9;host="a,b"', "203.0.113.9"),
        ('for=203.0.113.9;host="a\\", for=6.6.6.6;x=\\""', "203.0.113.9"),
        ('for=203.0.113.9;host="for=6.6.6.6;"', "203.0.113.9"), ('for="203.0.113\\.9"', "203.0.113.9"),
        ('for=203.0.113.9;host="x, for=6.6.6.6;y="', "203.0.113.9"),
    ],
)  # fmt: skip
def test_b104_rfc_7239(sent: str, client: str) -> None:
    assert Identity(1, header="Forwarded").address(PROXY, {"forwarded": sent}) == client


def test_b104_of_two_headers_only_the_one_that_the_proxy_writes_is_read() -> None:
    both = {"X-Forwarded-For": "203.0.113.9", "Forwarded": "for=6.6.6.6"}
    assert Identity(1).address(PROXY, both) == "203.0.113.9"
    assert Identity(1, header="forwarded").address(PROXY, both) == "6.6.6.6"
    assert Identity(1).address(PROXY, {"Forwarded": "for=6.6.6.6"}) == PROXY


def test_peers_without_an_address() -> None:
    assert Identity().address(None) == "unix"
    assert Identity(1).address(None, xff("203.0.113.9")) == "203.0.113.9"
    assert Identity(["unix"]).address("", xff("203.0.113.9")) == "203.0.113.9"
    assert Identity(["10.0.0.0/8"]).address(None, xff("203.0.113.9")) == "unix"
    assert Identity(["10.0.0.0/8"]).address("testclient", xff("203.0.113.9")) == "testclient"


def test_b105_one_warning_in_a_process(caplog: pytest.LogCaptureFixture) -> None:
    for trusted in (0, 1, [], ["10.0.0.0/8"]):
        Identity(trusted).address(PROXY, xff("203.0.113.9"))
    Identity().address("8.8.8.8", xff("203.0.113.9"))
    Identity().address(PROXY, {"Host": "example.org"})
    Identity().address("testclient", xff("203.0.113.9"))
    assert caplog.records == []
    for peer in (PROXY, "127.0.0.1", "fd00::1", "100.64.0.1", None):
        for sent in (xff("203.0.113.9"), {"Forwarded": "for=203.0.113.9"}):
            Identity().address(peer, sent)
            Identity().who(peer, sent)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "10.0.0.1 is private and sends x-forwarded-for" in record.getMessage()
    assert "trusted_proxies" in record.getMessage()
    assert "203.0.113.9" not in record.getMessage()


@pytest.mark.parametrize("peer", ["127.0.0.1", "fd00::1", "100.64.0.1", None])
def test_b105_what_is_private(peer: str | None, caplog: pytest.LogCaptureFixture) -> None:
    Identity().address(peer, {"forwarded": "for=203.0.113.9"})
    assert len(caplog.records) == 1


def test_b106_a_network_is_one_client() -> None:
    who, rng = Identity(), random.Random(1)
    hosts = [
        f"2001:db8:1:2:{rng.getrandbits(16):x}:{rng.getrandbits(16):x}::{rng.getrandbits(16):x}" for _ in range(1000)
    ]
    assert len(set(hosts)) == 1000
    assert {who.address(host) for host in hosts} == {"2001:db8:1:2::/64"}
    assert who.address("2001:db8:1:3::1") == "2001:db8:1:3::/64"
    assert who.address("::ffff:192.0.2.1") == who.address("192.0.2.1") == who.address("::FFFF:C000:0201") == "192.0.2.1"
    assert who.address("FE80::1%eth0") == who.address("fe80::2") == "fe80::/64"
    assert Identity(ipv6_prefix=128).address("2001:DB8::1") == "2001:db8::1/128"
    assert Identity(ipv6_prefix=32).address("::1") == "::/32"
    assert who.address("::1") == "::/64"
    assert Identity(ipv6_prefix=48).address("2001:db8:1:2::1") == "2001:db8:1::/48"


def test_clients_behind_nat64_are_told_apart() -> None:
    """To a server that speaks IPv6 alone, all of IPv4 is one /96 (RFC 6052)."""
    who = Identity()
    assert who.address("64:ff9b::203.0.113.9") == who.address("64:FF9B::cb00:7109") == who.address("203.0.113.9")
    assert who.address("64:ff9b::203.0.113.8") == "203.0.113.8"
    assert Identity(1).address(PROXY, xff("[64:ff9b::203.0.113.9]:443")) == "203.0.113.9"
    assert who.address("64:ff9b:1::203.0.113.9") == "64:ff9b:1::/64", "a network's own prefix is not known"
    assert Identity(["10.0.0.0/8"]).address("64:ff9b::10.0.0.1", xff("203.0.113.9")) == "10.0.0.1", "no proxy of ours"


@pytest.mark.parametrize(
    "setting",
    [{"ipv6_prefix": 31}, {"ipv6_prefix": 129}, {"ipv6_prefix": "64"}, {"ipv6_prefix": True}, {"header": "x-real-ip"},
     {"trusted_proxies": -1}, {"trusted_proxies": True}, {"trusted_proxies": "10.0.0.1/8"}, {"trusted_proxies": ["x"]},
     {"trusted_proxies": 1.5}, {"trusted_proxies": [1]}, {"trusted_proxies": {"10.0.0.0/8": 1, 2: 3}}, {"header": None},
     {"header": ["x-forwarded-for"]}, {"pepper": None}, {"pepper": b"p"}, {"scope": 7}],
    ids=str,
)  # fmt: skip
def test_b30_settings_that_make_no_sense(setting: dict[str, Any]) -> None:
    with pytest.raises(ThrottleError, match=next(iter(setting))):
        Identity(**setting)


# -- keys ----------------------------------------------------------------------------------------------------


def test_in_order_of_trust() -> None:
    who = Identity()
    assert who.who("192.0.2.1") == "ip:192.0.2.1"
    assert who.who("192.0.2.1", user=0) == "user:0"
    assert who.who("192.0.2.1", user="me", api_key="k").startswith("key:~")
    assert who.who("192.0.2.1", user="", api_key="") == "ip:192.0.2.1"
    assert who.who("192.0.2.1", user="192.0.2.1") != who.who("192.0.2.1"), "a name is no address"


parts = st.lists(
    st.one_of(st.text(), st.sampled_from(["", ":", "a:b", "%", "~", "-", "a" * 64, "a" * 65, "~" * 41])), max_size=4
)


@given(one=parts, other=parts)
def test_other_parts_another_identity(one: list[str], other: list[str]) -> None:
    who = Identity()
    if one and other:
        assert (who.key(*one) == who.key(*other)) == (one == other)


def test_what_could_be_taken_for_something_else() -> None:
    who = Identity()
    pairs = [("a:b",), ("a", "b"), ("a", ":b"), ("a:", "b"), ("", "ab"), ("ab", ""), ("",), ("", ""), ("a%3Ab",)]
    assert len({who.key(*pair) for pair in pairs}) == len(pairs)
    long = ["x" * 40, "y" * 40]
    assert who.key(*long) != who.key(":".join(long)) != who.key(who.key(*long))
    assert who.key(secret("abc")) != who.key("abc")
    assert who.key(secret("x" * 100)) != who.key("x" * 100)
    assert who.key(who.key(secret("abc"))) != who.key(secret("abc")), "a digest that somebody gives as a name"


@given(parts)
def test_identities_are_short_and_plain(made_of: list[str]) -> None:
    key = Identity().key("kind", *made_of)
    assert key.isascii()
    assert key.isprintable()
    assert len(key) <= 66
    assert not set(key) & set("{}|, *?[]\\")


def test_b35_secrets_are_not_told() -> None:
    who = Identity(pepper="p")
    token = secret("sk-live-51")
    assert repr(token) == str(token) == "secret(…)"
    key = who.key("key", token)
    assert "sk-live-51" not in key
    assert key == Identity(pepper="p").who(None, api_key="sk-live-51")
    others = [
        Identity(),
        Identity(pepper="q"),
        Identity(scope="other"),
        Identity(pepper="p" * 65),
        Identity(pepper="p" * 66),
    ]
    assert len({one.key("key", token) for one in (who, *others)}) == 6
    assert "sk-live" not in str(opaque(token, "p"))
    assert opaque(token, "p") == opaque("sk-live-51", "p")
    assert len(opaque("x" * 2**20, "p")) == 12


@pytest.mark.parametrize(
    "value",
    [
        "Bearer abc", "bearer  x", "Basic dXNlcjpw", "Token 7", "HMAC-SHA256 k:s", "é,Bearer abc", b"Bearer abc",
        "sk_live_51HxAbCdEfGhIjKl", "ghp_16C7e42F292c6912E7710c838347Ae178B4a", "d41d8cd98f00b204e9800998ecf8427e",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "theme=dark; sessionid=k2hx81qz0m4w7c9v5b3n", "x" * 65,
        "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    ],
)  # fmt: skip
def test_b35_what_looks_like_a_credential_is_a_secret(value: Any) -> None:
    key = Identity().key(discreet(value))
    assert key.startswith("~")
    assert key == Identity().key(secret(value.decode("latin-1") if isinstance(value, bytes) else value))
    assert Identity().who("192.0.2.1", user=value) == Identity().key("user", discreet(value))


@pytest.mark.parametrize(
    "value",
    ["acme", "", "ann@example.com", "a customer of ours, with 12 words", "bearer", "acme-corporation-of-europe", 7,
     None, "10000000000000000000000001", ("a", "b"), "token", "monkey 7"],
)  # fmt: skip
def test_names_stay_as_they_are(value: Any) -> None:
    assert discreet(value) is value


def test_b35_what_redis_holds() -> None:
    store = fake_store()
    namer = Namer()
    for key in (Identity().who(None, api_key="sk-live-51"), Identity().key("user", "x" * 2**20)):
        store.command("SET", namer.scope("api") + f"b:burst|{namer.identity(key)}", 1)
    held = store.command("KEYS", "*")
    assert max(map(len, held)) <= 150
    assert "sk-live" not in str(held)


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded"])
def test_b35_a_giant_costs_nothing(header: str) -> None:
    giant = "x" * 2**20
    hops = ("for=10.0.0.2," if header == "forwarded" else "10.0.0.2,") * 2**17
    quotes, lines = '"\\' * 2**19, ["10.0.0.2," * 100] * 1000
    who, trusting = Identity(), Identity(["10.0.0.0/8"], header=header)
    for make in (
        lambda: who.who(None, api_key=giant), lambda: who.key("user", giant), lambda: who.who(giant),
        lambda: trusting.who(PROXY, {header: giant}), lambda: trusting.who(PROXY, {header: hops + "10.0.0.2"}),
        lambda: trusting.who(PROXY, {header: quotes}), lambda: trusting.who(PROXY, {header: lines}),
    ):  # fmt: skip
        times = []
        for _ in range(5):
            began = time.perf_counter()
            key = make()
            times.append(time.perf_counter() - began)
            assert len(Namer().identity(key)) <= 64
        assert min(times) <= 0.005


def test_a_chain_too_long_is_read_as_far_as_it_is_held() -> None:
    far = ["6.6.6.6", *["10.0.0.2"] * 10_000]
    assert Identity(["10.0.0.0/8"]).address(PROXY, xff(", ".join(far))) == "10.0.0.2"
    assert None not in list(forwarded_for([", ".join(far)], is_rfc_7239=False)), "the one cut in two is left out"


# -- anything may come ---------------------------------------------------------------------------------------

pieces = st.lists(
    st.sampled_from(['"', "\\", ";", ",", "=", "for", "For", "by", "1.2.3.4", "10.0.0.2", "[", "]", "::1", "%eth0", ":",
                     "80", " ", "unknown", "_x", "fe80::1", "\x00", "é"]),
    max_size=20,
).map("".join)  # fmt: skip
values = st.one_of(pieces, st.text(), st.binary(), st.none(), st.lists(st.one_of(pieces, st.binary()), max_size=3))


@settings(max_examples=2000, deadline=None)
@given(
    peer=st.one_of(st.none(), st.text(), st.sampled_from([PROXY, "::1", "203.0.113.9"])),
    headers=st.lists(st.tuples(st.sampled_from(["X-Forwarded-For", b"Forwarded", "x"]), values), max_size=4),
    trusted=st.sampled_from([None, 0, 1, 2, ["10.0.0.0/8", "unix"], "::/0"]),
    header=st.sampled_from(["x-forwarded-for", "forwarded"]),
)
def test_asking_who_never_raises(peer: str | None, headers: Any, trusted: Any, header: str) -> None:
    key = Identity(trusted, header=header).who(peer, headers)
    assert key.startswith(("ip:", "~~"))
    assert len(key) <= 66


@settings(max_examples=2000, deadline=None)
@given(left=st.one_of(pieces, st.text()), hops=st.integers(1, 3))
def test_b104_nothing_on_the_left_changes_who_it_is(left: str, hops: int) -> None:
    proxies = ["198.51.100.7", "10.0.0.2"][: hops - 1]
    chain = ", ".join([left, "203.0.113.9", *proxies])
    assert Identity(hops).address(PROXY, xff(chain)) == "203.0.113.9"
    chain = ", ".join([left, *(f'for="{address}"' for address in ["203.0.113.9", *proxies])])
    assert Identity(hops, header="forwarded").address(PROXY, {"Forwarded": chain}) == "203.0.113.9"


def test_it_is_a_key_as_limits_take_it() -> None:
    limit = TokenBucket("1/min", key=Identity().who("203.0.113.9"))
    assert "{" not in str(limit.key)
