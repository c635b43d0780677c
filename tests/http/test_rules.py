"""The rules engine, without a framework."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from tests.services import RedisServer
from throttle import (
    CostExceedsLimit,
    Decision,
    FixedWindow,
    InvalidRate,
    LeakyBucket,
    Limiter,
    Quota,
    StoreUnavailable,
    ThrottleError,
)
from throttle import TokenBucket as Bucket
from throttle.asking import merged
from throttle.http import Identity, Refusal, secret
from throttle.rules import Asking, Guard, Ledger, Pattern, Rule, limit_of

PEER = "192.0.2.1"


def asking(method: str = "GET", path: str = "/", peer: str | None = PEER, headers: Any = (), **more: Any) -> Asking:
    return Asking(method, path, peer, headers, **more)


class Scripted:
    """A limiter that answers as told, and notes what it was asked."""

    scope = "scripted"

    def __init__(self, *answers: Decision | Exception) -> None:
        self.answers, self.asked, self.refunded = list(answers), [], []

    def acquire(self, *limits: Any, key: object = None, cost: int = 1) -> Decision:
        self.asked.append((list(limits) if len(limits) > 1 else [(limits[0], key)], cost))
        answer = self.answers.pop(0) if self.answers else Decision(True, 9, 8, 0.0, 1.0, (Bucket("9/s"),))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def refund(self, *limits: Any, key: object = None, cost: int = 1) -> None:
        self.refunded.append((len(limits), cost))

    @property
    def keys(self) -> list[object]:
        return [key for limits, _ in self.asked for _, key in limits]


class Awaited(Scripted):
    """The same, awaited."""

    async def acquire(self, *limits: Any, key: object = None, cost: int = 1) -> Decision:  # type: ignore[override]
        return Scripted.acquire(self, *limits, key=key, cost=cost)


REFUSED = Decision(False, 9, 0, 1.5, 9.0, (Bucket("9/s", name="nine"),))


@pytest.fixture
def limiter(server: RedisServer) -> Limiter:
    return Limiter(server.url(), scope="api", timeout=5)


# -- which rules apply ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "path", "is_match"),
    [
        ("/sms", "/sms", True),
        ("/sms", "/sms/1", False),
        ("/sms", "/SMS", False),
        ("/sms/{id}", "/sms/1", True),
        ("/sms/{id}", "/sms/", False),
        ("/sms/{id}", "/sms/1/2", False),
        ("/sms/{id}", "//sms///1/", True),  # Litestar, for one, routes it there
        ("/sms/{id}", "/sms/a\nb", True),
        ("/sms/<id>", "/sms/1", True),
        ("sms/<int:id>/", "/sms/1/", True),
        ("/sms/{id:int}/parts", "/sms/1/parts", True),
        ("/files/{name:path}", "/files/a/b", True),
        ("/files/<path:name>/raw", "/files/a/b/raw", True),
        ("/api/*", "/api", True),
        ("/api/*", "/api/a/b", True),
        ("/api/*", "/apis", False),
        ("/*/export", "/acme/export", True),
        ("/*/export", "/a/b/export", False),
        ("/report-*", "/report-7", True),
        ("/a.b", "/aXb", False),
        ("*", "/anything/at/all", True),
        ("/*", "/", True),
        ("/", "/", True),
    ],
)
def test_patterns(pattern: str, path: str, is_match: bool) -> None:
    assert Pattern(pattern).matches(asking(path=path)) is is_match


def test_patterns_that_take_long_to_match_are_refused() -> None:
    for pattern in ("/{a}{b}", "/{a}-{b}", "/{a:path}/{b:path}", "/{a:path}/*", "/*-*"):
        with pytest.raises(ThrottleError, match="one parameter"):
            Pattern(pattern)


@pytest.mark.parametrize("pattern", ["/a/{p:path}/b/{c}/d", "/*x/y", "/files/*", "/a/{b}.json"])
def test_any_path_is_matched_quickly(pattern: str) -> None:
    started = time.perf_counter()
    for path in ("/" * 65536, "/a" * 32768, "/a/" + "b/" * 32000, "/" + "x" * 65535, "/a/" + "." * 65000):
        Pattern(pattern).matches(asking(path=path))
    assert time.perf_counter() - started < 0.5


def test_where_the_route_is_known_a_template_is_not_for_a_more_specific_one() -> None:
    rule = Rule("1/s", path="/sms/{id}")
    assert rule.matches(asking(path="/sms/7", route="/sms/{sms_id}"))
    assert not rule.matches(asking(path="/sms/status", route="/sms/status"))
    assert not rule.matches(asking(path="/sms/status", find_route=lambda: "/sms/status"))
    assert rule.matches(asking(path="/sms/7", find_route=lambda: None))
    assert rule.matches(asking(path="/sms/7", route="/{everything:path}")), "an app that routes by itself"
    assert rule.matches(asking(path="/v1/sms/7", root="/v1"))
    assert rule.matches(asking(path="/x/v1/sms/7", route="/sms/{id}"))
    assert not Rule("1/s", path="/sms").matches(asking(path="/v1sms", root="/v1"))
    assert Rule("1/s", path="^sms/(?P<id>[0-9]+)$").matches(asking(path="/sms/7", route="/^sms/(?P<id>[0-9]+)$"))


def test_a_router_is_asked_only_where_it_matters() -> None:
    def find() -> str:
        raise AssertionError

    Guard(Scripted(), Rule("1/s", path="/a"), Rule("1/s", path="/b/*"), Rule("1/s", path="/c/{id}")).check(
        asking(path="/b/1", find_route=find)
    )


def test_methods() -> None:
    assert Rule("1/s", methods="get").matches(asking("HEAD"))
    assert Rule("1/s", methods=["POST", "put"]).matches(asking("PUT"))
    assert not Rule("1/s", methods="POST").matches(asking("GET"))


def test_all_that_match_apply_in_one_decision_until_one_is_last() -> None:
    asked = Scripted()
    rules = (
        Rule("9/s", path="/other"),
        Rule("8/s", path="/*"),
        Rule("7/s", "6/s", path="/sms"),
        Rule("5/s", last=True),
        Rule("4/s"),
    )
    Guard(asked, *rules).check(asking(path="/sms"))
    [(limits, _)] = asked.asked
    assert [limit.label for limit, _ in limits] == ["/* 8/s", "/sms 7/s", "/sms 6/s", "5/s, burst 5"]


def test_a_rule_without_limits_lets_pass() -> None:
    asked = Scripted()
    guard = Guard(asked, Rule(path="/free", last=True), Rule("9/s"))
    assert guard.check(asking(path="/free")) == ({}, None, None)
    assert not asked.asked


@pytest.mark.parametrize(
    "exempt",
    ["/health", ["/other", "/health"], lambda asking: asking.header("x-role") == "admin", Pattern("/h*").template],
)
def test_exempt(exempt: Any) -> None:
    exempt = exempt if isinstance(exempt, (str, list)) else [exempt]
    asked = Scripted()
    guard = Guard(asked, Rule("9/s"), exempt=exempt)
    guard.check(asking(path="/health", headers=[("X-Role", "admin")]))
    assert not asked.asked
    guard.check(asking(path="/sms"))
    assert asked.asked


def test_preflights_are_exempt_unless_said() -> None:
    headers = {"Origin": "https://example.com", "Access-Control-Request-Method": "POST"}
    for preflights, count in ((False, 1), (True, 3)):
        asked = Scripted()
        guard = Guard(asked, Rule("9/s"), preflights=preflights)
        for method, sent in (("OPTIONS", headers), ("OPTIONS", {}), ("POST", headers)):
            guard.check(asking(method, headers=sent))
        assert len(asked.asked) == count + (not preflights)


# -- whom to count apart -------------------------------------------------------------------------------------


def test_keys() -> None:
    identity = Identity(trusted_proxies=1)
    guard_keys = ("address", "user", "api_key", "who", None)
    asked = Scripted()
    guard = Guard(
        asked,
        Rule(*((Bucket("9/s", 9, name=str(key)), key) for key in guard_keys)),
        identity=identity,
        api_key="X-Api-Key",
        user=lambda asking: asking.header("x-user"),
    )
    headers = [(b"X-Forwarded-For", b"203.0.113.9"), (b"X-API-KEY", b"k"), (b"X-User", b"ann")]
    guard.check(asking(headers=headers))
    key = identity.key("key", secret("k"))
    assert asked.keys == ["ip:203.0.113.9", "user:ann", key, key, None]
    asked.asked.clear()
    guard.check(asking(headers=headers[:1]))
    assert asked.keys == ["ip:203.0.113.9"] * 4 + [None], "who has no key and no name is an address"


def test_keys_that_a_callable_makes() -> None:
    identity, asked = Identity(), Scripted()
    made = {"a": "acme", "b": None, "c": secret("k"), "d": ("acme", 7), "e": 7}

    def making(value: object) -> Any:
        return lambda asking: value

    rules = [(Bucket("9/s", name=name), making(value)) for name, value in made.items()]
    Guard(asked, Rule(*rules)).check(asking())
    parts = [identity.key(secret("k")), identity.key("acme", 7)]
    assert asked.keys == ["acme", f"ip:{PEER}", *parts, 7]


def test_b35_a_credential_that_a_callable_returns_is_stored_as_a_digest(limiter: Limiter, server: RedisServer) -> None:
    def token(asking: Asking) -> Any:
        return asking.header("authorization")

    rule = Rule(
        (Bucket("2/min", 2, name="a"), token), (Bucket("9/min", 9, name="b"), lambda asking: (token(asking), 1))
    )
    guard = Guard(limiter, rule, user=token)
    sent = [asking(headers=[("Authorization", f"Bearer {name}-51")]) for name in ("ann", "bob", "ann", "ann")]
    assert [guard.check(one).allowed for one in sent] == [True, True, True, False]
    keys = list(server.client().scan_iter())
    assert len(keys) == 4
    assert not [key for key in keys if b"ann" in key or b"Bearer" in key]


def test_several_keys_together() -> None:
    asked = Scripted()
    Guard(asked, Rule("9/s", key=("address", "route")), Rule("9/s", path="/sms/{id}")).check(asking(path="/sms/7"))
    assert asked.keys[0] == Identity().key(f"ip:{PEER}", Identity().key("route", "/sms/{id}"))


def test_unknown_paths_count_as_one_route(limiter: Limiter, server: RedisServer) -> None:
    guard = Guard(limiter, Rule("1000/s", key="route"))
    for i in range(50):
        guard.check(asking(path=f"/nothing/{i}"))
    guard.check(asking(path="/sms/1", route="/sms/{id}"))
    guard.check(asking(path="/sms/2", find_route=lambda: "/sms/{id}"))
    assert len(server.client().keys()) == 2


def test_tiers() -> None:
    asked = Scripted()
    plans = {"free": "60/min", "pro": Bucket("600/min", 600, name="pro"), "own": None}
    guard = Guard(
        asked, Rule((lambda asking: plans[asking.api_key or "free"], "api_key"), path="/sms"), api_key="X-Key"
    )
    for plan in plans:
        guard.check(asking(path="/sms", headers={"x-key": plan}))
    assert [limit.label for limits, _ in asked.asked for limit, _ in limits] == ["/sms 60/min", "pro"]


def test_a_chain_is_one_decision_and_a_refusal_takes_nothing(limiter: Limiter) -> None:
    def by_plan(asking: Asking) -> str:
        return "2/min" if asking.api_key == "free" else "5/min"

    chain = Rule(("100/min", "address"), (by_plan, "api_key"), ("4/min", None), path="/sms/{id}", methods="POST")
    guard = Guard(limiter, chain, api_key="X-Key")

    def sent(key: str) -> Any:
        return guard.check(asking("POST", "/sms/7", headers={"X-Key": key}))

    assert [sent("free").allowed for _ in range(4)] == [True, True, False, False]
    assert [sent("pro").allowed for _ in range(3)] == [True, True, False], "the endpoint has 4, and refusals took none"
    refused = sent("free")
    assert refused.decision.policies[0].label == "POST /sms/{id} 2/min"
    assert json.loads(refused.refusal.body)["violated-policies"] == ["POST /sms/{id} 2/min"]
    assert limiter.peek(Bucket("100/min", 100, name="POST /sms/{id} 100/min").of(f"ip:{PEER}")).remaining == 96


# -- limits --------------------------------------------------------------------------------------------------


def test_rates_mean_to_requests_that_a_whole_count_may_come_at_once() -> None:
    assert limit_of("10/min") == Bucket("10/min", 10)
    assert limit_of("0.5/s") == Bucket("0.5/s", 1)
    assert limit_of((100, 7200)) == Bucket((100, 7200), 100)
    assert limit_of("0").closed
    assert limit_of(None) is None
    with pytest.raises(TypeError, match="no limit"):
        limit_of(7)


def test_equal_limits_of_two_rules_are_apart_unless_they_have_one_name(limiter: Limiter) -> None:
    guard = Guard(limiter, *(Rule("1/min", path=path) for path in ("/a", "/b")))
    assert guard.check(asking(path="/a")).allowed
    assert guard.check(asking(path="/b")).allowed
    named = Guard(limiter, *(Rule("1/min", path=path, name="both") for path in ("/a", "/b")))
    assert named.check(asking(path="/a")).allowed
    assert not named.check(asking(path="/b")).allowed


def test_limits_that_are_equal_in_part_stay_themselves() -> None:
    asked = Scripted()
    quotas = [Quota(count, "day", key="address", name="daily") for count in (5, 10)]
    for quota in quotas:
        Guard(asked, Rule(quota)).check(asking())
    assert [limit.quota for limits, _ in asked.asked for limit, _ in limits] == [5, 10]


def test_a_limit_with_a_name_is_shared_with_whoever_has_that_name(limiter: Limiter) -> None:
    vendor = Bucket("10/min", 10, name="vendor")
    for _ in range(9):
        limiter.acquire(vendor)
    guard = Guard(limiter, Rule(vendor, path="/sms"))
    assert [guard.check(asking(path="/sms")).allowed for _ in range(2)] == [True, False]


def test_limits_with_a_key_of_their_own() -> None:
    asked = Scripted()
    own = [
        Bucket("9/s", key=key, name=str(n)) for n, key in enumerate(["address", "acme", lambda asking: asking.method])
    ]
    Guard(asked, Rule(*own, Bucket("9/s", name="of").of("literal"), FixedWindow("9/s", key="address"))).check(asking())
    [(limits, _)] = asked.asked
    assert [key for _, key in limits] == [f"ip:{PEER}", None, "GET", "literal", f"ip:{PEER}"]
    assert [limit.key for limit, _ in limits][:2] == [None, "acme"]
    with pytest.raises(ThrottleError, match="needs a key"):
        Rule(Bucket("9/s", key="{customer}"))


def test_costs(limiter: Limiter) -> None:
    guard = Guard(
        limiter,
        Rule(Bucket("10/min", 10, name="units"), cost=lambda asking: int(asking.header("x-pages", "1") or 1)),
        Rule(Bucket("3/min", 3, name="calls")),
    )
    pages = [guard.check(asking(headers={"x-pages": text})) for text in ("4", "4", "4", "2", "1", "1")]
    assert [outcome.allowed for outcome in pages] == [True, True, False, True, False, False]
    assert pages[2].decision is not None
    assert pages[2].decision.policies[0].label == "units"
    assert pages[4].decision is not None
    assert pages[4].decision.policies[0].label in ("units", "calls")


def test_what_was_taken_is_given_back_when_another_cost_is_refused() -> None:
    taken = Decision(True, 9, 8, 0.0, 1.0, (Bucket("9/s"),))
    for second in (REFUSED, StoreUnavailable("down"), CostExceedsLimit(5, 3)):
        asked = Scripted(taken, second)
        outcome = Guard(asked, Rule("9/s"), Rule("3/s", cost=5, name="b")).check(asking())
        assert not outcome.allowed
        assert asked.refunded == [(1, 1)]


@pytest.mark.parametrize(("cost", "units"), [(-5, 1), (float("nan"), 1), (2.5, 3), (0, 0), (10**30, 10**9)])
def test_a_cost_that_a_client_had_a_hand_in(cost: Any, units: int) -> None:
    asked = Scripted()
    Guard(asked, Rule("9/s"), cost=lambda asking: cost).check(asking())
    assert asked.asked[0][1] == units


def test_a_cost_that_never_passes_is_no_matter_of_waiting(limiter: Limiter) -> None:
    outcome = Guard(limiter, Rule("9/s", cost=10)).check(asking())
    assert outcome.refusal is not None
    assert outcome.refusal.status == 413
    assert "Retry-After" not in outcome.refusal.fields


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda: Rule("10"), InvalidRate),
        (lambda: Rule(7), TypeError),
        (lambda: Rule("9/s", key="adress"), ThrottleError),
        (lambda: Rule("9/s", key=("address", "x")), ThrottleError),
        (lambda: Rule(("9/s", "x")), ThrottleError),
        (lambda: Rule("9/s", name="é"), InvalidRate),
        (lambda: Guard(None, style="draft-9"), ThrottleError),
        (lambda: Guard(None, stile="draft-8"), TypeError),
        (lambda: Guard(None, style="x-ratelimit", reset="minutes"), ThrottleError),
        (lambda: Guard(None, exempt=["/{a}{b}"]), ThrottleError),
    ],
)
def test_what_is_said_wrongly_is_an_error_at_once(wrong: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        wrong()


# -- what is answered ----------------------------------------------------------------------------------------


def test_a_refusal() -> None:
    outcome = Guard(Scripted(REFUSED), Rule("9/s")).check(asking())
    assert outcome.refusal is not None
    assert (outcome.refusal.status, outcome.allowed) == (429, False)
    assert outcome.refusal.fields["Retry-After"] == "2"
    assert outcome.fields["RateLimit"] == '"nine";r=0;t=2'


def test_a_store_that_is_down_and_closed() -> None:
    outcome = Guard(Scripted(StoreUnavailable("down")), Rule("9/s")).check(asking())
    assert outcome.refusal is not None
    assert outcome.refusal.status == 503
    assert "Retry-After" in outcome.refusal.fields


def test_a_store_that_is_down_and_open_tells_nothing() -> None:
    assert Guard(Scripted(Decision(True, 0, 0, 0.0, 0.0)), Rule("9/s")).check(asking()).fields == {}


def test_on_refused_may_answer_otherwise_and_keeps_the_fields() -> None:
    def custom(asking: Asking, decision: Decision) -> Refusal | None:
        if asking.path == "/plain":
            return None
        return Refusal(429, {"content-type": "text/plain"}, b"slow down, %d s" % decision.retry_after)

    guard = Guard(Scripted(REFUSED, REFUSED), Rule("9/s"), on_refused=custom)
    answer = guard.check(asking()).refusal
    assert answer is not None
    assert answer.body == b"slow down, 1 s"
    assert answer.fields["content-type"] == "text/plain"
    assert "Content-Type" not in answer.fields
    assert answer.fields["Retry-After"] == "2"
    plain = guard.check(asking(path="/plain")).refusal
    assert plain is not None
    assert plain.fields["Content-Type"] == "application/problem+json"


def test_styles() -> None:
    fields = Guard(Scripted(), Rule("9/s"), style="x-ratelimit", reset="seconds").check(asking()).fields
    assert fields == {"X-RateLimit-Limit": "9", "X-RateLimit-Remaining": "8", "X-RateLimit-Reset": "1"}


# -- one request, several layers -----------------------------------------------------------------------------


def test_stacked_guards_charge_once_and_tell_all(limiter: Limiter) -> None:
    address, endpoint = Rule("10/min", key="address"), Rule("5/min", path="/sms")
    one = asking(path="/sms")
    outer, inner = Guard(limiter, address), Guard(limiter, address, endpoint)
    assert outer.check(one).fields["RateLimit"] == '"10/min, burst 10";r=9;t=6'
    told = inner.check(one).fields
    assert told["RateLimit"] == '"/sms 5/min";r=4;t=12'
    assert told["RateLimit-Policy"] == '"/sms 5/min";q=5;w=60, "10/min, burst 10";q=10;w=60'
    assert inner.check(one).fields == told
    assert limiter.peek(Bucket("10/min", 10), key=f"ip:{PEER}").remaining == 9


def test_two_decisions_as_one() -> None:
    a, b = Bucket("9/s", name="a"), Bucket("9/s", name="b")
    few, many = Decision(True, 9, 1, 0.0, 1.0, (a,)), Decision(True, 9, 5, 0.0, 2.0, (b,))
    refused = Decision(False, 9, 0, 3.0, 9.0, (b,))
    assert merged(few, many) == merged(many, few) == few._replace(policies=(a, b))
    assert merged(few, refused) == refused._replace(policies=(b, a))


def test_fields_that_are_there_stay() -> None:
    ledger = Ledger()
    ledger.fields = {"RateLimit": "r", "RateLimit-Policy": "p", "Retry-After": "7"}
    assert ledger.missing([]) == {"RateLimit": "r", "RateLimit-Policy": "p"}
    assert ledger.missing(["ratelimit"]) == {}
    assert ledger.missing([], 429) == {**ledger.fields, "Cache-Control": "no-store"}
    assert ledger.missing(["ratelimit", "cache-control"], 503) == {"Retry-After": "7"}
    assert ledger.missing(["RETRY-AFTER", "RateLimit-Policy"], 429) == {"Cache-Control": "no-store"}


# -- awaited -------------------------------------------------------------------------------------------------


def test_awaited_limiter_and_callables() -> None:
    async def tenant(asking: Asking) -> str:
        await asyncio.sleep(0)
        return "acme"

    async def no(asking: Asking) -> bool:
        return False

    async def custom(asking: Asking, decision: Decision) -> Refusal:
        await asyncio.sleep(0)
        return Refusal(429, {}, b"custom")

    async def limit(asking: Asking) -> str:
        return "3/s"

    asked = Awaited(REFUSED)
    guard = Guard(asked, Rule(limit, key=tenant), exempt=[no], user=tenant, on_refused=custom)
    outcome = asyncio.run(guard.acheck(asking()))
    assert outcome.refusal is not None
    assert outcome.refusal.body == b"custom"
    assert asked.keys == ["acme"]


def test_what_must_be_awaited_is_an_error_without_await() -> None:
    async def tenant(asking: Asking) -> str:
        return "acme"

    for guard in (Guard(Awaited(), Rule("9/s")), Guard(Scripted(), Rule("9/s", key=tenant))):
        with pytest.raises(ThrottleError, match="acheck"):
            guard.check(asking())


def test_a_limiter_that_waits_does_so_in_a_thread() -> None:
    class Slow(Scripted):
        def acquire(self, *limits: Any, key: object = None, cost: int = 1) -> Decision:
            time.sleep(0.2)
            return super().acquire(*limits, key=key, cost=cost)

    async def both() -> float:
        guard, started = Guard(Slow(), Rule("9/s")), time.perf_counter()
        await asyncio.gather(*(guard.acheck(asking()) for _ in range(3)))
        return time.perf_counter() - started

    assert asyncio.run(both()) < 0.55


def test_errors_of_callables_are_theirs() -> None:
    guard = Guard(Scripted(), Rule("9/s", key=lambda asking: {}["missing"]))
    with pytest.raises(KeyError):
        guard.check(asking())
    with pytest.raises(KeyError):
        asyncio.run(guard.acheck(asking()))


def test_a_bucket_with_a_depth_lets_in_with_a_delay(limiter: Limiter) -> None:
    rule = Rule(LeakyBucket("10/s", depth=3, name="line"))

    async def main() -> list[tuple[bool, float]]:
        guard, started = Guard(limiter, rule), time.perf_counter()
        await guard.acheck(asking())  # connects

        async def one() -> tuple[bool, float]:
            return (await guard.acheck(asking())).allowed, time.perf_counter() - started

        return await asyncio.gather(*(one() for _ in range(4)))

    answers = asyncio.run(main())
    assert sorted(allowed for allowed, _ in answers) == [False, True, True, True]
    assert sorted(at for _, at in answers)[1:] == pytest.approx([0.1, 0.2, 0.3], abs=0.05)
    started = time.perf_counter()
    assert Guard(limiter, rule).check(asking()).allowed
    assert time.perf_counter() - started == pytest.approx(0.1, abs=0.05)


def test_what_a_callable_says_passes_for_nobody_else(limiter: Limiter) -> None:
    guard = Guard(limiter, Rule("1/min", key=lambda asking: asking.header("x-tenant")))
    forged = asking(headers=[("x-tenant", f"ip:{PEER}")])
    assert guard.check(forged).allowed
    assert guard.check(asking()).allowed, "somebody else has used up this address"


def test_a_trailing_newline_does_not_escape_a_rule(limiter: Limiter) -> None:
    """Starlette serves `/sms%0A` as `/sms`."""
    guard = Guard(limiter, Rule("1/min", path="/sms"))
    assert guard.check(asking(path="/sms")).allowed
    assert not guard.check(asking(path="/sms\n")).allowed


def test_limits_of_one_name_are_refused_at_once() -> None:
    with pytest.raises(ThrottleError, match="give each its own name"):
        Rule(Bucket("100/s", name="login"), Bucket("5/min", name="login"), key="address")


@pytest.mark.parametrize(
    "wrong", [lambda: Guard(Rule("1/s")), lambda: Guard(Scripted(), "1/s"), lambda: Guard(Scripted)]
)
def test_a_guard_of_something_else_is_refused_at_once(wrong: Any) -> None:
    with pytest.raises(ThrottleError, match="a guard takes a limiter, then rules"):
        wrong()


def two(asking: Asking, decision: Decision) -> None: ...


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        ({"path": 7}, "path 7 is no text: say"), ({"path": ["/a"]}, "is no text"), ({"name": 7}, "name 7 is no text"),
        ({"methods": 7}, r'say "POST", or several'), ({"methods": ["GET", 7]}, r'or several as \["GET", "POST"\]'),
        ({"methods": "GET,POST"}, "or several as"), ({"methods": [""]}, "or several as"),
        ({"last": "no"}, "True or False"), ({"cost": "5"}, "no number of units"), ({"cost": -1}, "no number of units"),
        ({"cost": True}, "no number"),
        ({"cost": float("nan")}, "no number"), ({"cost": lambda: 1}, "called with the Asking"),
        ({"key": two}, "key .* is called with the Asking"), ({"key": ("address", lambda: 1)}, "called with the Asking"),
        ({"key": ["address"]}, "none of"),
    ],
)  # fmt: skip
def test_a_rule_of_wrong_types_is_refused_at_once(wrong: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ThrottleError, match=remedy):
        Rule("1/s", **wrong)


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        ({"identity": 1}, r"say Identity\(trusted_proxies=1\)"), ({"api_key": 7}, "say a function"),
        ({"api_key": two}, "does not take that"), ({"user": "x-user"}, "say a function that is given the Asking"),
        ({"on_refused": lambda asking: None}, "called with the Asking and Decision"), ({"cost": "1"}, "no number"),
        ({"exempt": 7}, r'say \["/health"'), ({"exempt": [7]}, "exempt 7 is no text"), ({"exempt": None}, "is no list"),
        ({"exempt": [lambda: True]}, "called with the Asking"), ({"preflights": "no"}, "True or False"),
    ],
)  # fmt: skip
def test_a_guard_of_wrong_types_is_refused_at_once(wrong: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ThrottleError, match=remedy):
        Guard(Scripted(), Rule("1/s"), **wrong)


def test_a_view_is_no_limit() -> None:
    """As `@limit` without parentheses would have it."""
    for view in (lambda: None, two):
        with pytest.raises(ThrottleError, match=r"limit .* is called with the Asking"):
            Rule(view)
    assert Rule(str, lambda *asking: "1/s", lambda asking, plan="free": "1/s", key=id), "callables of all kinds"
