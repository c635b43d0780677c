"""The scheduler as a process of its own: `python -m workers.scheduler -A proj`.

Every worker has one inside; run this where no worker may (workers that are stopped at night, say), and
set `throttle_scheduler = False` in the workers that shall have none. Any number may run; one leads.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys

from celery.app.utils import find_app

from throttle import ThrottleError
from throttle.bootstep import scheduler_of
from throttle.deployment import deployment


def main() -> None:
    """Run until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m workers.scheduler", description=__doc__.split("\n")[0])
    parser.add_argument("-A", "--app", required=True, help="the Celery app, as for `celery -A`")
    parser.add_argument("-l", "--loglevel", default="INFO", help="DEBUG, INFO, WARNING, ERROR (default: INFO)")
    options = parser.parse_args()
    logging.basicConfig(level=options.loglevel.upper(), format="[%(asctime)s: %(levelname)s] %(message)s")
    app = find_app(options.app)
    app.loader.import_default_modules()
    app.finalize()
    try:
        scheduler = scheduler_of(deployment(app))
    except ThrottleError as exc:
        sys.exit(f"{parser.prog}: {exc}")
    for how in (signal.SIGTERM, signal.SIGINT):
        signal.signal(how, lambda *_: scheduler.stop(0))
    scheduler.run()


if __name__ == "__main__":
    main()
