"""The contenders, and the virtual environment of each: made once, under benchmarks/.venvs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

HOME = Path(__file__).parent.parent / ".venvs"


@dataclass(frozen=True)
class Contender:
    """One way to keep a fleet to a rate.

    Attributes:
        name: as the table says it.
        module: under `benchmarks.peers.apps`.
        packages: what pip installs beside Celery; None: the project's own environment.
        python: the least version it runs on.
        tenants, decides, dispatches: what there is of it.
    """

    name: str
    module: str
    packages: tuple[str, ...] | None = ()
    python: tuple[int, int] = (3, 10)
    tenants: bool = True
    decides: bool = True
    dispatches: bool = False


STEINDAMM = ("steindamm[redis]==0.11.1",)

CONTENDERS = (
    Contender("Celery `rate_limit`", "celery_rate_limit", tenants=False, decides=False),
    Contender("recipe: Lua bucket + `retry(hint)`", "retry_hint"),
    Contender("celery-throttle 0.1.0b1", "celery_throttle", ("celery-throttle==0.1.0b1",), (3, 12), dispatches=True),
    Contender("steindamm 0.11.1", "steindamm", STEINDAMM, (3, 11)),
    Contender("**celery-throttled**", "ours", None),
)

#: Those that requests are asked of: each has `asks(client, quota)`. Of limits, the extra would bring an older redis-py.
ASKED = (
    Contender("limits 5.8.0", "limits", ("limits==5.8.0",)),
    Contender("throttled-py 3.5.0", "throttled_py", ("throttled-py==3.5.0",)),
    Contender("pyrate-limiter 4.5.1", "pyrate_limiter", ("pyrate-limiter==4.5.1",)),
    Contender("steindamm 0.11.1", "steindamm", STEINDAMM, (3, 11)),
    Contender("**celery-throttled**", "ours", None),
)


def python_of(contender: Contender) -> str | None:
    """Its interpreter, with all it needs; None where this machine has no Python new enough."""
    if contender.packages is None:
        return sys.executable
    place = HOME / _named(contender.packages)
    python = place / "bin" / "python"
    if not (place / "done").exists():
        base = _interpreter(contender.python)
        if base is None:
            return None
        print(f"  {contender.name}: making its environment", file=sys.stderr, flush=True)
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([base, "-m", "venv", place], check=True)
        # the same Celery, kombu and redis-py for all
        same = [f"{name}=={version(name)}" for name in ("celery", "kombu", "redis")]
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "celery[redis]", *same, *contender.packages], check=True)
        (place / "done").touch()
    return str(python)


def _named(packages: tuple[str, ...]) -> str:
    """One environment for all contenders of the same packages."""
    return re.sub(r"\[.*?\]", "", "+".join(packages)) or "celery"


def _interpreter(least: tuple[int, int]) -> str | None:
    if sys.version_info >= least:
        return sys.executable
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = [shutil.which(f"python3.{minor}") for minor in range(least[1], 15)] + [
        str(path) for path in root.glob("3.*/bin/python") if _version(path.parent.parent.name) >= least
    ]
    return next((path for path in found if path and _works(path)), None)


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:2]))


def _works(path: str) -> bool:
    """A shim may be there for a version that is not."""
    return subprocess.run([path, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0
