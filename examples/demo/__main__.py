"""`make demo`: 100 SMS at once to a provider that takes 10 a second, with this library and with Celery's rate_limit.

You should see one SMS every tenth of a second and none refused; then, with rate_limit, about 20 a second (10 from
each worker) and 30 to 50 of them refused. It takes 30 to 45 s and ends with

    throttled: sent=100 refused=0 lost=0 duplicated=0 rate=10.0/s
    rate_limit: sent=… refused=…

Read on in app.py (the use of the library), plain.py (the same without), run.py (what is done), provider.py.
"""

from __future__ import annotations

import argparse
import sys

from examples.demo import interrupt


def main() -> int:
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal without UTF-8
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100, metavar="N", help="how many SMS (default: %(default)s)")
    parser.add_argument("--keep-logs", action="store_true", help="keep the logs of workers, Redis and provider")
    options = parser.parse_args()
    if options.count < 1:
        parser.error("--count must be at least 1")
    interrupt.watch()  # before the imports that take a while
    try:
        from examples.demo import story
    except ImportError as exc:
        print(f"{exc}; the demo needs: pip install -e '.[demo]'", file=sys.stderr)
        return 2
    return story.tell(options.count, options.keep_logs)


if __name__ == "__main__":
    sys.exit(main())
