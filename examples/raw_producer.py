"""A producer that knows nothing of the limit: another language, another team, a bare kombu message.

You should see six lines, half a second apart: the limit is kept where the task runs. The producer's
messages need not come through `delay()`.

Run `celery -A examples.raw_producer worker`, then `python -m examples.raw_producer`.
"""

import os
import time
import uuid

from celery import Celery
from kombu import Connection

from throttle import throttled

BROKER = os.environ.get("CELERY_BROKER_URL", "redis://localhost:6379/0")
app = Celery("examples.raw_producer", broker=BROKER)
app.conf.update(result_backend=BROKER, task_default_queue="examples.raw_producer")


@throttled("2/s")
@app.task(name="send_sms")
def send_sms(number):
    return time.time()


def publish(number):
    """What a client in any language does: Celery's message protocol, version 2."""
    task_id = str(uuid.uuid4())
    with Connection(BROKER) as connection:
        connection.Producer().publish(
            [[number], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}],
            routing_key="examples.raw_producer",
            exchange="",
            serializer="json",
            headers={"lang": "go", "task": "send_sms", "id": task_id, "root_id": task_id, "parent_id": None},
            correlation_id=task_id,
        )
    return app.AsyncResult(task_id)


if __name__ == "__main__":
    results = [publish(number) for number in range(6)]
    starts = sorted(result.get(timeout=30) for result in results)
    for at in starts:
        print(f"{at - starts[0]:.1f} s", flush=True)
