"""Several tasks, one limit: what they do together is what the vendor counts.

You should see texts and pictures take turns at four a second together, not four a second each:

    0.00 s  text 0
    0.25 s  picture 0
    0.50 s  text 1
    …

Run `celery -A examples.share_a_limit worker`, then `python -m examples.share_a_limit`.
"""

import os
import time

from celery import Celery

from throttle import throttled

app = Celery("examples.share_a_limit", broker=os.environ.get("CELERY_BROKER_URL", "redis://localhost:6379/0"))
app.conf.update(result_backend=app.conf.broker_url, task_default_queue="examples.share_a_limit")
vendor = throttled("4/s", scope="vendor")


@vendor
@app.task
def send_text(number):
    return time.time(), f"text {number}"


@vendor
@app.task
def send_picture(number):
    return time.time(), f"picture {number}"


if __name__ == "__main__":
    results = [task.delay(number) for number in range(5) for task in (send_text, send_picture)]
    done = sorted(result.get(timeout=30) for result in results)
    for at, what in done:
        print(f"{at - done[0][0]:.2f} s  {what}", flush=True)
