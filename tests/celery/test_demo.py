"""The demo, run as a user runs it: what it says, how it ends, and that nothing stays behind."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

pytest.importorskip("rich")
from rich.console import Console

from examples.demo import picture
from examples.demo.processes import ROOT
from examples.demo.record import Arrival, Record

MARK = "THROTTLE_DEMO_TEST"


class Demo:
    """One run of the demo.

    Args:
        folder: where it puts its logs.
        terminal: whether its output is one.
        env: more environment.
    """

    def __init__(self, folder: Path, *args: str, terminal: bool = False, **env: str) -> None:
        self.mark, self.folder = uuid4().hex, folder
        environ = {**os.environ, "TMPDIR": str(folder), MARK: self.mark, "PYTHONUNBUFFERED": "1", **env}
        self.screen, other = pty.openpty() if terminal else os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "examples.demo", *args],
            cwd=ROOT, env=environ, stdin=other if terminal else subprocess.DEVNULL, stdout=other,
            stderr=subprocess.PIPE, start_new_session=True, preexec_fn=_own_terminal if terminal else None,
        )  # fmt: skip
        os.close(other)
        self.said = ""

    def until(self, pattern: str) -> None:
        """Read its output until the pattern comes."""
        while not re.search(pattern, self.said):
            assert self._read(), f"{pattern!r} did not come; it said:\n{self.said}"

    def end(self) -> tuple[int, str]:
        """Wait for its end; returns exit code and standard error."""
        while self._read():
            pass
        assert self.process.stderr is not None
        errors = self.process.stderr.read().decode()
        return self.process.wait(30), errors

    def _read(self) -> bool:
        try:
            data = os.read(self.screen, 65536)
        except OSError:  # a terminal whose other side is closed
            return False
        self.said += data.decode()
        return bool(data)

    def family(self) -> list[psutil.Process]:
        """All that run with this demo's environment, whoever their parent is by now."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def grown(self, count: int) -> None:
        """Wait until it has so many processes: itself, Redis, provider, two workers, …"""
        end = time.monotonic() + 30
        while len(self.family()) < count:
            assert time.monotonic() < end, self.family()
            time.sleep(0.02)

    def left_behind(self) -> list[str]:
        """Commands of processes that outlive it; a killed one has a moment to vanish."""
        end = time.monotonic() + 2
        while self.family() and time.monotonic() < end:
            time.sleep(0.02)
        return [" ".join(process.cmdline()) for process in self.family()]

    def clear(self) -> None:
        for process in self.family():
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.process.wait()


def _own_terminal() -> None:
    """Make standard input the controlling terminal, so that Ctrl-C typed there becomes a signal."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def demos() -> Iterator[list[Demo]]:
    started: list[Demo] = []
    yield started
    for demo in started:
        demo.clear()


@pytest.mark.slow
def test_the_demo_on_embedded_redis(demos: list[Demo], tmp_path: Path) -> None:
    # A broker of the user's own is not touched: this one would refuse the connection.
    env = {"THROTTLE_EMBEDDED_REDIS": "1", "CELERY_BROKER_URL": "redis://127.0.0.1:1/0", "FORCE_COLOR": "1"}
    began = time.monotonic()
    demo = Demo(tmp_path, **env)
    demos.append(demo)
    code, errors = demo.end()

    assert (code, errors) == (0, ""), demo.said + errors
    assert time.monotonic() - began < 60
    assert "embedded" in demo.said
    *_, throttled, plain = demo.said.splitlines()
    rate = re.fullmatch(r"throttled: sent=100 refused=0 lost=0 duplicated=0 rate=(\d+\.\d)/s", throttled)
    assert rate
    assert 9.0 <= float(rate[1]) <= 10.1
    figures = re.fullmatch(r"rate_limit: sent=(\d+) refused=(\d+)", plain)
    assert figures
    sent, refused = map(int, figures.groups())
    assert sent + refused <= 100
    assert refused > 0
    assert demo.left_behind() == []
    assert list(tmp_path.iterdir()) == [], "its temporary folder is still there"

    assert re.search(r"[\x00-\x09\x0b-\x1f]", demo.said) is None, "control codes, and it is no terminal"
    assert len(re.findall(r"(?m)^ +\d+ sent +\d+ waiting +\d+\.\d/s +\d+ refused +[\d.?]+ s left$", demo.said)) >= 10
    assert all(len(line) <= 80 for line in demo.said.splitlines())


@pytest.mark.parametrize(
    ("moment", "signum", "code"),
    [
        (r"burst=5\)\n", signal.SIGINT, 130),  # the workers are starting
        (r"[1-9]\d sent", signal.SIGINT, 130),
        (r"[1-9]\d sent", signal.SIGTERM, 143),
    ],
    ids=["at-start", "mid-run", "terminated"],
)
def test_a_signal_ends_all(demos: list[Demo], tmp_path: Path, moment: str, signum: int, code: int) -> None:
    demo = Demo(tmp_path)
    demos.append(demo)
    demo.until(moment)
    demo.grown(5)
    demo.process.send_signal(signum)
    demo.process.send_signal(signum)  # the impatient press twice
    found, errors = demo.end()

    assert found == code, demo.said + errors
    assert "Traceback" not in demo.said + errors
    assert demo.left_behind() == []
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_in_a_terminal_gives_it_back_as_it_was(demos: list[Demo], tmp_path: Path) -> None:
    demo = Demo(tmp_path, terminal=True, TERM="xterm-256color")
    demos.append(demo)
    demo.until(r"[1-9]\d sent")
    assert "\x1b[?25l" in demo.said, "a live line hides the cursor"
    os.write(demo.screen, b"\x03")
    code, errors = demo.end()

    assert code == 130, demo.said + errors
    assert "Traceback" not in demo.said + errors
    assert demo.said.rindex("\x1b[?25h") > demo.said.rindex("\x1b[?25l"), "the cursor is hidden"
    assert demo.left_behind() == []


def test_a_worker_that_cannot_start_says_why(demos: list[Demo], tmp_path: Path) -> None:
    broken = tmp_path / "site"
    broken.mkdir()
    (broken / "billiard.py").write_text("raise ImportError('billiard is broken on this machine')\n")
    demo = Demo(tmp_path, PYTHONPATH=str(broken))
    demos.append(demo)
    code, errors = demo.end()

    assert code == 1
    assert "worker 1 could not start" in errors
    assert "billiard is broken on this machine" in errors
    logs = re.search(r"(?m)^logs: (.+)$", errors)
    assert logs
    assert (Path(logs[1]) / "app-worker-1.log").exists()
    assert demo.left_behind() == []


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_help(encoding: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo", "--help"], cwd=ROOT, capture_output=True, encoding=encoding, timeout=30,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )  # fmt: skip
    assert done.returncode == 0
    assert "10 a second" in done.stdout
    assert "--count" in done.stdout


@pytest.mark.parametrize(("width", "encoding"), [(80, "utf-8"), (40, "utf-8"), (80, "ascii")])
def test_the_picture(tmp_path: Path, width: int, encoding: str) -> None:
    expected = tuple(f"n{n}" for n in range(100))
    even = Record(expected, tuple(Arrival(n, max(0, i - 4) / 10, True, 0.0) for i, n in enumerate(expected)), 9.5)
    double = Record(expected, tuple(Arrival(n, i / 20, i % 2 == 0, 0.0) for i, n in enumerate(expected)), 5.0)
    with (tmp_path / "picture").open("w", encoding=encoding) as file:
        console = Console(file=file, width=width)
        picture.draw(console, [('@throttled("10/s", burst=5)', even), ("plain", double)], rate=10, burst=5)
    drawn = (tmp_path / "picture").read_text(encoding)

    full, edge = ("█", "│") if encoding == "utf-8" else ("#", "|")
    assert f" 0 s {full * 10}{edge}{full * 4}         14" in drawn
    assert drawn.count(f" s {full * 10}{edge}             10") == 8
    assert f" 9 s {full * 6}    {edge}              6" in drawn
    assert re.search(r" 10 \+ 10", drawn)
    assert max(map(len, drawn.splitlines())) <= width
    assert (even.steady_rate(5), even.duplicated, even.waiting) == (10.0, 0, 0)
