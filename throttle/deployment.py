"""All that one Celery app throttles: its store, its backlogs, its tasks. Made when first needed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from weakref import WeakKeyDictionary

from celery.utils.time import maybe_iso8601

from throttle.backlog import Backlog
from throttle.calm import Calm
from throttle.clock import Clock
from throttle.entry import Entry
from throttle.envelope import Envelope
from throttle.errors import ThrottleError
from throttle.keys import Namer
from throttle.settings import Settings
from throttle.spec import Spec
from throttle.store import Store

logger = logging.getLogger(__name__)


class Deployment:
    """One app's throttling.

    Args:
        app: the Celery app.
    """

    def __init__(self, app: Any) -> None:
        self.app = app
        self.settings = Settings.of(app)
        said = self.settings
        self.store = Store(
            said.redis, Namer(said.prefix, said.key_secret), timeout=said.timeout, options=said.redis_options
        )
        self.clock = Clock(self.store)
        self._backlogs: dict[str, Backlog] = {}
        self._calm: dict[str, Calm] = {}
        self._lock = threading.Lock()
        self._complained = 0.0
        # RabbitMQ: 9 goes first; Redis: 0 does
        self.highest_first = str(app.conf.broker_write_url).partition(":")[0] in ("amqp", "amqps", "pyamqp")

    def backlog(self, spec: Spec, task_name: str) -> Backlog:
        """The backlog of a task's scope.

        Raises:
            ThrottleError: another task of this scope has other limits.
        """
        scope = spec.scope or task_name
        found = self._backlogs.get(scope)
        if found is None:
            with self._lock:
                found = self._backlogs.setdefault(scope, Backlog(self.store, scope, spec.limits))
        if _policies(found.limits) != _policies(spec.limits):
            raise ThrottleError(
                f"task {task_name} limits scope {scope!r} by {_said(spec.limits)}, another task by "
                f"{_said(found.limits)}; tasks that share a scope need the same limits"
            )
        return found

    def backlogs(self) -> list[Backlog]:
        """The backlogs of all throttled tasks the app knows."""
        for task in list(self.app.tasks.values()):
            spec = getattr(task, "__throttle__", None)
            if spec is not None and spec.active:
                self.backlog(spec, task.name)
        return list(self._backlogs.values())

    def entry(
        self, call: tuple[str, tuple[str, ...], tuple[int, ...]], about: Mapping[str, Any], envelope: Envelope,
        id: str = "", bounds: tuple[int, int] = (0, 0),
    ) -> Entry:  # fmt: skip
        """What the scripts need to know of one task, once its spec has resolved its arguments."""
        rank = self.rank(envelope.properties.get("priority"))
        expires, eta = self.micros(about.get("expires")), self.micros(about.get("eta"))
        return Entry(id or about["id"], *call, envelope.dump(), rank, expires, eta, bounds)

    def rank(self, priority: object) -> int:
        """Celery's priority as a rank: 0 goes first."""
        rank = min(9, max(0, priority)) if isinstance(priority, int) else 0
        return 9 - rank if self.highest_first else rank

    def tagged(self, tag: str) -> Backlog:
        """The backlog of a scope by its name in Redis, which a ticket carries."""
        known = (backlog for backlog in tuple(self._backlogs.values()) if backlog.tag == tag)
        return next(known, None) or Backlog.tagged(self.store, tag)  # which can ring no bell: it lacks the scope's name

    def calm(self, backlog: Backlog) -> Calm:
        """What this process knows of the backlog's calm lanes."""
        return self._calm.get(backlog.scope) or self._calm.setdefault(backlog.scope, Calm(backlog))

    def micros(self, moment: Any) -> int:
        """A header's time in µs since the epoch; 0 for none, and for what Celery itself will refuse."""
        if not moment:
            return 0
        try:
            at: Any = moment if isinstance(moment, datetime) else maybe_iso8601(moment)
            return int((at if at.tzinfo else at.replace(tzinfo=self.app.timezone)).timestamp() * 1e6)
        except (ValueError, TypeError, AttributeError, OverflowError):
            return 0

    def complain(self, text: str, *args: object) -> None:
        """Warn about the store, once a minute at most."""
        now = time.monotonic()
        if now - self._complained >= 60 or not self._complained:
            self._complained = now
            logger.warning(text + " (repeats are not logged for a minute)", *args)


_deployments: WeakKeyDictionary[Any, Deployment] = WeakKeyDictionary()
_making = threading.RLock()


def deployment(app: Any) -> Deployment:
    """The deployment of an app.

    Raises:
        ThrottleError: no Redis is configured, or a setting makes no sense.
    """
    app = app._get_current_object() if hasattr(app, "_get_current_object") else app
    found = _deployments.get(app)
    if found is None:
        with _making:
            found = _deployments.get(app) or _deployments.setdefault(app, Deployment(app))
    return found


def _policies(limits: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [(*limit.terms, limit.key is None) for limit in limits]


def _said(limits: Sequence[Any]) -> str:
    return " and ".join(str(limit) for limit in limits)
