"""Rules for Django: middleware for the whole project, a decorator for views, settings with checks.

    INSTALLED_APPS = [..., "throttle.django"]                        # for the system checks
    MIDDLEWARE = [..., "throttle.django.ThrottleMiddleware", ...]    # after authentication, if users are counted apart
    THROTTLE = {
        "REDIS": "redis://localhost:6379/0",
        "RULES": [
            {"limits": "300/min", "key": "address"},
            {"limits": ["10/min", "100/day"], "key": "user", "path": "/export/", "methods": "POST"},
        ],
        "EXEMPT": ["/health/", "/static/*"],
        "IDENTITY": {"trusted_proxies": 1},
    }

    @limit("5/min", key="address", methods="POST")
    def login(request): ...

Views may be `def` and `async def`, functions and classes, Django's, REST framework's (see `throttle.drf`) and Ninja's;
under ASGI nothing blocks the loop.
"""

try:
    import django  # noqa: F401 (absent, the message says what to install)
    import http_sf  # noqa: F401 (what throttle.http needs; this extra brings both)
except ImportError as missing:
    raise ImportError('throttle.django needs Django and http-sf: pip install "celery-throttled[django]"') from missing

from throttle.django.decorators import limit
from throttle.django.middleware import ThrottleMiddleware
from throttle.django.requests import asking_of
from throttle.django.settings import guard

__all__ = ["ThrottleMiddleware", "asking_of", "guard", "limit"]
