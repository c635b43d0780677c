"""What is let out comes back, should it be lost: leases, attempts, and copies that are dead; B60, B62."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation import entry
from throttle import TokenBucket
from throttle.backlog import AHEAD, CLAIM, LEASE, LONGEST_LEASE, Backlog
from throttle.entry import Due
from throttle.testing import FakeClock

Make = Callable[..., Backlog]


@pytest.fixture
def made(backlog: Make) -> Backlog:
    """A scope in which two tasks wait and nothing holds them."""
    scope = backlog(TokenBucket("1000/s", 100))
    scope.set_rate(TokenBucket(0))
    assert [scope.submit(entry(n)).what for n in "ab"] == ["parked"] * 2
    scope.reset_rate()
    return scope


def lease_ends(made: Backlog, id: str = "a") -> int:
    return int(made.store.client.zscore(made.keys[7], id))


def out(made: Backlog) -> list[Due]:
    return made.release(recover=False).due


def take(made: Backlog, task: Due) -> str:
    return made.start("take", task.id, task.ticket, task.slot, ("-",), (1,))[0]


def test_a_claim_is_short_and_a_lease_is_long(made: Backlog, clock: FakeClock) -> None:
    first, second = out(made)
    assert lease_ends(made) == lease_ends(made, "b") == clock() + CLAIM
    assert made.confirm([(first.id, first.ticket), (second.id, "1")]) == 1
    assert lease_ends(made) == clock() + LEASE
    assert made.recover() == 0
    clock.tick(CLAIM)
    assert made.recover() == 1, "the scheduler died before it could confirm the second"
    clock.tick(LEASE - CLAIM)
    assert made.recover() == 1
    assert [task.id for task in out(made)] == ["a", "b"], "back at the head of the lane"


def test_each_attempt_has_twice_the_lease_an_hour_at_most(made: Backlog, clock: FakeClock) -> None:
    leases = []
    for _ in range(10):
        first = out(made)[0]
        made.confirm([(first.id, first.ticket)])
        leases.append(lease_ends(made) - clock())
        clock.tick(LONGEST_LEASE)
        assert made.recover() == 2
    assert leases == [min(LONGEST_LEASE, LEASE * 2**n) for n in range(10)]


def test_a_task_that_only_came_too_soon_has_no_attempt_counted(made: Backlog, clock: FakeClock) -> None:
    first, _ = out(made)
    made.set_rate(TokenBucket(0))
    assert take(made, first) == "parked"
    made.reset_rate()
    (again,) = out(made)
    made.confirm([(again.id, again.ticket)])
    assert lease_ends(made) == clock() + LEASE


def test_only_the_last_copy_starts(made: Backlog, clock: FakeClock) -> None:
    first, _ = out(made)
    clock.tick(CLAIM)
    made.recover()
    second, _ = out(made)
    assert take(made, first) == "stale"
    assert made.gate(entry("a"), first.ticket).what == "stale"
    assert take(made, second) == "go"
    assert take(made, first) == "stale", "also after the other has started"
    assert made.gate(entry("a"), first.ticket, again=True).what == "stale"
    clock.tick(23 * 3600 * 10**6)
    assert take(made, first) == "stale", "for a day, longer than brokers redeliver"


def test_what_is_named_comes_back_at_once(made: Backlog) -> None:
    """The broker refused it."""
    first, second = out(made)
    assert made.recover([first.id, "unknown"]) == 1
    assert made.depth() == 1
    assert out(made)[0].id == first.id
    assert take(made, second) == "go"


def test_a_worker_that_holds_it_renews(made: Backlog, clock: FakeClock) -> None:
    first, _ = out(made)
    for _ in range(10):
        clock.tick(CLAIM - 1)
        assert made.gate(entry("a"), first.ticket).what == "go"
        assert lease_ends(made) == clock() + LEASE
        clock.tick(10)


def test_a_crash_between_taking_a_start_and_the_body_loses_nothing(made: Backlog, clock: FakeClock) -> None:
    first, second = out(made)
    made.set_rate(TokenBucket("100/s"))
    assert take(made, first) == "go"
    assert take(made, second) == "hold"
    clock.tick(CLAIM)
    assert made.recover() == 1
    assert made.start("begin", second.id, second.ticket, second.slot, ("-",), (1,))[:2] == ("stale", 0)
    assert [task.id for task in out(made)] == ["b"]


def test_many_lost_at_once_come_back_in_order(backlog: Make, clock: FakeClock) -> None:
    made = backlog(TokenBucket("1000000/s", 10**6))
    for n in range(64):
        made.submit(entry(n))
    clock.tick(LEASE)
    while made.recover(batch=10):
        pass
    assert [task.id for task in made.release(batch=1000).due] == [str(n) for n in range(64)]


def test_counters_tell_what_happened(made: Backlog, clock: FakeClock) -> None:
    first, second = out(made)
    take(made, first)
    clock.tick(CLAIM)
    made.recover()
    made.submit(entry("c"))
    counts = made.counters()
    assert (counts["parked"], counts["released"], counts["started"], counts["recovered"]) == (3, 2, 1, 1)
    assert second.id == "b"


def test_a_copy_of_what_has_started_and_waits_again_is_dead(made: Backlog, clock: FakeClock) -> None:
    """Its worker died in the body; the broker gave it another life, which must not be taken by an old copy."""
    first, _ = out(made)
    assert take(made, first) == "go"
    made.set_rate(TokenBucket(0))
    assert made.gate(entry("a"), first.ticket, again=True).what == "parked"
    for again in (True, False):
        assert made.gate(entry("a"), first.ticket, again=again).what == "stale"
    assert take(made, first) == "stale"
    made.reset_rate()
    (second,) = [task for task in out(made) if task.id == "a"]
    assert take(made, first) == "stale"
    assert take(made, second) == "go"


def test_the_gate_parks_what_would_wait_in_the_pool(made: Backlog, clock: FakeClock) -> None:
    first, _ = out(made)
    made.set_rate(TokenBucket(0))
    assert made.gate(entry("a"), first.ticket).what == "parked"
    assert take(made, first) == "stale"
    made.reset_rate()
    assert [task.id for task in out(made)] == ["a"]


def test_the_current_copy_delivered_again_makes_room_for_a_new_one(made: Backlog) -> None:
    """The worker that had it may live and start it, so neither of the two may; the new one goes out at once."""
    first, _ = out(made)
    assert made.gate(entry("a"), first.ticket, again=True).what == "stale"
    assert take(made, first) == "stale"
    (new,) = out(made)
    assert (new.id, take(made, new)) == ("a", "go")


def test_a_message_without_our_header_delivered_again_is_known(backlog: Make, clock: FakeClock) -> None:
    """By its id and which try it is: its first delivery was let through, lost its lease, and another copy started."""
    made = backlog(TokenBucket("1000/s", 100))
    first = made.gate(entry("x"), copy=(0, "delivery 1"))
    clock.tick(LEASE)
    assert made.recover() == 1
    (second,) = out(made)
    assert take(made, second) == "go"
    assert made.start("take", "x", first.ticket, first.slot, ("-",), (1,))[:2] == ("stale", 0)
    assert made.gate(entry("x"), again=True, copy=(0, "delivery 2")).what == "stale"
    assert made.gate(entry("x"), again=True, copy=(1, "delivery 3")).what == "go", "another try of the task"


def test_a_question_asked_again_has_one_answer(backlog: Make, clock: FakeClock) -> None:
    """The reply was lost, and the producer asks again about the same message."""
    made = backlog(TokenBucket("1/s"))
    args = [*made_args(made, "go"), "word 1"]
    said = [made._declared("submit", args) for _ in range(3)]
    assert [reply[0] for reply in said] == [b"go"] * 3
    assert len({bytes(reply[1]) for reply in said}) == 1
    args = [*made_args(made, "wait"), "word 2"]
    assert [made._declared("submit", args)[0] for _ in range(3)] == [b"parked"] * 3
    assert (made.flying(), made.depth()) == (1, 1)
    assert made._declared("submit", [*made_args(made, "wait"), "word 3"])[3].startswith(b"wait+"), "another message"
    assert made.depth() == 2


def made_args(made: Backlog, id: str) -> list[object]:
    return [*entry(id).args(), AHEAD, LEASE, *made._bell()]


def test_forget_ends_the_ticket_meant_and_no_other(made: Backlog, clock: FakeClock) -> None:
    first, _ = out(made)
    clock.tick(CLAIM)
    made.recover()
    second = out(made)[0]
    assert made.forget((first.id, first.ticket)) == 0
    assert take(made, second) == "go"
