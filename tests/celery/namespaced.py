"""An app configured as in Django: upper-case settings under one prefix."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace

import redis
from celery import Celery

from throttle import throttled

settings = SimpleNamespace(
    CELERY_BROKER_URL=os.environ["PROJECT_BROKER"],
    CELERY_RESULT_BACKEND=os.environ["PROJECT_RESULTS"],
    CELERY_THROTTLE_REDIS_URL=os.environ["PROJECT_REDIS"],
    CELERY_THROTTLE_PREFIX="shop",
    CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP=True,
)
app = Celery("namespaced")
app.config_from_object(settings, namespace="CELERY")
record = redis.Redis.from_url(os.environ["PROJECT_RECORD"])


@throttled("20/s")
@app.task(shared=False, bind=True, name="paced")
def paced(self, n):
    record.rpush("starts", f"{time.time():.6f} paced {n} {self.request.id} {os.getpid()} 0")
