"""`@throttled` that has no effect, as no task was made of its function: workers say so when they start."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from celery import _state, signals

from throttle.spec import Spec

logger = logging.getLogger(__name__)

_idle: WeakKeyDictionary[Spec, str] = WeakKeyDictionary()


def note(spec: Spec, function: Callable[..., Any]) -> None:
    """A function was decorated; Celery may make a task of it later."""
    code = getattr(function, "__code__", None)
    at = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    _idle[spec] = f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)}{at}"


def forget(spec: Spec) -> None:
    """A task was made of it."""
    _idle.pop(spec, None)


@signals.celeryd_after_setup.connect(weak=False)
def _warn(**_: Any) -> None:
    if any(app._pending for app in _state._get_active_apps()):  # type: ignore[attr-defined]
        return  # another app makes its tasks when it is used
    for function in _idle.values():
        logger.warning(
            "@throttled on %s has no effect: it is no Celery task. Put @app.task or @shared_task above or below it; "
            "a decorator between the two must use functools.wraps",
            function,
        )
