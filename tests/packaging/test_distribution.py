"""What ships: the wheel, the sdist and what is built of it, each installed and used where no checkout is near."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from tests.fleet import ROOT
from tests.services import RedisServer

USE = """
import sys
from throttle import Limiter, TokenBucket, throttled
from throttle.scripts import script
import throttle
assert "site-packages" in throttle.__file__ or ".whl" in throttle.__file__, throttle.__file__
limiter = Limiter(sys.argv[1], scope="packaging")
limit = TokenBucket("1/min")
limiter.reset(limit)
assert limiter.acquire(limit)
assert not limiter.acquire(limit)
assert script("submit").text
print("used")
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel, the sdist, and the wheel made of the sdist."""
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", out, ROOT], check=True, capture_output=True)
    (sdist,) = out.glob("*.tar.gz")
    (wheel,) = out.glob("*.whl")
    again = tmp_path_factory.mktemp("again")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", again, sdist],
        check=True, capture_output=True,
    )  # fmt: skip
    return {"wheel": wheel, "sdist": sdist, "sdist->wheel": next(again.glob("*.whl"))}


@pytest.mark.parametrize("kind", ["wheel", "sdist->wheel"])
def test_a_wheel_holds_the_package_and_its_scripts_and_nothing_else(built: dict[str, Path], kind: str) -> None:
    names = zipfile.ZipFile(built[kind]).namelist()
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"throttle"}
    assert "throttle/py.typed" in names
    lua = {path.relative_to(ROOT / "lua").as_posix() for path in (ROOT / "lua").rglob("*.lua")}
    assert lua == {name.removeprefix("throttle/lua/") for name in names if name.endswith(".lua")}
    assert len([name for name in names if name.endswith(".py")]) == len(list((ROOT / "throttle").rglob("*.py")))


def test_what_an_index_shows(built: dict[str, Path]) -> None:
    """Its page is the README, where relative links lead nowhere; unknown classifiers fail the build."""
    wheel = zipfile.ZipFile(built["wheel"])
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    shown = message_from_bytes(wheel.read(name))
    assert re.findall(r"\]\((?!https?://|#)|<(?:a|img) ", str(shown.get_payload())) == []
    assert shown["Requires-Python"] == ">=3.10"
    assert shown["License-Expression"] == "BSD-3-Clause"
    classifiers = shown.get_all("Classifier") or []
    assert {"Typing :: Typed", "Framework :: Celery", "Programming Language :: Python :: 3.10"} <= set(classifiers)
    assert shown.get_all("Project-URL") is None, "none is known"
    assert shown["Summary"]
    assert shown["Description-Content-Type"] == "text/markdown"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wheel", "sdist->wheel"])
def test_an_installed_wheel_works(built: dict[str, Path], kind: str, tmp_path: Path, server: RedisServer) -> None:
    """In an environment of its own, with the dependencies that this one has."""
    venv.create(tmp_path / "env", with_pip=False)
    site = next((tmp_path / "env").glob("lib/python*/site-packages"))
    zipfile.ZipFile(built[kind]).extractall(site)
    (site / "outer.pth").write_text(f"{next(path for path in sys.path if path.endswith('site-packages'))}\n")
    used = subprocess.run(
        [tmp_path / "env/bin/python", "-c", USE, server.url()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert used.stdout == "used\n", used.stderr


def test_a_zipped_package_works(built: dict[str, Path], tmp_path: Path, server: RedisServer) -> None:
    used = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(built['wheel'])!r})\n{USE}", server.url()],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert used.stdout == "used\n", used.stderr
