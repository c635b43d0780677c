"""Submits the SMS, all at once, as a web application would: `python -m examples.demo.producer APP COUNT`."""

from __future__ import annotations

import importlib
import sys


def numbers(count: int) -> list[str]:
    """Telephone numbers, each its own, so that a lost or doubled SMS shows."""
    return [f"+49 30 {n:06}" for n in range(count)]


def main(app: str, count: str) -> None:
    send_sms = importlib.import_module(app).send_sms
    for number in numbers(int(count)):
        send_sms.delay(number, "Your parcel is on its way.")


if __name__ == "__main__":
    main(*sys.argv[1:])
