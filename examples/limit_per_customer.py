"""Limit each customer apart, and all together.

You should see acme's exports one a second although it sent five, and tiny's single one at once, not
behind them:

    acme 0   0.0 s
    tiny 0   0.1 s
    acme 1   1.0 s
    …

Run `celery -A examples.limit_per_customer worker`, then `python -m examples.limit_per_customer`.
"""

import os
import time

from celery import Celery

from throttle import LeakyBucket, TokenBucket, throttled

app = Celery("examples.limit_per_customer", broker=os.environ.get("CELERY_BROKER_URL", "redis://localhost:6379/0"))
app.conf.update(result_backend=app.conf.broker_url, task_default_queue="examples.limit_per_customer")


@throttled(LeakyBucket("1/s", key="{customer}"), TokenBucket("10/s"))
@app.task(bind=True)
def export(self, customer, number):
    return customer, number, time.time()


if __name__ == "__main__":
    results = [export.delay("acme", number) for number in range(5)] + [export.delay("tiny", 0)]
    done = sorted((result.get(timeout=30) for result in results), key=lambda row: row[2])
    for customer, number, at in done:
        print(f"{customer} {number}   {at - done[0][2]:.1f} s", flush=True)
