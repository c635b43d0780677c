"""The line that moves while the demo runs; where the output is no terminal, a plain line every second."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from examples.demo.record import Record

BAR = 12  # cells


class Line:
    """The live line of one run, as a context.

    Args:
        console: where it is shown.
        count: SMS in all.
        pace: SMS per second that are to be expected; None: as seen in the last second.
    """

    def __init__(self, console: Console, count: int, pace: float | None) -> None:
        self._console, self._count, self._pace = console, count, pace
        moves = console.is_terminal and not console.is_dumb_terminal
        self._live = Live(console=console, auto_refresh=False) if moves else None
        self._next = 0.0

    def show(self, record: Record) -> None:
        """Bring it up to date."""
        if self._live is not None:
            self._live.update(self._bar(record) + self._figures(record), refresh=True)
        elif time.monotonic() >= self._next or record.waiting == 0:
            self._next = time.monotonic() + 1
            self._console.print(Text(" ") + self._figures(record))

    def _bar(self, record: Record) -> Text:
        accepted, refused, waiting = glyphs(self._console)
        done = BAR * record.accepted // self._count
        lost = BAR * (record.accepted + record.refused) // self._count - done
        bar = Text(no_wrap=True, overflow="crop")
        return bar.append(accepted * done, "green").append(refused * lost, "red").append(waiting * (BAR - done - lost))

    def _figures(self, record: Record) -> Text:
        text = Text(no_wrap=True, overflow="crop")
        text.append(f" {record.accepted:3} sent")
        text.append(f"  {record.waiting:3} waiting")
        text.append(f"  {record.rate:4.1f}/s")
        text.append(f"  {record.refused:3} refused", "red" if record.refused else "")
        pace = self._pace or record.rate
        return text.append(f"  {record.waiting / pace:4.1f} s left" if pace else "     ? s left")

    def __enter__(self) -> Line:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()


def glyphs(console: Console) -> tuple[str, str, str]:
    """For an SMS accepted, refused, waiting; in ASCII where the terminal has no more."""
    return ("█", "▒", "·") if console.encoding.startswith("utf") else ("#", "x", ".")
