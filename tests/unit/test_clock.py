"""Redis's clock as processes know it: never a start early by it, and late answers do not pass for late starts."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from throttle.clock import SLEW, Clock
from throttle.entry import Turn
from throttle.errors import StoreUnavailable
from throttle.start import _patiently
from throttle.store import Store

AHEAD = 1_000_000.0  #: s that Redis's clock is ahead of ours here
EXACT = 1e-6  #: s that a whole µs leaves open


def clock() -> Clock:
    return Clock(Store("redis://127.0.0.1:1"))  # nobody answers there


def told(known: Clock, asked: float, there: float, back: float, ahead: float = AHEAD) -> tuple[float, float]:
    """An answer that took so long there and back; when a slot 10 ms after it is due, by our clock less the truth."""
    answered = asked + there
    now = round((answered + ahead) * 1e6)
    known.hear(asked, answered + back, now)
    slot = now + 10_000
    due, least = known.due(slot)
    true = slot / 1e6 - ahead
    return due - true, least - true


trips = st.lists(
    st.tuples(st.floats(0.001, 5.0), st.floats(0.00005, 0.05), st.floats(0.00005, 0.05)), min_size=1, max_size=40
)


@given(trips, st.floats(-SLEW, SLEW))
def test_never_early_however_answers_travel_and_clocks_are_slewed(trips: list[tuple[float, ...]], slew: float) -> None:
    known, moment = clock(), 50.0
    for pause, there, back in trips:
        moment += pause + there + back
        late, least = told(known, moment, there, back, AHEAD + slew * moment)
        assert -EXACT - SLEW * 0.11 <= late <= back + EXACT + SLEW * 0.11, "at worst as if only this answer were known"
        assert least <= late


def test_one_quick_answer_makes_the_slow_ones_exact() -> None:
    known = clock()
    told(known, 100.0, 0.0001, 0.0001)
    late, least = told(known, 100.1, 0.0001, 0.020)  # heard 20 ms late
    assert 0 <= late < 0.0003
    assert late - least < 0.0001, "and nobody takes it for a late start"
    late, _ = told(known, 100.2, 0.020, 0.0001)  # asked 20 ms late
    assert 0 <= late < 0.0003


def test_what_is_known_of_a_far_server_is_the_rule_and_no_lateness() -> None:
    known = clock()
    for n in range(200):
        late, least = told(known, 100.0 + n, 0.010, 0.010)
    assert late == pytest.approx(0.010, abs=0.001)
    assert late - least < 0.0012


@pytest.mark.parametrize("step", [-3600.0, -0.5, 0.5, 3600.0])
def test_a_clock_that_was_set_is_known_again_at_once(step: float) -> None:
    known = clock()
    told(known, 100.0, 0.0001, 0.0001)
    late, _ = told(known, 100.1, 0.0001, 0.0001, AHEAD + step)
    assert 0 <= late < 0.0003


def test_what_was_known_long_ago_is_worth_less_than_a_new_answer() -> None:
    known = clock()
    told(known, 100.0, 0.0001, 0.0001)
    late, _ = told(known, 100.0 + 3600, 0.001, 0.001)
    assert late == pytest.approx(0.001, abs=1e-5)


def test_after_an_outage_nothing_is_known() -> None:
    """Another server may have taken over: farther away, and its clock a little behind."""
    known = clock()
    told(known, 100.0, 0.0001, 0.0001)
    known.forget()
    late, _ = told(known, 100.1, 0.010, 0.010, AHEAD - 0.008)
    assert 0 <= late <= 0.0101


def test_a_start_that_redis_did_not_answer_forgets_its_clock() -> None:
    known, failed = clock(), iter([True])
    told(known, 100.0, 0.0001, 0.0001)
    place: Any = SimpleNamespace(clock=known, complain=lambda *_: None, settings=SimpleNamespace(on_store_error="park"))

    def ask() -> tuple[Turn, float, float]:
        if next(failed, False):
            raise StoreUnavailable("gone")
        return Turn("go"), 0.0, 0.0

    assert _patiently(place, ask)[0].what == "go"
    late, _ = told(known, 100.1, 0.010, 0.010, AHEAD - 0.008)
    assert 0 <= late <= 0.0101


def test_without_an_answer_the_wait_is_the_longest() -> None:
    before = time.monotonic()
    assert before + 0.025 <= clock().local(10**15, 0.025) <= time.monotonic() + 0.025
