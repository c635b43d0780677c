"""The picture at the end: SMS per second, both ways side by side."""

from __future__ import annotations

from rich.columns import Columns
from rich.console import Console, Group
from rich.padding import Padding
from rich.text import Text

from examples.demo.live import glyphs
from examples.demo.record import Record

WIDTH = 39  # two panels and the space between fit into 80 columns
BAR = 22  # cells, one per SMS; longer bars are cut, their number is still told


def draw(console: Console, panels: list[tuple[str, Record]], rate: int, burst: int) -> None:
    """Print the panels (title, record) side by side, or one above the other where that is too wide."""
    accepted, refused, _ = glyphs(console)
    edge = mark(console)
    console.print()
    console.print("SMS per second, by the provider's clock", style="bold")
    legend = Text(f"{accepted} accepted   ")
    legend.append(refused, "red").append(" refused (429)   ")
    console.print(legend.append(f"{edge} its limit: {rate}/s, and {burst} more at the start"))
    console.print()
    console.print(Columns([panel(console, title, record, rate) for title, record in panels], padding=(0, 1)))
    console.print()


def panel(console: Console, title: str, record: Record, rate: int) -> Padding:
    """One way of sending: a bar per second."""
    rows = [Text(title, "bold")]
    found = record.per_second()
    rows += [row(console, second, *found[second], rate) for second in range(len(found))]
    return Padding(Group(*rows), (0, max(0, WIDTH - max(len(text) for text in rows)), 0, 0), expand=False)


def row(console: Console, second: int, accepted: int, refused: int, rate: int) -> Text:
    """One second: accepted first, then refused, a mark after `rate` cells, and the numbers."""
    good, bad, _ = glyphs(console)
    cells = [(good, "green")] * accepted + [(bad, "red")] * refused
    cells = (cells + [(" ", "")] * BAR)[:BAR]
    text = Text(f"{second:2} s ", no_wrap=True)
    for i, (glyph, style) in enumerate(cells):
        if i == rate:
            text.append(mark(console), "bold")
        text.append(glyph, style)
    text.append(f" {accepted:2}")
    if refused:
        text.append(f" + {refused}", "red")
    return text


def mark(console: Console) -> str:
    return "│" if console.encoding.startswith("utf") else "|"
