"""A smoother as a process: `python -m workers.smoother redis://localhost:6379/0 orders orders.paced 10/s`.

Takes messages from one queue and lets them out to another at the rate, untouched, whatever publishes or
consumes them. With RabbitMQ as the broker, say where Redis is: `--redis redis://localhost:6379/0`.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys

from throttle import ThrottleError, TokenBucket
from throttle.smoother import Smoother


def main() -> None:
    """Run until SIGTERM or Ctrl-C; what waits stays in Redis."""
    parser = argparse.ArgumentParser(prog="python -m workers.smoother", description=__doc__.split("\n")[0])
    parser.add_argument("broker", help="URL of the broker")
    parser.add_argument("source", help="queue to take from")
    parser.add_argument("target", help="queue to let out to")
    parser.add_argument("rate", nargs="+", help='one rate or several, all kept: "10/s" "1000 per hour"')
    parser.add_argument("--burst", type=int, default=1, help="messages that may pass back to back (default: 1)")
    parser.add_argument("--redis", help="URL of the Redis that holds what waits (default: the broker, if it is Redis)")
    parser.add_argument("-l", "--loglevel", default="INFO", help="DEBUG, INFO, WARNING, ERROR (default: INFO)")
    options = parser.parse_args()
    logging.basicConfig(level=options.loglevel.upper(), format="[%(asctime)s: %(levelname)s] %(message)s")
    try:
        limits = [TokenBucket(rate, options.burst) for rate in options.rate]
        smoother = Smoother(options.broker, options.source, options.target, *limits, redis=options.redis)
    except ThrottleError as exc:
        sys.exit(f"{parser.prog}: {exc}")
    for how in (signal.SIGTERM, signal.SIGINT):
        signal.signal(how, lambda *_: smoother.stop())
    smoother.run(
        ready=lambda: logging.info(
            "smoothing %s to %s at %s", options.source, options.target, " and ".join(map(str, limits))
        )
    )


if __name__ == "__main__":
    main()
