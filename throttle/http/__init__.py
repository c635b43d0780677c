"""What requests are told on the wire, what an upstream tells us, and who is asking.

`fields` turns a decision into HTTP fields, `refusal` into a whole answer (problem+json), `read` understands
the fields of others, `Identity` says whom to count apart. Pure functions: no Redis, no framework, no clock but
where it is said. Durations are seconds.
"""

try:
    import http_sf  # noqa: F401 (absent, it is missed when the program starts and not when it first refuses)
except ImportError as missing:
    raise ImportError(
        'throttle.http needs http-sf: pip install "celery-throttled[http]", or instead of [http] the extra of your '
        "framework, which brings it: [fastapi], [flask], [django], [drf]"
    ) from missing

from throttle.http.fields import STYLES, fields, retry_after
from throttle.http.identity import Identity, Secret, discreet, opaque, secret
from throttle.http.problem import PROBLEM, Refusal, refusal
from throttle.http.reading import Told, Upstream, read, spread

__all__ = [
    "PROBLEM",
    "STYLES",
    "Identity",
    "Refusal",
    "Secret",
    "Told",
    "Upstream",
    "discreet",
    "fields",
    "opaque",
    "read",
    "refusal",
    "retry_after",
    "secret",
    "spread",
]
