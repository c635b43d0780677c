"""Rules for Flask: for the whole app, and on views, method views and blueprints.

    guard = Guard(
        Limiter("redis://localhost", scope="site"),
        Rule("300/min", key="address"),
        user=lambda asking: current_user.get_id(),      # Flask-Login's
    )
    Throttle(app, guard)

    @app.post("/login")
    @limit(("10/min", "address"), ("5/min", user_name))
    def login(): ...

    limit("100/min", key="user")(blueprint)             # all its views together
    class Reports(MethodView): decorators = [limit("10/min", key="user", methods=["POST"])]

A refusal is an HTTP exception of Werkzeug (429: `TooManyRequests`), so the app's error handlers get it, and the fields
that they leave out are added to what they answer. `BacklogFull`, `StoreUnavailable` and `Throttled` that a view raises
are answered too, unless the app has handlers of its own for them.

Limits that are to be decided together belong in one rule or one `limit(...)`: what an outer layer took is not given
back when an inner one refuses. Below `limit`, views are called as Flask calls them, `async def` included.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

try:
    import http_sf  # noqa: F401 (what throttle.http needs; this extra brings both)
    from flask import Blueprint, Flask, Response, after_this_request, current_app, request
    from flask.views import View
    from werkzeug.exceptions import HTTPException, default_exceptions
except ImportError as missing:
    raise ImportError('throttle.flask needs Flask and http-sf: pip install "celery-throttled[flask]"') from missing

from throttle.asking import Asking, Ledger
from throttle.checks import the_app, the_guard
from throttle.errors import ThrottleError
from throttle.http import Refusal
from throttle.routes import Route, tell_unserved
from throttle.rules import Guard, Limited
from throttle.views import ANSWERED, ViewLimits, answer_to
from throttle.wsgi import asking_of, waits

__all__ = ["Throttle", "limit"]

#: Where the app keeps the extension: a key of `app.extensions`.
EXTENSION = "throttle"

_CALL = "Throttle(app, guard)"

Target = TypeVar("Target", bound="Callable[..., Any] | Blueprint | type[View]")


class Throttle:
    """Limits an app.

    Args:
        app: unless said, `init_app` is to be called with one.
        guard: with a `Limiter`. Its rules apply to every request, unknown paths included; it may have none. Callables
            of rules find Flask's request as `asking.request`.

    Raises:
        ThrottleError: no guard, or one with an `AsyncLimiter`; something else than these.
    """

    def __init__(self, app: Flask | None = None, guard: Guard | None = None) -> None:
        self.guard = None if guard is None else the_guard(guard, _CALL)
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask, guard: Guard | None = None) -> None:
        """Limit this app.

        Args:
            app: not started yet. What it registered with `before_request` so far runs before the limits.
            guard: for this app alone.
        """
        chosen = guard or self.guard
        if chosen is None:
            raise ThrottleError("Throttle has no guard: say Throttle(app, Guard(Limiter(…), Rule(…)))")
        the_app(app, Flask, _CALL)
        app.extensions[EXTENSION] = waits(the_guard(chosen, _CALL))
        app.before_request(_check)
        app.after_request(_tell)
        handlers = app.error_handler_spec[None][None]
        for error in ANSWERED:
            if error not in handlers:
                app.register_error_handler(error, _answered)


def _check() -> None:
    guard = _guard(None)
    if not guard.is_told:  # with the first request: before that, routes are still added
        tell_unserved(guard, _routes, current_app.config["APPLICATION_ROOT"])
    _enforce(guard.check(_asking()).refusal)


def _routes() -> Iterator[Route]:
    return (Route(rule.rule, frozenset(rule.methods or ())) for rule in current_app.url_map.iter_rules())


def _tell(response: Response) -> Response:
    response.headers.extend(Ledger.of(request.environ).missing(response.headers.keys(), response.status_code))
    return response


def _answered(error: Exception) -> Response:
    return _response(answer_to(error, _guard(None)))


def _guard(guard: Guard | None) -> Guard:
    found = guard or current_app.extensions.get(EXTENSION)
    if not isinstance(found, Guard):
        raise ThrottleError("limit() has no guard: call throttle.flask.Throttle(app, guard), or say limit(guard=…)")
    return found


def _asking() -> Asking:
    asking = asking_of(request.environ)
    asking.request = request
    asking.route = None if request.url_rule is None else request.url_rule.rule
    return asking


def _enforce(answer: Refusal | None) -> None:
    """Raise what refuses, so that error handlers of the app see it."""
    if answer is not None:
        kind = default_exceptions.get(answer.status, HTTPException)
        raise kind(_detail(answer.body), _response(answer))


def _response(answer: Refusal) -> Response:
    return current_app.response_class(answer.body, answer.status, answer.fields)


def _detail(body: bytes) -> str | None:
    """For error handlers: the exception's `description`."""
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, LookupError, TypeError):  # the body is `on_refused`'s, and may be anything
        return None


class _Limit:
    """What `limit` returns: a decorator of views, of classes of views, and of blueprints."""

    def __init__(self, limits: ViewLimits, guard: Guard | None) -> None:
        self._limits, self._guard = limits, guard

    def __call__(self, target: Target) -> Target:
        """Limit a view or blueprint."""
        if isinstance(target, Blueprint):
            target.before_request(lambda: self._enter(f"blueprint {target.name}"))
        elif isinstance(target, type):
            target.decorators = [*target.decorators, self]  # type: ignore[attr-defined]
        else:
            return self._view(target)  # type: ignore[return-value]
        return target

    def _view(self, view: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(view)
        def limited(*args: Any, **kwargs: Any) -> Any:
            self._enter()
            return current_app.ensure_sync(view)(*args, **kwargs)

        return limited

    def _enter(self, blueprint: str | None = None) -> None:
        asking = _asking()
        methods = () if blueprint or request.url_rule is None else request.url_rule.methods or ()
        served = set(methods) - {"HEAD", "OPTIONS"}
        rule = self._limits.rule(blueprint or asking.route or "-", served)
        if EXTENSION not in current_app.extensions:  # nothing else adds the fields
            after_this_request(_tell)
        _enforce(_guard(self._guard).check(asking, rule).refusal)


def limit(
    *limits: Limited,
    key: Any = None,
    methods: str | Iterable[str] | None = None,
    cost: int | Callable[[Asking], Any] | None = None,
    name: str | None = None,
    guard: Guard | None = None,
) -> _Limit:
    """A decorator, below `@app.route`, that limits a view, each of its routes apart, or a blueprint as a whole.

    Args:
        *limits: limits, rates, callables and pairs of one of these and a key, as `Rule` takes them.
        key: whom to count apart, where a limit says none.
        methods: those that are limited; all, unless said.
        cost: units, or a callable given the `Asking`.
        name: what the limits are called. Views with one name share its limits; unless said, methods and template.
        guard: unless said, that of the app's `Throttle`.

    Raises:
        ThrottleError, TypeError: limits or a guard that make no sense; when asked, that there is no guard.
    """
    if guard is not None:
        waits(the_guard(guard, "limit(…, guard=guard)"))
    return _Limit(ViewLimits(*limits, key=key, methods=methods, cost=cost, name=name), guard)
