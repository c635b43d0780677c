"""Smooth a queue for a consumer that is not Celery.

You should see ten orders leave `orders.paced` a tenth of a second apart, in order, although they entered
`orders` all at once:

    0.0 s  order 0
    0.1 s  order 1
    …

Run `python -m examples.smooth_a_queue`. In production the smoother is a process of its own:
`python -m workers.smoother redis://localhost:6379/0 orders orders.paced 10/s`
"""

import os
import threading
import time

from kombu import Connection

from throttle import TokenBucket
from throttle.smoother import Smoother

BROKER = os.environ.get("CELERY_BROKER_URL", "redis://localhost:6379/0")

if __name__ == "__main__":
    smoother = Smoother(BROKER, "orders", "orders.paced", TokenBucket("10/s"), redis=os.environ.get("THROTTLE_REDIS"))
    ready = threading.Event()
    thread = threading.Thread(target=smoother.run, args=(ready.set,))
    thread.start()
    ready.wait()
    try:
        with Connection(BROKER) as connection:
            orders, paced = connection.SimpleQueue("orders"), connection.SimpleQueue("orders.paced")
            for number in range(10):
                orders.put({"order": number})
            first = None
            for _ in range(10):
                message = paced.get(timeout=10)
                first = first or time.time()
                print(f"{time.time() - first:.1f} s  order {message.payload['order']}", flush=True)
                message.ack()
    finally:
        smoother.stop()
        thread.join()
