"""`wait`, the decorator, the slot, shadow mode: on a clock that moves when somebody sleeps."""

from __future__ import annotations

import asyncio
import logging
import pickle
from typing import Any

import pytest

from throttle import (
    CostExceedsLimit,
    FixedWindow,
    InvalidRate,
    LeakyBucket,
    Limiter,
    Throttled,
    ThrottleError,
    TokenBucket,
)
from throttle.limits import Limit
from throttle.testing import FakeClock, fake_limiter, fake_store

LIMIT = TokenBucket("10/s", 2)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def limiter(clock: FakeClock) -> Limiter:
    return fake_limiter(clock)


@pytest.fixture
def slept(limiter: Limiter, clock: FakeClock) -> list[float]:
    """How long it slept each time."""
    times: list[float] = []

    def sleep(seconds: float) -> None:
        times.append(seconds)
        clock.advance(seconds)

    limiter._sleep = sleep
    return times


# -- the figures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [TokenBucket("5/s", 10), LeakyBucket("5/s", 10)], ids=str)
def test_capacity_10_refill_5_a_second(limit: Limit, limiter: Limiter, clock: FakeClock) -> None:
    """20 at once: 10; one second later 10 more: 5. What is refused of a cost of 5 says 1 s."""
    assert [limiter.acquire(limit).allowed for _ in range(20)] == [True] * 10 + [False] * 10
    assert limiter.acquire(limit, cost=5).retry_after == 1
    clock.advance(1)
    assert [limiter.acquire(limit).allowed for _ in range(10)] == [True] * 5 + [False] * 5
    assert limiter.acquire(limit, cost=5).retry_after == 1


# -- wait ------------------------------------------------------------------------------------------------


def test_wait_sleeps_exactly_as_long_as_it_is_told(limiter: Limiter, slept: list[float]) -> None:
    said = [limiter.wait(LIMIT) for _ in range(5)]
    assert all(said)
    assert slept == [0.1, 0.1, 0.1]


def test_wait_asks_again_if_another_was_quicker(limiter: Limiter, clock: FakeClock) -> None:
    times: list[float] = []

    def sleep(seconds: float) -> None:
        times.append(seconds)
        clock.advance(seconds)
        if len(times) < 3:
            assert fake.acquire(LIMIT)

    fake = Limiter(limiter._store, "test")
    limiter._sleep = sleep
    assert limiter.acquire(LIMIT, cost=2)
    assert limiter.wait(LIMIT)
    assert times == [0.1, 0.1, 0.1]


@pytest.mark.parametrize(("max_wait", "times"), [(0, []), (0.099999, []), (0.1, [0.1]), (None, [0.1])])
def test_wait_beyond_its_bound_is_refused_without_sleep(
    max_wait: float | None, times: list[float], limiter: Limiter, slept: list[float]
) -> None:
    limiter.acquire(LIMIT, cost=2)
    if times:
        assert limiter.wait(LIMIT, max_wait=max_wait)
    else:
        with pytest.raises(Throttled, match=r"10/s, burst 2: no more for now; try again in 0\.100 s") as caught:
            limiter.wait(LIMIT, max_wait=max_wait)
        assert caught.value.retry_after == caught.value.decision.retry_after == 0.1
    assert slept == times


def test_wait_counts_all_that_it_slept(limiter: Limiter, clock: FakeClock) -> None:
    def sleep(seconds: float) -> None:
        clock.advance(seconds)
        other.acquire(LIMIT)

    other = Limiter(limiter._store, "test")
    limiter._sleep = sleep
    limiter.acquire(LIMIT, cost=2)
    began = clock()
    with pytest.raises(Throttled):
        limiter.wait(LIMIT, max_wait=0.35)
    assert clock() - began == 300_000


def test_nobody_waits_for_ever(limiter: Limiter, slept: list[float]) -> None:
    with pytest.raises(Throttled, match="closed"):
        limiter.wait(TokenBucket(0))
    assert slept == []


def test_wait_waits_for_its_place_in_the_line(limiter: Limiter, slept: list[float]) -> None:
    line = LeakyBucket("1/s", depth=2)
    limiter.acquire(line)
    limiter.acquire(line)
    said = limiter.wait(line)
    assert (said.allowed, said.delay, slept) == (True, 0, [2])


def test_a_place_too_far_behind_is_given_back(limiter: Limiter, slept: list[float]) -> None:
    line = LeakyBucket("1/s", depth=2)
    assert limiter.acquire(line)
    assert limiter.acquire(line)
    with pytest.raises(Throttled) as caught:
        limiter.wait(line, max_wait=1.5)
    assert (caught.value.retry_after, slept) == (0.5, [])
    assert limiter.acquire(line).delay == 2


@pytest.mark.parametrize("wrong", [-1, True, "1", float("nan")])
def test_max_wait_is_seconds(wrong: Any, limiter: Limiter) -> None:
    with pytest.raises(ThrottleError, match="max_wait"):
        limiter.wait(LIMIT, max_wait=wrong)


# -- the decorator ---------------------------------------------------------------------------------------


def test_a_decorated_function_keeps_to_its_limit(limiter: Limiter) -> None:
    @limiter.limit("3/min")
    def send(to: str, *, text: str = "") -> str:
        """Sends."""
        return to + text

    assert [send("a"), send(to="b"), send("c", text="!")] == ["a", "b", "c!"]
    with pytest.raises(Throttled) as caught:
        send("d")
    assert caught.value.retry_after == 20
    assert (send.__name__, send.__doc__) == ("send", "Sends.")


class User:
    def __init__(self, id: int) -> None:
        self.id = id


@pytest.mark.parametrize("key", ["{user.id}", lambda user, pages=1: user.id])
def test_a_key_made_of_the_arguments(key: Any, limiter: Limiter) -> None:
    @limiter.limit(TokenBucket("1/h"), key=key)
    def export(user: User, pages: int = 1) -> int:
        return user.id

    assert [export(User(1)), export(user=User(2))] == [1, 2]
    with pytest.raises(Throttled):
        export(User(1))


@pytest.mark.parametrize("cost", ["{pages}", lambda user, pages=3: pages, 3])
def test_a_cost_made_of_the_arguments(cost: Any, limiter: Limiter) -> None:
    @limiter.limit("10/h", cost=cost)
    def export(user: int, pages: int = 3) -> None:
        pass

    export(1)
    assert limiter.peek(TokenBucket("10/h", 10)).remaining == 7


def test_several_limits_each_with_a_key_of_its_own(limiter: Limiter) -> None:
    @limiter.limit(TokenBucket("2/h", 2, key="{customer}"), TokenBucket("3/h", 3, name="all"))
    def export(customer: str) -> str:
        return customer

    assert [export("a"), export("a"), export("b")] == ["a", "a", "b"]
    with pytest.raises(Throttled, match="all: "):
        export("c")


def test_tiers(limiter: Limiter) -> None:
    tiers = {"free": TokenBucket("1/min"), "pro": TokenBucket("2/min", 2), "any": None}

    @limiter.limit(lambda plan: tiers[plan], key="{plan}")
    def call(plan: str) -> None:
        pass

    for plan in ("free", "pro", "pro", "any", "any", "any"):
        call(plan)
    for plan in ("free", "pro"):
        with pytest.raises(Throttled):
            call(plan)


def test_a_method(limiter: Limiter) -> None:
    class Client:
        def __init__(self, id: int) -> None:
            self.id = id

        @limiter.limit("1/h", key="{self.id}")
        def call(self) -> int:
            return self.id

    assert [Client(1).call(), Client(2).call()] == [1, 2]
    with pytest.raises(Throttled):
        Client(1).call()


@pytest.mark.parametrize(("wait", "times"), [(True, [0.5]), (1, [0.5]), (0.5, [0.5]), (0.4, None), (False, None)])
def test_a_decorated_function_may_wait(wait: Any, times: Any, limiter: Limiter, slept: list[float]) -> None:
    @limiter.limit(TokenBucket("2/s"), wait=wait)
    def call() -> int:
        return 1

    assert call() == 1
    if times is None:
        with pytest.raises(Throttled):
            call()
        times = []
    else:
        assert call() == 1
    assert slept == times


def test_a_line_is_waited_in_by_those_who_do_not_wait_for_a_place(limiter: Limiter) -> None:
    slept: list[float] = []
    limiter._sleep = slept.append  # all at one moment

    @limiter.limit(LeakyBucket("2/s", depth=1))
    def call() -> None:
        pass

    call()
    call()
    with pytest.raises(Throttled):
        call()
    assert slept == [0.5]


def test_an_async_function_asks_without_blocking_its_loop(limiter: Limiter) -> None:
    @limiter.limit("2/h")
    async def call(n: int) -> int:
        return n

    async def main() -> list[Any]:
        return await asyncio.gather(call(1), call(2), call(3), return_exceptions=True)

    said = asyncio.run(main())
    assert sorted(map(type, said), key=str) == sorted([int, int, Throttled], key=str)


def test_what_is_wrong_is_said_at_decoration(limiter: Limiter) -> None:
    def call(user: int) -> None:
        pass

    for options, says in [
        ({"key": "{customer}"}, "names 'customer', but"), ({"key": "user"}, 'did you mean "{user}"'),
        ({"cost": "{pages}"}, "names 'pages'"), ({"key": "{}"}, "must name its arguments"),
    ]:  # fmt: skip
        with pytest.raises(ThrottleError, match=says):
            limiter.limit("1/s", **options)(call)  # type: ignore[arg-type]
    with pytest.raises(ThrottleError, match="names 'customer'"):
        limiter.limit(TokenBucket("1/s", key="{customer}"))(call)
    with pytest.raises(InvalidRate, match="limit is missing"):
        limiter.limit()(call)
    with pytest.raises(InvalidRate, match="is not a rate"):
        limiter.limit("fast")(call)


def test_what_cannot_be_made_of_the_arguments(limiter: Limiter) -> None:
    @limiter.limit("1/s", key="{user.id}", cost="{n}")
    def call(user: Any, n: Any) -> None:
        pass

    with pytest.raises(ThrottleError, match=r"cannot make the key '\{user.id\}' of .*call's arguments"):
        call(1, 1)
    with pytest.raises(InvalidRate, match="cost"):
        call(User(1), "many")


# -- the slot --------------------------------------------------------------------------------------------


def test_a_slot(limiter: Limiter, slept: list[float]) -> None:
    with limiter.slot(LIMIT, key="a") as said:
        assert said.remaining == 1
    with limiter.slot(LIMIT, key="a"), pytest.raises(Throttled), limiter.slot(LIMIT, key="a"):
        raise AssertionError
    assert slept == []
    with limiter.slot(LIMIT, key="a", wait=True) as said:
        assert said.allowed
    assert slept == [0.1]


def test_what_fails_within_a_slot_stays_taken(limiter: Limiter) -> None:
    with pytest.raises(KeyError), limiter.slot(LIMIT):
        raise KeyError
    assert limiter.peek(LIMIT).remaining == 1


def test_throttled_crosses_process_borders(limiter: Limiter) -> None:
    limiter.acquire(LIMIT, cost=2)
    error = Throttled(limiter.acquire(LIMIT))
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.decision, again.retry_after) == (str(error), error.decision, 0.1)


# -- shadow mode -----------------------------------------------------------------------------------------


def test_shadow_refuses_nothing_and_counts(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    store = fake_store(clock)
    shadow, real = Limiter(store, mode="shadow"), Limiter(store)
    with caplog.at_level(logging.INFO):
        said = [shadow.acquire(LIMIT, key="a") for _ in range(1000)]
    assert all(said)
    assert {one.retry_after for one in said} == {0}
    assert said[-1].remaining == 0
    assert (shadow.shadowed, real.shadowed) == (998, 0)
    assert [record.getMessage() for record in caplog.records] == [
        "scope default: in shadow mode, so nothing is refused; 1 would have been so far: 10/s, burst 2, for 0.100 s"
    ]
    assert real.peek(LIMIT, key="a").remaining == 2, "keys of its own"
    clock.advance(60)
    for _ in range(3):
        shadow.acquire(LIMIT, key="a")
    assert "999 would have been" in caplog.text


def test_shadow_has_the_arithmetic_of_the_real_one(clock: FakeClock) -> None:
    shadow, real = Limiter(fake_store(clock), mode="shadow"), Limiter(fake_store(clock))
    limits, refused = [TokenBucket("3/s", 4), FixedWindow("5/s")], 0
    for n in range(200):
        clock.advance(0.07 * (n % 5))
        refused += not real.acquire(*limits)
        assert shadow.acquire(*limits)
    assert shadow.shadowed == refused > 20


def test_shadow_lets_pass_even_what_could_never(clock: FakeClock) -> None:
    shadow = Limiter(fake_store(clock), mode="shadow")
    assert shadow.acquire(LIMIT, cost=3)
    assert shadow.acquire(TokenBucket(0))
    assert shadow.wait(LeakyBucket("1/s", depth=1), cost=2).delay == 0
    assert shadow.shadowed == 2
    with pytest.raises(CostExceedsLimit):
        Limiter(fake_store(clock)).acquire(LIMIT, cost=3)


@pytest.mark.parametrize(
    ("options", "says"), [({"mode": "log"}, "mode"), ({"on_store_error": "park"}, "on_store_error")]
)
def test_settings_that_make_no_sense(options: Any, says: str) -> None:
    with pytest.raises(ThrottleError, match=says):
        Limiter("redis://localhost", **options)
