"""Rules for any WSGI app: around Flask, Django, Pyramid, Bottle, or none of them.

    app = ThrottleMiddleware(app, guard)

Bodies pass as they are: fields are added to what the app says to `start_response`, and nothing is buffered. Routes
are not known out here, so `key="route"` counts by the templates of the guard's rules; frameworks' modules know more.

What the app raises of `BacklogFull`, `StoreUnavailable` and `Throttled`, before its answer begins, is answered.

A server that takes the header `X_Forwarded_For` for `X-Forwarded-For` (wsgiref does) needs a proxy before it that
drops such names, as nginx does, before forwarded addresses are trusted.

Source: PEP 3333.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from throttle.asking import Asking, Ledger
from throttle.checks import callable_with, the_app, the_guard
from throttle.errors import ThrottleError
from throttle.http import Refusal
from throttle.rules import Guard
from throttle.views import ANSWERED, answer_to

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

__all__ = ["ThrottleMiddleware", "asking_of", "headers_of", "refuse", "waits"]


class ThrottleMiddleware:
    """Refuses what a guard refuses, and tells the rest what is left.

    Args:
        app: any WSGI app.
        guard: with a `Limiter`.
        request: makes of an environ what callables of rules find as `asking.request`; the environ itself unless said.

    Raises:
        ThrottleError: a guard with an `AsyncLimiter`, or something else than these.
    """

    def __init__(
        self, app: WSGIApplication, guard: Guard, request: Callable[[WSGIEnvironment], Any] | None = None
    ) -> None:
        call = "ThrottleMiddleware(app, guard)"
        self.app, self.guard, self._request = the_app(app, None, call), waits(the_guard(guard, call)), request
        if request is not None:
            callable_with("request", request, "environ")

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request."""
        asking = asking_of(environ)
        if self._request is not None:
            asking.request = self._request(environ)
        answer = _Answer(asking.ledger, start_response)
        try:
            refusal = self.guard.check(asking).refusal
            if refusal is not None:
                return refuse(environ, answer.start, refusal)
            body = self.app(environ, answer.start)
        except ANSWERED as error:
            return self._answered(error, environ, answer)
        # An app that is a generator begins when its body is asked for.
        return body if answer.begun else _Body(body, lambda error: self._answered(error, environ, answer))

    def _answered(self, error: BaseException, environ: WSGIEnvironment, answer: _Answer) -> Iterable[bytes]:
        return refuse(environ, answer.start, answer_to(error, self.guard), sys.exc_info())


class _Answer:
    """Passes an answer on, with the fields that it misses."""

    __slots__ = ("_ledger", "_start", "begun")

    def __init__(self, ledger: Ledger, start: StartResponse) -> None:
        self._ledger, self._start, self.begun = ledger, start, False

    def start(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None, /) -> Any:
        self.begun = True
        if self._ledger.fields:
            missing = self._ledger.missing((name for name, _ in headers), int(status[:3]))
            headers = [*headers, *missing.items()]
        # Some servers take two arguments only, unless there is an error.
        return self._start(status, headers) if exc_info is None else self._start(status, headers, exc_info)


class _Body:
    """A body whose first part may yet turn out to be a refusal."""

    def __init__(self, body: Iterable[bytes], answered: Callable[[BaseException], Iterable[bytes]]) -> None:
        self._body, self._answered = body, answered

    def __iter__(self) -> Iterator[bytes]:
        parts = iter(self._body)
        try:
            first = next(parts)
        except StopIteration:
            return
        except ANSWERED as error:
            yield from self._answered(error)
            return
        yield first
        yield from parts

    def close(self) -> None:
        """Servers call it at the end, whatever happened."""
        close = getattr(self._body, "close", None)
        if close is not None:
            close()


def waits(guard: Guard) -> Guard:
    """A guard that can be asked where nothing is awaited.

    Raises:
        ThrottleError: it cannot.
    """
    if inspect.iscoroutinefunction(getattr(guard.limiter, "acquire", None)):
        raise ThrottleError("this guard must be awaited, and nothing is here: give it a Limiter, not an AsyncLimiter")
    return guard


def asking_of(environ: WSGIEnvironment) -> Asking:
    """A WSGI request as limits see it; the request's ledger is kept in the environ."""
    root = _decoded(environ.get("SCRIPT_NAME") or "").rstrip("/")
    return Asking(
        method=environ["REQUEST_METHOD"],
        path=root + (_decoded(environ.get("PATH_INFO") or "") or "/"),
        peer=environ.get("REMOTE_ADDR") or None,
        headers=headers_of(environ),
        root=root,
        request=environ,
        ledger=Ledger.of(environ),
    )


def headers_of(environ: WSGIEnvironment) -> dict[str, str]:
    """The header fields of a request, several lines of one as the server joined them."""
    headers = {name[5:].replace("_", "-"): value for name, value in environ.items() if name.startswith("HTTP_")}
    for name in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        if environ.get(name):
            headers[name.replace("_", "-")] = environ[name]
    return headers


def _decoded(text: str) -> str:
    """What an environ holds is bytes, written as ISO-8859-1."""
    return text.encode("latin-1", "replace").decode("utf-8", "replace")


def refuse(
    environ: WSGIEnvironment, start_response: StartResponse, answer: Refusal, exc_info: Any = None
) -> list[bytes]:
    """Answer with a refusal.

    Args:
        environ: of the request.
        start_response: the server's.
        answer: what to say.
        exc_info: where the app had begun to answer: the server raises it again if it is too late.
    """
    headers = [*answer.fields.items(), ("Content-Length", str(len(answer.body)))]
    status = f"{answer.status} {_phrase(answer.status)}"
    if exc_info is None:
        start_response(status, headers)
    else:
        start_response(status, headers, exc_info)
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [answer.body]


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:  # a status of the user's own
        return "Refused"
