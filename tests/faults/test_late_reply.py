"""A pool process that stands still while Redis answers starts late; then the next must not come on time."""

from __future__ import annotations

import time

import pytest

from tests.fleet import Fleet
from throttle.deployment import deployment
from throttle.entry import Entry, Turn
from throttle.start import _start
from throttle.ticket import Handed, Ticket

INTERVAL = 50_000  # µs at 20/s


@pytest.mark.parametrize("slow", [("take",), ("take", "late"), ("late",), ("begin",)])
def test_a_start_after_a_late_reply_is_counted_anew(fleet: Fleet, monkeypatch: pytest.MonkeyPatch, slow: tuple) -> None:
    from tests.celery import project

    place = deployment(project.app)
    place.store.close()
    backlog = place.backlog(project.send.__throttle__, "send")
    verdict = backlog.submit(Entry("first", "-", ("-",), (1,), b"message"))
    real, late = backlog.start, list(slow)

    def start(mode: str, *args: object) -> Turn:
        turn = real(mode, *args)
        if mode == "take" and slow == ("begin",):
            turn = turn._replace(what="hold", wait=0)
        if mode == "take" and slow == ("late",):
            turn = turn._replace(wait=-10_000)  # its slot was 10 ms ago
        if mode in late:
            late.remove(mode)
            time.sleep(0.03)
        return turn

    monkeypatch.setattr(backlog, "start", start)
    ticket = Ticket(verdict.ticket, verdict.slot, backlog.tag, "first")
    _start(place, backlog, project.send, ticket, Handed(0.0), ("-", ("-",), (1,)))
    begun = _now(place)
    what, wait, *_ = real("take", "second", "", 0, ("-",), (1,))
    due = _now(place) + wait
    assert not late
    assert what == "wait" or due >= begun + INTERVAL - 2_000


def _now(place: object) -> int:
    seconds, micros = place.store.client.time()  # type: ignore[attr-defined]
    return int(seconds) * 10**6 + int(micros)
