"""Settings, read from `app.conf` under `throttle_…` (`CELERY_THROTTLE_…` in Django's namespace)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from throttle.address import Address, connection_of, of_broker, of_results
from throttle.errors import ThrottleError
from throttle.keys import PREFIX
from throttle.store import check_url

#: Every setting with its default.
DEFAULTS: dict[str, Any] = {
    "throttle_redis_url": None,  # URL, client or factory; None: the broker, or the result backend, if it is Redis
    "throttle_prefix": PREFIX,  # what all keys begin with
    "throttle_key_secret": "",  # keys the digest under which identities over 64 characters are stored
    "throttle_enabled": True,  # False: tasks run unthrottled; what is parked still drains
    "throttle_scheduler": True,  # False: this worker runs no scheduler
    "throttle_timeout": 5.0,  # s one Redis command may take
    "throttle_on_store_error": "park",  # "park": wait until Redis is back | "open": run unthrottled meanwhile
}
POLICIES = ("park", "open")

MISSING = (
    "throttled tasks need Redis, and neither the broker nor the result backend is one; "
    'set throttle_redis_url, as in app.conf.throttle_redis_url = "redis://localhost:6379/0"'
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one app; see `DEFAULTS`."""

    redis: Any = field(repr=False)  # may hold a password
    redis_options: Mapping[str, Any] = field(repr=False)
    prefix: str
    key_secret: str = field(repr=False)
    enabled: bool
    scheduler: bool
    timeout: float
    on_store_error: str

    @classmethod
    def of(cls, app: Any) -> Settings:
        """Read and check them.

        Raises:
            ThrottleError: a value that makes no sense, or no Redis anywhere.
        """
        for name in list(app.conf):
            if str(name).startswith("throttle_") and name not in DEFAULTS:
                near = get_close_matches(name, DEFAULTS, 1) or sorted(DEFAULTS)
                raise ThrottleError(f"there is no setting {name}; did you mean {near[0]}?")
        said = {name: app.conf.get(name, default) for name, default in DEFAULTS.items()}
        policy = said["throttle_on_store_error"]
        if policy not in POLICIES:
            raise ThrottleError(f"throttle_on_store_error is {policy!r}; say one of {', '.join(map(repr, POLICIES))}")
        redis = _redis_of(app, said["throttle_redis_url"])
        return cls(
            redis.source,
            redis.options,
            said["throttle_prefix"],
            said["throttle_key_secret"],
            bool(said["throttle_enabled"]),
            bool(said["throttle_scheduler"]),
            _seconds(said["throttle_timeout"]),
            policy,
        )


def _seconds(said: Any) -> float:
    try:
        seconds = math.nan if isinstance(said, bool) else float(said)
    except (TypeError, ValueError):
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ThrottleError(f"throttle_timeout is {said!r}; say a number of seconds, as 5.0")
    return seconds


def _redis_of(app: Any, said: Any) -> Address:
    if said:
        return Address(check_url(said) if isinstance(said, str) else said)
    for make in (app.connection_for_write, app.connection_for_read):
        found = of_broker(connection_of(make))
        if found is not None:
            return found
    found = of_results(app)
    if found is None:
        raise ThrottleError(MISSING)
    return found
