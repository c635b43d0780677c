"""The last check, just before the body: starts are what the downstream sees, so here the bound is kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial, wraps
from types import SimpleNamespace
from typing import Any

from celery.exceptions import Ignore

from throttle.backlog import Backlog
from throttle.calm import MARGIN
from throttle.clock import sleep_until
from throttle.deployment import Deployment, deployment
from throttle.entry import Turn
from throttle.envelope import Envelope
from throttle.errors import BacklogFull, StoreUnavailable
from throttle.ticket import HANDED, HEADER, Handed, Ticket, stripped

EARLY = 0.0015  #: s before its slot that Redis is asked; within backlog.NEAR, so one question is enough
TARDY = 0.001  #: s after its slot beyond which a start is counted anew
AGAIN = 5  #: times at most: on a machine that never keeps up the body runs all the same


def before_start_of(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Task.before_start` that, after the task's own, waits for the slot and takes the start."""

    @wraps(original)
    def before_start(self: Any, task_id: str, args: Any, kwargs: Any) -> None:
        request = self.request
        if request.is_eager or request.called_directly:
            original(self, task_id, args, kwargs)
            return
        ticket = Ticket.parse(getattr(request, HEADER, None))
        handed = Handed(*getattr(request, HANDED, None) or (0.0,))
        request.headers = stripped(request.headers) or None
        if handed.full:
            raise BacklogFull(self.name, *handed.full)
        if not (ticket or self.__throttle__.active):
            original(self, task_id, args, kwargs)
            return
        place = deployment(self.app)
        try:
            original(self, task_id, args, kwargs)
            if handed.calm and time.monotonic() < handed.moment - MARGIN:
                return  # charged already
            call = self.__throttle__.resolve(args, kwargs, place.store.namer.identity)
        except BaseException:  # the task fails here and now, so it must not be released again
            _forget(place, ticket)
            raise
        if not place.settings.enabled or not self.__throttle__.active:
            _forget(place, ticket)
            return
        backlog = place.backlog(self.__throttle__, self.name)
        _start(place, backlog, self, ticket, handed, call)
        if ticket and ticket.scope != backlog.tag:  # parked before its scope was given another name
            _forget(place, ticket)

    return before_start


def _start(
    place: Deployment, backlog: Backlog, task: Any, ticket: Ticket | None, handed: Handed,
    call: tuple[str, tuple[str, ...], tuple[int, ...]],
) -> None:  # fmt: skip
    number, slot, _, id = ticket or Ticket("", 0, "", task.request.id)
    if not handed.calm:
        sleep_until(handed.moment - EARLY)
    mode, tries = "take", AGAIN
    longest, _ = task.__throttle__.bounds_of({"retries": task.request.retries})
    while True:
        ask = partial(_timed, place, backlog, mode, id, number, slot, *call[1:], longest)
        turn, due, least = _patiently(place, ask)
        if turn.what in ("parked", "stale"):  # stale: it stood still for so long that another was given the task
            raise Ignore(f"throttled: {turn.what}")
        if turn.what == "full":
            raise BacklogFull(task.name, turn.wait / 1e6, max(0, turn.wait - longest) / 1e6)
        if turn.what == "wait":
            if _parked_here(place, backlog, task.request, handed, call):
                raise Ignore("throttled: parked")
            sleep_until(due)
            continue
        sleep_until(due if turn.what == "go" else due - EARLY)
        late = time.monotonic() - least - TARDY - (turn.slack / 1e6 if turn.what == "go" else 0)
        if turn.what == "go" and (late <= 0 or not tries):
            return
        tries = max(0, tries - (late > 0))
        slot, mode = turn.slot, _next(mode, turn, late)


def _next(mode: str, turn: Turn, late: float) -> str:
    """What to ask after a turn: 'take' only counts it, and 'begin' sees itself how late it is."""
    if turn.what == "hold" and mode == "take":
        return "begin"
    return "late" if late > 0 else "done"


def _parked_here(place: Deployment, backlog: Backlog, request: Any, handed: Handed, call: Any) -> bool:
    """Park a task that passed the gate calmly and came too late to start so: Redis does not have its message."""
    if handed.original is None:
        return False
    body, content_type, content_encoding, names = handed.original
    about = {name: getattr(request, name, None) for name in names}
    envelope = Envelope.of(
        SimpleNamespace(
            body=body, content_type=content_type, content_encoding=content_encoding, headers=about,
            properties=request.properties, delivery_info=request.delivery_info,
        )
    )  # fmt: skip
    try:
        backlog.park(place.entry(call, {**about, "id": request.id}, envelope))
    except StoreUnavailable:  # it waits where it is
        return False
    return True


def _timed(place: Deployment, backlog: Backlog, *question: Any) -> tuple[Turn, float, float]:
    """What Redis says; when it is due (monotonic, s), and when at the earliest, as far as its clock is known."""
    asked = time.monotonic()
    turn = backlog.start(*question)
    heard = time.monotonic()
    if not turn.slot:
        return turn, heard + turn.wait / 1e6, heard
    place.clock.hear(asked, heard, turn.slot - turn.wait)
    return turn, *place.clock.due(turn.slot)


def _forget(place: Deployment, ticket: Ticket | None) -> None:
    """The task's way in the backlog ends here: nothing of it is left in flight."""
    if ticket:
        try:
            place.tagged(ticket.scope).forget((ticket.id, ticket.number))
        except StoreUnavailable as exc:
            place.complain("start: %s; a task that has ended may be released again", exc)


def _patiently(place: Deployment, ask: Callable[[], tuple[Turn, float, float]]) -> tuple[Turn, float, float]:
    """Ask until Redis answers; under the policy "open" a body does not wait for that."""
    pause = 0.05
    while True:
        try:
            return ask()
        except StoreUnavailable as exc:
            place.clock.forget()
            place.complain("start: %s; policy %r", exc, place.settings.on_store_error)
            if place.settings.on_store_error == "open":
                return Turn("go"), time.monotonic(), time.monotonic() + 60.0
            time.sleep(pause)
            pause = min(1.0, 2 * pause)
