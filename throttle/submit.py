"""Submit: at publish, Redis says "now" or parks the task, so that one that waits is delivered once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from celery import _state

from throttle.deployment import deployment
from throttle.envelope import Envelope
from throttle.errors import BacklogFull, StoreUnavailable
from throttle.ticket import MAYBE, Ticket, stripped

UNASKED = "task %s: sent without asking Redis, so workers do, as throttle_on_store_error says: %s"


def apply_async_of(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Task.apply_async` whose message passes through submit."""

    @wraps(original)
    def apply_async(
        self: Any, args: Any = None, kwargs: Any = None, task_id: str | None = None, producer: Any = None,
        *rest: Any, **options: Any,
    ) -> Any:  # fmt: skip
        app = self._get_app()
        options.update(zip(("link", "link_error", "shadow"), rest, strict=False))
        if task_id is not None:
            options["task_id"] = task_id
        if not self.__throttle__.active or app.conf.task_always_eager or not deployment(app).settings.enabled:
            options.update({} if producer is None else {"producer": producer})
            return original(self, args, kwargs, **options)
        with app.producer_or_acquire(producer) as real:
            return original(self, args, kwargs, producer=Submitter(real, self), **options)

    apply_async.throttled = True  # type: ignore[attr-defined]
    return apply_async


class Submitter:
    """A producer that takes the task's own message aside; all else (events) goes to the real one."""

    def __init__(self, real: Any, task: Any) -> None:
        self._real, self._task, self._done = real, task, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def publish(self, body: Any, **options: Any) -> Any:
        """What Celery calls once its own header work is done."""
        headers = options.get("headers") or {}
        name = headers.get("task") or (body.get("task") if isinstance(body, dict) else None)
        if self._done or name != self._task.name:
            return self._real.publish(body, **options)
        self._done = True
        return self._submit(body, {**options, "headers": stripped(headers)})

    def _submit(self, body: Any, options: dict[str, Any]) -> Any:
        place = deployment(self._task.app)
        spec, backlog = self._task.__throttle__, place.backlog(self._task.__throttle__, self._task.name)
        about = body if isinstance(body, dict) else options["headers"]
        call = spec.resolve(*_call(body), place.store.namer.identity)
        if not about.get("eta") and place.calm(backlog).publishes(call[0]):
            return self._real.publish(body, **options)
        envelope, rest = self._envelope(body, options)
        entry = place.entry(call, about, envelope, bounds=spec.bounds_of(about))
        asked = time.monotonic()
        try:
            verdict = backlog.submit(entry)
        except StoreUnavailable as exc:
            place.complain(UNASKED, self._task.name, exc)
            return envelope.publish(self._real, MAYBE, **rest)
        place.calm(backlog).told(entry.lane, verdict.calm, asked)
        if verdict.what == "full":
            if _state.get_current_worker_task() is not None:  # in a body, or a link of it: that one did not fail
                return envelope.publish(self._real, None, **rest)
            _unsubscribed(self._task, about.get("id"))
            raise BacklogFull(self._task.name, verdict.wait / 1e6, verdict.over / 1e6)
        if verdict.what == "parked":
            return None
        try:
            ticket = Ticket(verdict.ticket, verdict.slot, backlog.tag, verdict.id)
            return envelope.publish(self._real, str(ticket), **rest)
        except BaseException:  # the caller is told that it was not sent, so it must not run
            backlog.forget((verdict.id, verdict.ticket))
            raise

    def _envelope(self, body: Any, options: dict[str, Any]) -> tuple[Envelope, dict[str, Any]]:
        """The message as the broker would get it, and the options of publishing that are no part of it."""
        options = dict(options)
        take = options.pop
        headers = dict(take("headers", None) or {})
        data, content_type, content_encoding = self._real._prepare(
            body, take("serializer", None), None, None, take("compression", None), headers
        )
        rest: dict[str, Any] = {
            name: take(name)
            for name in ("declare", "retry", "retry_policy", "timeout", "confirm_timeout", "mandatory", "immediate")
            if name in options
        }
        exchange, routing_key = take("exchange", ""), take("routing_key", "")
        expiration = take("expiration", None)
        properties = {name: value for name, value in options.items() if value is not None}
        if expiration is not None:
            properties["expiration"] = str(int(expiration * 1000))
        queue = next((entity.name for entity in rest.get("declare") or () if hasattr(entity, "routing_key")), None)
        name = getattr(exchange, "name", exchange) or ""
        data = data.encode() if isinstance(data, str) else data
        return Envelope(data, content_type, content_encoding, headers, properties, name, routing_key or "", queue), rest


def _unsubscribed(task: Any, id: Any) -> None:
    """Celery waits for a result from before it publishes on; nobody else would tell it to stop."""
    consumer = getattr(task.backend, "result_consumer", None)
    with contextlib.suppress(Exception):
        consumer.cancel_for(id)  # type: ignore[union-attr]


def _call(body: Any) -> tuple[Any, Any]:
    """Arguments of protocol 2, or of protocol 1, which keeps all in the body."""
    return (body["args"], body["kwargs"]) if isinstance(body, dict) else (body[0], body[1])
