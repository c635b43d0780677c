"""What runs inside every worker: declares the limits, renews leases, and runs a scheduler."""

from __future__ import annotations

import logging
from typing import Any

from celery import bootsteps, signals
from celery.worker import state
from redis.exceptions import RedisError

from throttle.deployment import Deployment, _deployments, deployment
from throttle.errors import StoreUnavailable
from throttle.publisher import CeleryPublisher
from throttle.scheduler import Scheduler
from throttle.ticket import HEADER, Ticket

logger = logging.getLogger(__name__)

RENEW = 10.0  #: s between renewals of the leases of tasks that wait for the pool (a lease lasts 30)


class ThrottleStep(bootsteps.StartStopStep):
    """Celery consumer bootstep; added to an app by its first throttled task."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        specs = [getattr(task, "__throttle__", None) for task in consumer.app.tasks.values()]
        self.enabled = any(spec is not None and spec.active for spec in specs)
        if self.enabled:
            self._place = deployment(consumer.app)  # raises here, at start-up, when no Redis is configured
        self._scheduler: Scheduler | None = None
        self._timer: Any = None

    def start(self, consumer: Any) -> None:
        """The worker is connected."""
        place = self._place
        try:
            for backlog in place.backlogs():
                backlog.declare(replace=True)
                logger.info(
                    "scope %s: limited to %s, fleet-wide", backlog.scope, " and ".join(map(str, backlog.limits))
                )
            place.clock.sample()
        except StoreUnavailable as exc:
            place.complain("worker: Redis was not told the limits, the scheduler does it later: %s", exc)
        self._timer = consumer.timer.call_repeatedly(RENEW, self._renew)
        if place.settings.scheduler:
            self._scheduler = scheduler_of(place)
            self._scheduler.start()

    def stop(self, consumer: Any) -> None:
        """The worker shuts down, or has lost its broker."""
        if self._timer is not None:
            consumer.timer.cancel(self._timer)
        if self._scheduler is not None:
            self._scheduler.stop()
        self._timer = self._scheduler = None

    shutdown = stop

    def _renew(self) -> None:
        try:
            for scope, held in _held().items():
                self._place.tagged(scope).confirm(held)
        except (StoreUnavailable, RedisError) as exc:
            self._place.complain(
                "worker: tasks that wait for the pool may be released again until Redis serves: %s", exc
            )


def _held() -> dict[str, list[tuple[str, str]]]:
    """Per scope, (id, ticket) of throttled requests that wait for the pool."""
    held: dict[str, list[tuple[str, str]]] = {}
    for request in tuple(state.reserved_requests):
        ticket = Ticket.parse(request.request_dict.get(HEADER))
        if ticket and request.time_start is None:
            held.setdefault(ticket.scope, []).append((ticket.id, ticket.number))
    return held


def scheduler_of(place: Deployment) -> Scheduler:
    """A scheduler that publishes with the app's broker connection."""
    return Scheduler(
        place.store, CeleryPublisher(place.app), place.backlogs, serves=lambda scope: not scope.startswith("queue:")
    )


@signals.worker_process_init.connect(weak=False)
def _warm(**_: Any) -> None:
    """A new pool process connects before its first task: a cold start would come up to 60 ms late."""
    for place in list(_deployments.values()):
        try:
            place.store.single = True  # this signal is for prefork alone, whose processes have one thread
            place.store.client.ping()
        except RedisError as exc:
            logger.debug("warming up: %s", exc)
