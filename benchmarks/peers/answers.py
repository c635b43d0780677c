"""One decision with all that Retry-After needs: every way to ask beside ours of the same kind."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.peers.contenders import ASKED, Contender, python_of
from benchmarks.rig import ROOT, Rig, progress

PASS, REFUSE = 100, 1  #: per hour and user; of all users together, more than is asked for, and less
OURS = ASKED[-1].name
COLUMNS = (
    "kind", "contender", "call", "tells", "passed / GET", "µs", "ours / this", "refused / GET", "µs", "ours / this",
)  # fmt: skip


class Way(NamedTuple):
    """A way to ask."""

    kind: str
    contender: str
    how: str
    tells: str


class Figure(NamedTuple):
    """An answer over a bare GET, and in µs."""

    over: float
    took: float


@dataclass
class Answers:
    """Per way, one figure of every repeat: for those that pass, and those that are refused."""

    passed: dict[Way, list[Figure]] = field(default_factory=lambda: defaultdict(list))
    refused: dict[Way, list[Figure]] = field(default_factory=lambda: defaultdict(list))

    def rows(self) -> list[list[str]]:
        """The table's lines, kind by kind; the contenders in their order."""
        kinds = [way.kind for way in self.passed if way.contender == OURS]
        ways = sorted(self.passed, key=lambda way: kinds.index(way.kind))
        return [[*way, *_cells(self.passed, way, 0), *_cells(self.refused, way, -1)] for way in ways]


def _cells(found: dict[Way, list[Figure]], way: Way, which: int) -> list[str]:
    """What is said of one way: over GET, µs, and how many of it that one of ours of its kind takes."""
    over, (quiet, took) = [figure.over for figure in found[way]], _quietest(found[way])
    ours = [other for other in found if other.kind == way.kind and other.contender == OURS][which]
    share = _quietest(found[ours]).over / quiet
    told = "–" if way.contender == OURS else f"{share:.2f}" if share < 0.995 else f"**{share:.2f}**"
    return [f"{quiet:.2f} ({min(over):.2f} … {max(over):.2f})", f"{took:.0f}", told]


def _quietest(figures: list[Figure]) -> Figure:
    """That of the fastest GET: on a busy machine all calls come nearer to each other, and whose turn it was is luck."""
    return min(figures, key=lambda figure: figure.took / figure.over)


def answers(rig: Rig, repeats: int, rounds: int) -> Answers:
    """Of all, in turn, so that a slow moment of the machine meets all of them."""
    found = Answers()
    pythons = [(contender, python) for contender in ASKED if (python := python_of(contender))]
    for repeat in range(repeats):
        progress(f"one decision with all that Retry-After needs, {repeat + 1} of {repeats}")
        for contender, python in pythons:
            _once(rig, found.passed, contender, [python, PASS, rounds])
            _once(rig, found.refused, contender, [python, REFUSE, rounds])
    return found


def _once(rig: Rig, found: dict[Way, list[Figure]], contender: Contender, said: Sequence[object]) -> None:
    rig.clear()
    python, *numbers = map(str, said)
    command = [python, "-m", "benchmarks.peers.produce", contender.module, "asks", *numbers]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(f"{contender.name}: its questions failed")
    for kind, how, tells, over, took in json.loads(done.stdout):
        found[Way(kind, contender.name, how, tells)].append(Figure(over, took))
