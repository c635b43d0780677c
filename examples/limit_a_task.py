"""Limit a task for the whole fleet.

You should see twelve lines, one every half second, in order, however many workers run:

    0.0 s  sms 0
    0.5 s  sms 1
    …

Run `celery -A examples.limit_a_task worker`, twice if you like, then `python -m examples.limit_a_task`.
"""

import os
import time

from celery import Celery

from throttle import throttled

app = Celery("examples.limit_a_task", broker=os.environ.get("CELERY_BROKER_URL", "redis://localhost:6379/0"))
app.conf.update(result_backend=app.conf.broker_url, task_default_queue="examples.limit_a_task")


@throttled("2/s")
@app.task
def send_sms(number):
    return time.time()


if __name__ == "__main__":
    results = [send_sms.delay(number) for number in range(12)]
    print(f"submitted 12, waiting: {send_sms.throttle.depth()}", flush=True)
    first = results[0].get(timeout=30)
    for number, result in enumerate(results):
        print(f"{result.get(timeout=30) - first:.1f} s  sms {number}", flush=True)
