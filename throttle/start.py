"""The last check, just before the body: starts are what the downstream sees, so here the bound is kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace
from typing import Any

from celery.exceptions import Ignore

from throttle.backlog import Backlog
from throttle.calm import MARGIN
from throttle.clock import sleep_until
from throttle.deployment import Deployment, deployment
from throttle.envelope import Envelope
from throttle.errors import StoreUnavailable
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
        _start(place, backlog, request, ticket, handed, call)
        if ticket and ticket.scope != backlog.tag:  # parked before its scope was given another name
            _forget(place, ticket)

    return before_start


def _start(
    place: Deployment, backlog: Backlog, request: Any, ticket: Ticket | None, handed: Handed,
    call: tuple[str, tuple[str, ...], tuple[int, ...]],
) -> None:  # fmt: skip
    number, slot, _, id = ticket or Ticket("", 0, "", request.id)
    if not handed.calm:
        sleep_until(handed.moment - EARLY)

    def ask(mode: str, late: float = 0.0) -> tuple[str, float, float]:
        at = int(late * 1e6) if mode == "late" else slot
        what, wait, stood = _patiently(place, lambda: _timed(backlog, mode, id, number, at, *call[1:]))
        due = time.monotonic() + wait / 1e6
        return what, due, due - stood

    what, due, least = ask("take")
    while what == "wait":
        if _parked_here(place, backlog, request, handed, call):
            raise Ignore("throttled: parked")
        sleep_until(due)
        what, due, least = ask("take")
    if what in ("parked", "stale"):
        raise Ignore(f"throttled: {what}")
    sleep_until(due)
    late = time.monotonic() - least
    mode = "late" if late > TARDY else "begin" if what == "hold" else ""
    for _ in range(AGAIN):
        if not mode:
            return
        what, _, least = ask(mode, late)
        if what == "stale":  # this process stood still for so long that the task was given to another
            raise Ignore("throttled: stale")
        late = time.monotonic() - least
        mode = "late" if late > TARDY else ""


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


class _Trip:
    """How long Redis's answer takes as a rule, to tell one that came to a process that stood still."""

    usual = 0.001  # s

    @classmethod
    def beyond(cls, took: float) -> float:
        """Seconds above the rule, which follows a route that became longer within some fifty answers."""
        cls.usual = min(took, 1.02 * cls.usual)
        return took - cls.usual


def _timed(backlog: Backlog, *question: Any) -> tuple[str, int, float]:
    """What Redis says, and for how long it may have been said when it is heard (s)."""
    asked = time.monotonic()
    what, wait = backlog.start(*question)
    return what, wait, _Trip.beyond(time.monotonic() - asked)


def _forget(place: Deployment, ticket: Ticket | None) -> None:
    """The task's way in the backlog ends here: nothing of it is left in flight."""
    if ticket:
        try:
            place.tagged(ticket.scope).forget((ticket.id, ticket.number))
        except StoreUnavailable as exc:
            place.complain("start: %s; a task that has ended may be released again", exc)


def _patiently(place: Deployment, ask: Callable[[], tuple[str, int, float]]) -> tuple[str, int, float]:
    """Ask until Redis answers; under the policy "open" a body does not wait for that."""
    pause = 0.05
    while True:
        try:
            return ask()
        except StoreUnavailable as exc:
            place.complain("start: %s; policy %r", exc, place.settings.on_store_error)
            if place.settings.on_store_error == "open":
                return "go", 0, 0.0
            time.sleep(pause)
            pause = min(1.0, 2 * pause)
