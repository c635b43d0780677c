"""Fleet-wide rate limits for Celery: tasks wait their turn, requests are told when to come back."""

from throttle.aio import AsyncLimiter
from throttle.decision import Decision
from throttle.decorator import throttled
from throttle.errors import BacklogFull, CostExceedsLimit, InvalidRate, StoreUnavailable, Throttled, ThrottleError
from throttle.limiter import Limiter
from throttle.limits import LeakyBucket, TokenBucket
from throttle.quota import Quota
from throttle.rates import Rate
from throttle.windows import FixedWindow, SlidingLog, SlidingWindow

__all__ = [
    "AsyncLimiter",
    "BacklogFull",
    "CostExceedsLimit",
    "Decision",
    "FixedWindow",
    "InvalidRate",
    "LeakyBucket",
    "Limiter",
    "Quota",
    "Rate",
    "SlidingLog",
    "SlidingWindow",
    "StoreUnavailable",
    "ThrottleError",
    "Throttled",
    "TokenBucket",
    "throttled",
]

__version__ = "0.1.0"
