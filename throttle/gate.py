"""The gate: in the worker's consumer, before the pool, with the raw message in hand. The authority."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from celery.exceptions import InvalidTaskError
from celery.utils.imports import instantiate, symbol_by_name
from celery.worker.state import revoked as revoked_tasks
from kombu.exceptions import ContentDisallowed, DecodeError

from throttle.backlog import AHEAD, FAR
from throttle.deployment import Deployment, deployment
from throttle.entry import Verdict
from throttle.envelope import Envelope
from throttle.errors import StoreUnavailable, ThrottleError
from throttle.ticket import HANDED, HEADER, MAYBE, Handed, Ticket
from throttle.windows import Counted

logger = logging.getLogger(__name__)

HANDOVER = 0.006  #: s before its slot that a task goes to the pool, where its process waits out the rest
LATE = 1.0  #: s after its slot at which a message is asked about, as others may have taken its turn
RETRY = 1.0  #: s between two tries while Redis cannot serve


def gated(inner: Any) -> Callable[..., Any]:
    """A `Task.Strategy` that asks before the task's own strategy sees the message."""

    def strategy(task: Any, app: Any, consumer: Any, **kwargs: Any) -> Any:
        if not task.__throttle__.active:
            return instantiate(inner, task, app, consumer, **kwargs)
        place = deployment(app)
        task.Request = _request_class(symbol_by_name(task.Request), place)
        handler = instantiate(inner, task, app, consumer, **kwargs)
        if not place.settings.enabled:
            return handler
        return Gate(task, place, consumer, handler)

    return strategy


class Gate:
    """One throttled task's message handler in one consumer."""

    def __init__(self, task: Any, place: Deployment, consumer: Any, handler: Callable[..., Any]) -> None:
        self._task, self._place, self._consumer, self._handler = task, place, consumer, handler
        self._spec = task.__throttle__
        self._backlog = place.backlog(self._spec, task.name)
        self._waiting = 0  # on the consumer's timer; a new connection brings a new gate
        # Where all that may be in flight starts within FAR, a late message need not be asked about.
        window, limits = self._backlog.window, self._backlog.limits
        self._may_wait = any(
            isinstance(limit, Counted) or (window - limit.burst) * (limit.interval or FAR) > FAR for limit in limits
        )

    def __call__(self, message: Any, body: Any, ack: Any, reject: Any, callbacks: Any) -> None:
        """What Celery's consumer calls with each message of the task."""
        delivery = (message, body, ack, reject, callbacks)
        header = message.headers.get(HEADER)
        ticket = Ticket.parse(header)
        due = self._place.clock.local(ticket.slot, AHEAD / 1e6) if ticket else 0.0
        late = self._may_wait and time.monotonic() - due > LATE
        again = bool(message.delivery_info.get("redelivered")) or header == MAYBE
        if ticket and not late and not again:
            self._pass(delivery, ticket, due)
        elif ticket or again or not self._guarded(self._passes_calmly, delivery):
            self._guarded(self._ask, delivery, ticket, again)

    def _guarded(self, step: Callable[..., Any], delivery: Any, *args: Any) -> Any:
        """A message that we cannot make sense of does not end the worker: its start is limited all the same."""
        try:
            return step(delivery, *args)
        except (InvalidTaskError, ContentDisallowed, DecodeError):
            raise
        except Exception:
            logger.exception(
                "gate: a message of task %s could not be judged; it goes on, and is limited just before its body",
                self._task.name,
            )
            self._deliver(delivery, None, None)
            return True

    def _passes_calmly(self, delivery: Any) -> bool:
        """Let it start without asking about it alone, while its limit is far from biting (`throttle.calm`)."""
        message, body, *_ = delivery
        call, about = self._call(message, body)
        if about.get("eta"):
            return False
        try:
            resolved = self._spec.resolve(*call, self._place.store.namer.identity)
            until = self._place.calm(self._backlog).start(*resolved)
        except ThrottleError:  # asking finds the same, and knows what to do
            return False
        if until:
            # Should it come to its process too late, that parks it: so its message goes along.
            original = (message.body, message.content_type, message.content_encoding, list(message.headers))
            self._deliver(delivery, None, Handed(until, True, original))
        return bool(until)

    def _ask(self, delivery: Any, ticket: Ticket | None, again: bool) -> None:
        message, body, ack, *_ = delivery
        call, about = self._call(message, body)
        if self._dropped(about):
            return self._deliver(delivery, ticket, None)
        try:
            resolved = self._spec.resolve(*call, self._place.store.namer.identity)
            own = ticket if ticket and ticket.scope == self._backlog.tag else None
            entry = self._place.entry(
                resolved, about, Envelope.of(message), own.id if own else "", self._spec.bounds_of(about)
            )
            copy = (int(about.get("retries") or 0), str(message.delivery_tag))
            verdict = self._backlog.gate(entry, own.number if own else "", again=again, copy=copy)
        except StoreUnavailable as exc:
            return self._without_store(delivery, ticket, again, exc)
        except ThrottleError:  # a cost or key that cannot be: the task fails once, when it would start
            return self._deliver(delivery, ticket, None)
        self._obey(verdict, delivery, ack)
        return None

    def _obey(self, verdict: Verdict, delivery: Any, ack: Any) -> None:
        if verdict.what == "go":
            due = time.monotonic() + max(0, verdict.slot - verdict.now) / 1e6
            self._pass(delivery, Ticket(verdict.ticket, verdict.slot, self._backlog.tag, verdict.id), due)
        elif verdict.what == "full":  # the task fails once, when it would start
            self._deliver(delivery, None, Handed(0.0, full=(verdict.wait / 1e6, verdict.over / 1e6)))
        else:  # parked: Redis has it; stale: another copy is under way
            logger.debug("%s[%s] %s", self._task.name, verdict.id, verdict.what)
            ack(logger, self._consumer.connection_errors)

    def _pass(self, delivery: Any, ticket: Ticket, due: float) -> None:
        """To the pool, a little before the slot; until then it waits on the consumer's timer."""
        wait = due - time.monotonic() - HANDOVER
        if wait > 0:
            self._later(wait, self._deliver, delivery, ticket, Handed(due))
        else:
            self._deliver(delivery, ticket, Handed(due))

    def _deliver(self, delivery: Any, ticket: Ticket | None, handed: Handed | None) -> None:
        message, body, ack, reject, callbacks = delivery
        consumer = self._consumer
        ours = {HEADER: str(ticket) if ticket else None, HANDED: tuple(handed) if handed else None}
        message.headers = {**message.headers, **ours}
        try:
            self._handler(message, body, ack, reject, callbacks)
        except (InvalidTaskError, ContentDisallowed) as exc:
            consumer.on_invalid_task(body, message, exc)
        except DecodeError as exc:
            consumer.on_decode_error(message, exc)

    def _without_store(self, delivery: Any, ticket: Ticket | None, again: bool, exc: StoreUnavailable) -> None:
        runs = self._place.settings.on_store_error == "open"
        what = "runs unthrottled" if runs else "waits in the worker"
        self._place.complain("task %s: %s until Redis serves (throttle_on_store_error): %s", self._task.name, what, exc)
        if runs:
            self._deliver(delivery, ticket, None)
        else:
            self._later(RETRY, self._guarded, self._ask, delivery, ticket, again)

    def _later(self, wait: float, then: Callable[..., None], *args: Any) -> None:
        """Call on the consumer's timer, unless the connection was lost meanwhile: the broker redelivers."""
        consumer, connection = self._consumer, self._consumer.restart_count

        def call() -> None:
            if consumer.restart_count == connection:
                then(*args)

        consumer.timer.call_after(wait, call)

    def _call(self, message: Any, body: Any) -> tuple[tuple[Any, Any], dict[str, Any]]:
        """Arguments and headers of protocol 2, or of the older ones that keep all in the body."""
        payload = body if body is not None else message.payload
        if isinstance(payload, dict):
            call, about = (payload.get("args", ()), payload.get("kwargs", {})), {**payload, **message.headers}
        elif isinstance(payload, (list, tuple)) and len(payload) == 3:
            call, about = (payload[0], payload[1]), message.headers
        else:
            raise InvalidTaskError("the body is no (args, kwargs, embed)")
        if not isinstance(call[0], (list, tuple)) or not isinstance(call[1], dict) or not about.get("id"):
            raise InvalidTaskError("args must be a list, kwargs a mapping, and there must be an id")
        return call, about

    def _dropped(self, about: dict[str, Any]) -> bool:
        """Whether Celery will drop it (revoked or expired): then nothing is charged."""
        expires = self._place.micros(about.get("expires"))
        return about.get("id") in revoked_tasks or bool(expires and expires < time.time() * 1e6)


def _request_class(base: type, place: Deployment) -> type:
    """The task's Request; no ETA that has waited in the backlog waits again, and what Celery drops is forgotten."""
    if getattr(base, "_throttle_place", None) is place:
        return base

    class ThrottledRequest(base):  # type: ignore[misc]
        _throttle_place = place

        @property
        def eta(self) -> Any:
            """Celery's own affair without a ticket: then we are switched off, or Redis cannot serve."""
            return None if Ticket.parse(self._request_dict.get(HEADER)) else super().eta

        def _announce_revoked(self, *args: Any, **kwargs: Any) -> None:
            super()._announce_revoked(*args, **kwargs)
            ticket = Ticket.parse(self._request_dict.get(HEADER))
            if ticket:
                try:
                    place.tagged(ticket.scope).forget((ticket.id, ticket.number))
                except StoreUnavailable as exc:
                    place.complain("task %s: a revoked one leaves the backlog later: %s", self.task_name, exc)

    return ThrottledRequest
