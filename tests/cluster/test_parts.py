"""Buckets in different slots, on a clock that is set and in orders that are drawn: no server, the very same scripts."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fleet import ROOT
from tests.reference import Level, Window
from throttle import FixedWindow, LeakyBucket, Quota, SlidingLog, SlidingWindow, StoreUnavailable, TokenBucket
from throttle.cluster_parts import SCRIPTS, Answer, Ask, Steps, named, slot_of, steps
from throttle.decision import Decision
from throttle.keys import Namer
from throttle.limits import Limit
from throttle.question import Question, Scope, decision
from throttle.scripts import script
from throttle.store import Store
from throttle.testing import FakeClock, fake_store

KINDS: list[Limit] = [
    TokenBucket("1000/s", 5, name="fast"), TokenBucket("1/h", 5, name="slow"), LeakyBucket("2/s", 2, name="leaky"),
    FixedWindow("6/s", name="fixed"), SlidingWindow("6/s", name="sliding"), SlidingLog("6/s", name="log"),
    Quota(6, "day", name="quota"), LeakyBucket("5/s", 1, depth=3, name="line"), TokenBucket(0, name="closed"),
]  # fmt: skip


class Nodes:
    """Scripts for one key at a time, as nodes run them: none of them knows another's."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.store = fake_store(clock)
        self.scope = Scope(Namer(), "parts", clock)
        self.asked: list[Ask] = []
        self.fails: set[str] = set()

    def question(self, mode: str, limits: Sequence[Limit], cost: int = 1) -> Question:
        asked = (
            self.scope.refund(limits, None, cost) if mode == "refund" else self.scope.question(mode, limits, None, cost)
        )
        assert asked is not None
        keys = [key.replace("{", "").replace("}", "") for key in asked.keys]
        assert len({slot_of(key) for key in keys}) == len(keys)
        return asked._replace(keys=keys)

    def steps(self, question: Question) -> Steps:
        return steps(question.script, question.keys, (question.text,))

    def answer(self, ask: Ask) -> Answer | Exception:
        self.asked.append(ask)
        if ask.what in self.fails or ask.keys[0] in self.fails:
            return StoreUnavailable("down")
        assert len(ask.keys) == 1
        at = self.clock() if ask.timed else 0
        text = ask.args[0].replace("- ", f"{self.clock()} ", 1)
        return Answer(self.store.ask(ask.what, ask.keys, text), at)

    def reply(self, question: Question) -> Any:
        asking = self.steps(question)
        try:
            asks = next(asking)
            while True:
                asks = asking.send([self.answer(ask) for ask in asks])
        except StopIteration as done:
            return done.value

    def ask(self, mode: str, *limits: Limit, cost: int = 1) -> Decision:
        question = self.question(mode, limits, cost)
        return decision(question, self.reply(question))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def nodes(clock: FakeClock) -> Nodes:
    return Nodes(clock)


def one_server(clock: FakeClock) -> tuple[Store, Scope]:
    return fake_store(clock), Scope(Namer(), "parts", clock)


def test_every_script_that_a_question_names_is_known() -> None:
    text = (ROOT / "throttle" / "question.py").read_text()
    assert set(re.findall(r'Question\(\s*"(\w+)"', text)) <= set(SCRIPTS)
    assert {named(script(name).sha) for name in SCRIPTS} == set(SCRIPTS)


# -- alone, it is as one server ------------------------------------------------------------------------------


@given(seed=st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_the_answers_are_those_of_one_server(seed: int) -> None:
    """Whatever the kinds, one after another: the same decision, and the same state after it."""
    draw, clock = random.Random(seed), FakeClock()
    nodes, (store, scope) = Nodes(clock), one_server(clock)
    for _ in range(25):
        limits = draw.sample(KINDS, draw.randint(2, 4))
        mode, cost = draw.choice(["take", "take", "take", "peek", "refund"]), draw.choice([0, 1, 1, 2])
        asked = scope.refund(limits, None, cost) if mode == "refund" else scope.question(mode, limits, None, cost)
        assert asked is not None
        reply, mine = store.ask(asked.script, asked.keys, asked.text), nodes.question(mode, limits, cost)
        if mode == "refund":
            assert nodes.reply(mine) == reply == 1
        else:
            assert decision(mine, nodes.reply(mine)) == decision(asked, reply)
        clock.advance(draw.choice([0, 0, 0.0005, 0.01, 0.3]))


def test_a_refusal_changes_nothing(nodes: Nodes) -> None:
    full, empty = KINDS[1], TokenBucket("1/h", name="empty")
    assert nodes.ask("take", empty)
    for _ in range(3):
        assert not nodes.ask("take", full, empty)
    assert [ask.args[0].split()[0] for ask in nodes.asked[1:]] == ["peek", "peek"] * 3, "nothing was taken at all"
    assert nodes.ask("peek", full).remaining == 5


def test_the_longest_wait_is_told_whoever_refuses_first(nodes: Nodes) -> None:
    waits = [TokenBucket(f"1/{n}h", name=f"w{n}") for n in range(1, 6)]
    for limit in waits:
        assert nodes.ask("take", limit)
    for _ in range(10):
        random.shuffle(waits)
        said = nodes.ask("take", *waits)
        assert (said.retry_after, said.policies[0].label) == (5 * 3600, "w5")
        assert nodes.ask("peek", *waits) == said
    assert nodes.ask("take", *waits, KINDS[8]).retry_after == float("inf")


def test_all_take_in_one_order(nodes: Nodes) -> None:
    """Else of two who ask the same at once in another order, each could keep the other from what both need."""
    orders = set()
    for _ in range(20):
        limits = random.sample(KINDS[:8], 8)
        nodes.asked.clear()
        nodes.ask("take", *limits)
        orders.add(tuple(ask.keys[0] for ask in nodes.asked if ask.args[0].startswith("take")))
        nodes.clock.advance(86400)
    assert len(orders) == 1
    assert [key.rpartition(":")[2] for key in orders.pop()][-2:] == ["log.log|-", "line|-"], "given back worst"


# -- several at once ------------------------------------------------------------------------------------------


def by_their_clock(question: Question) -> Question:
    """The same, whose time is that of the nodes when they are asked."""
    *mode, _, rest = question.text.split(" ", 1 if question.script == "refund" else 2)
    return question._replace(text=" ".join([*mode, "-", rest]))


class Asker:
    """One who asks while others do."""

    def __init__(self, nodes: Nodes, limits: Sequence[Limit], cost: int) -> None:
        question = nodes.question("take", limits, cost)
        self.question = by_their_clock(question)
        self.steps, self.nodes = nodes.steps(self.question), nodes
        self.asks = list(next(self.steps))
        self.answers: list[Answer | Exception] = []
        self.taken: dict[str, int] = {}  # by key, when
        self.reply: Any = None

    def step(self) -> bool:
        """One script more; whether that was the last."""
        if self.asks:
            ask = self.asks.pop(0)
            self.taken |= {ask.keys[0]: self.nodes.clock()} if ask.args[0].startswith("take") else {}
            self.answers.append(self.nodes.answer(ask))
        if self.asks:
            return False
        try:
            self.asks, self.answers = list(self.steps.send(self.answers)), []
        except StopIteration as done:
            self.reply = done.value
            return True
        return not self.asks and self.step()

    @property
    def said(self) -> Decision:
        return decision(self.question, self.reply)


def crowd(draw: random.Random, nodes: Nodes, kinds: Sequence[Limit], most: int) -> list[Asker]:
    """Twelve who ask at once, script by script in any order, while time goes by."""
    most_limits = min(4, len(kinds))
    askers = [Asker(nodes, draw.sample(kinds, draw.randint(2, most_limits)), draw.randint(1, 2)) for _ in range(12)]
    left = list(askers)
    while left:
        one = draw.choice(left)
        if one.step():
            left.remove(one)
        nodes.clock.advance(draw.choice([0, 0, 0, draw.random() * most]) / 1e6)
    return askers


def holds(limit: Limit, passed: list[tuple[int, int]]) -> bool:
    """Whether the limit allows so many units at these moments, in order."""
    if isinstance(limit, TokenBucket):
        model = Level(limit.interval, limit.capacity, limit.capacity * limit.interval, 0)
        return all(model.ask(at, cost)[0] for at, cost in passed)
    if isinstance(limit, SlidingLog):
        log = Window(limit.quota, limit.period)
        for at, cost in passed:
            log.take(at, cost)
            if log.used(at) > limit.quota:
                return False
        return True
    windows: dict[int, int] = {}
    for at, cost in passed:
        window = at // (86400 * 10**6 if isinstance(limit, Quota) else limit.period)
        windows[window] = windows.get(window, 0) + cost
    return max(windows.values(), default=0) <= limit.quota


@given(seed=st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_never_more_pass_than_limits_allow_whoever_comes_between(seed: int) -> None:
    """Each limit, asked about those who passed and about nobody else, would have let them pass."""
    draw, clock = random.Random(seed), FakeClock()
    clock.advance(86399.9985)  # borders of windows and days are near
    nodes, kinds = Nodes(clock), [kind for kind in KINDS[:8] if kind.label != "sliding"]
    kinds = draw.choice([kinds, [kinds[0], FixedWindow("3/s", name="few")]])
    passed: dict[str, list[tuple[int, int]]] = {}
    for _ in range(6):
        for asker in crowd(draw, nodes, kinds, most=draw.choice([100, 2000, 200_000])):
            for key, limit in zip(asker.question.keys, asker.question.limits, strict=True):
                if asker.said.allowed and asker.question.limits:
                    passed.setdefault(limit.label, []).append((asker.taken[key], asker.question.cost))
        clock.advance(draw.choice([0, 0.001, 0.4]))
    for limit in kinds:
        times = sorted(passed.get(limit.label, []), key=lambda one: one[0])
        assert holds(limit, times), limit


@given(seed=st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_refusals_leave_all_as_it_was_when_all_are_done(seed: int) -> None:
    """While time stands still: what is missing is what those took who passed."""
    draw, clock = random.Random(seed), FakeClock()
    nodes, kinds = Nodes(clock), [kind for kind in KINDS[1:7] if kind.label != "fast"]
    used = dict.fromkeys((limit.label for limit in kinds), 0)
    for _ in range(3):
        for asker in crowd(draw, nodes, kinds, most=0):
            for limit in asker.question.limits if asker.said.allowed else ():
                used[limit.label] += asker.question.cost
    for limit in kinds:
        assert nodes.ask("peek", limit, TokenBucket("1/h", 100, name="any")).policies
        assert nodes.ask("peek", limit).remaining == limit.capacity - used[limit.label]


def test_a_crowd_at_times_gives_back(nodes: Nodes) -> None:
    """So the tests above are about something."""
    draw = random.Random(1)
    for _ in range(10):
        crowd(draw, nodes, KINDS[:7], most=1000)
        nodes.clock.advance(1)
    assert [ask.what for ask in nodes.asked].count("refund") > 5


def test_what_has_come_back_by_itself_is_not_given_back_too(nodes: Nodes, clock: FakeClock) -> None:
    """Three of five taken; three ms later all five are there again, and another takes them: none is to come."""
    fast, few = TokenBucket("1000/s", 5, name="fast"), FixedWindow("3/s", name="few0")
    n = 0
    while slot_of(nodes.question("peek", [few]).keys[0]) < slot_of(nodes.question("peek", [fast]).keys[0]):
        few, n = FixedWindow("3/s", name=f"few{n}"), n + 1  # one that is taken second
    asker = Asker(nodes, [fast, few], 3)
    assert not asker.step()
    assert not asker.step()
    assert nodes.ask("take", few, cost=2)
    clock.advance(0.002)
    assert nodes.ask("peek", fast).remaining == 4
    clock.advance(0.001)
    assert nodes.ask("take", fast, cost=5).remaining == 0
    while not asker.step():
        pass
    assert not asker.said
    assert nodes.asked[-1].what == "refund"
    assert nodes.ask("peek", fast).remaining == 0
    clock.advance(0.0029)
    assert nodes.ask("peek", fast).remaining == 2


def test_a_place_in_a_line_is_not_given_back(nodes: Nodes) -> None:
    """Who stands behind it was told a moment: another with the same would be one too many then."""
    lines = first_two([LeakyBucket("1/s", depth=5, name="l1"), LeakyBucket("1/s", depth=5, name="l2")], nodes)
    asker = Asker(nodes, lines, 1)
    assert not asker.step()
    assert not asker.step()
    assert nodes.ask("take", lines[0]).delay == 2
    assert nodes.ask("take", lines[1], cost=5)
    while not asker.step():
        pass
    assert not asker.said
    assert nodes.ask("take", lines[0]).delay == 3


# -- nodes that do not answer --------------------------------------------------------------------------------


def first_two(limits: Sequence[Limit], nodes: Nodes) -> list[Limit]:
    """In the order in which they are taken."""
    nodes.asked.clear()
    assert nodes.ask("take", *limits)
    order = [ask.keys[0].rpartition(":")[2].split("|")[0] for ask in nodes.asked if ask.args[0].startswith("take")]
    return sorted(limits, key=lambda limit: order.index(limit.label))


def test_what_was_taken_is_given_back_if_a_later_node_does_not_answer(nodes: Nodes) -> None:
    one, other = first_two([TokenBucket("1/h", 3, name="a"), TokenBucket("1/h", 3, name="b")], nodes)
    question = nodes.question("take", (one, other))
    asking = nodes.steps(question)
    asks = next(asking)
    asks = asking.send([nodes.answer(ask) for ask in asks])  # looked at
    asks = asking.send([nodes.answer(ask) for ask in asks])  # taken
    nodes.fails = {asks[0].keys[0]}
    asks = asking.send([nodes.answer(ask) for ask in asks])
    assert [ask.what for ask in asks] == ["refund"]
    with pytest.raises(StoreUnavailable):
        asking.send([nodes.answer(ask) for ask in asks])
    nodes.fails = set()
    assert [nodes.ask("peek", limit).remaining for limit in (one, other)] == [2, 2]


def test_who_refuses_decides_though_another_does_not_answer(nodes: Nodes) -> None:
    limits = [TokenBucket("1/h", name="a"), TokenBucket("1/h", name="b"), TokenBucket("1/h", name="c")]
    assert nodes.ask("take", limits[1])
    for down in (limits[0], limits[2]):
        nodes.fails = {key for key in nodes.question("peek", limits).keys if f":{down.label}|" in key}
        assert nodes.ask("take", *limits).retry_after == 3600
        assert nodes.ask("peek", *limits).retry_after == 3600
        with pytest.raises(StoreUnavailable):
            nodes.ask("take", limits[0], limits[2])
    nodes.fails = set()
    assert nodes.ask("take", limits[0], limits[2])


def test_all_that_can_be_is_given_back_though_a_node_does_not_answer(nodes: Nodes) -> None:
    limits = [TokenBucket("1/h", name="a"), TokenBucket("1/h", name="b"), TokenBucket("1/h", name="c")]
    assert nodes.ask("take", *limits)
    refund = nodes.question("refund", limits)
    nodes.fails = {refund.keys[0]}
    with pytest.raises(StoreUnavailable):
        nodes.reply(refund)
    nodes.fails = set()
    assert [nodes.ask("peek", limit).remaining for limit in limits] == [0, 1, 1]


# -- windows and quotas --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [FixedWindow("3/s", name="w"), SlidingWindow("3/s", name="w"), Quota(3, "hour", name="w")]
)
def test_nothing_is_given_back_to_a_later_window(kind: Limit, nodes: Nodes, clock: FakeClock) -> None:
    clock.advance(3599.999)
    keys = nodes.question("peek", [kind]).keys
    since, said = clock(), f"{kind.asked(clock())}1"
    assert nodes.ask("take", kind)
    clock.advance(0.002)
    assert nodes.ask("take", kind, cost=2)
    before = nodes.ask("peek", kind)
    nodes.store.ask("refund", keys, f"{clock()} {said} {since}")
    assert nodes.ask("peek", kind) == before
    nodes.store.ask("refund", keys, f"{clock()} {said} {clock()}")
    assert nodes.ask("peek", kind).remaining == before.remaining + 1


def test_borders_of_quotas_that_are_wrong_are_told_before_anything_is_done(nodes: Nodes, clock: FakeClock) -> None:
    day = Quota(5, "day", name="day")
    for n, mode in enumerate(["take", "peek", "refund"] * 4):
        bucket = TokenBucket("1/h", 5, name=f"b{n}")  # in a slot before, or behind
        question = by_their_clock(nodes.question(mode, [bucket, day]))
        clock.advance(3 * 86400)
        assert nodes.ask("take", bucket, cost=3).remaining == 2
        reply = nodes.reply(question)
        assert reply == b"outside %d" % clock()
        assert nodes.ask("peek", bucket).remaining == 2
        assert nodes.reply(nodes.scope.again(question, reply)) != reply
