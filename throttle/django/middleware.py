"""The middleware."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction

from throttle.django.requests import acheck, asking_of, check, response_of, tell
from throttle.django.routes import tell as tell_unserved
from throttle.django.settings import guard
from throttle.views import ANSWERED, answer_to


class ThrottleMiddleware:
    """Asks the rules of the setting THROTTLE about every request, unknown paths included, and tells what is left.

    What views raise of `BacklogFull`, `StoreUnavailable` and `Throttled` is answered.

    Args:
        get_response: what comes next, sync or async.

    Raises:
        ImproperlyConfigured: THROTTLE makes no sense; when the server starts.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self.get_response = get_response
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)
        guard()  # errors now, and not with the first request

    def __call__(self, request: Any) -> Any:
        """Serve one request."""
        if self._is_async:
            return self._aserve(request)
        tell_unserved()
        try:
            refusal = check(guard(), asking_of(request)).refusal
        except ANSWERED as error:  # of a callable of the rules
            refusal = answer_to(error, guard())
        return tell(request, self.get_response(request) if refusal is None else response_of(request, refusal))

    async def _aserve(self, request: Any) -> Any:
        tell_unserved()
        try:
            refusal = (await acheck(guard(is_async=True), asking_of(request))).refusal
        except ANSWERED as error:
            refusal = answer_to(error, guard())
        return tell(request, await self.get_response(request) if refusal is None else response_of(request, refusal))

    def process_exception(self, request: Any, exception: BaseException) -> Any:
        """Answer what a view raised, if it is ours."""
        if isinstance(exception, ANSWERED):
            return response_of(request, answer_to(exception, guard()))
        return None
