"""Runs luacheck (Debian: lua-check) on every script as Redis gets it: `python -m tests.luacheck`.

A missing luacheck is skipped on a laptop and an error in CI.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from throttle.scripts import expanded

LUA = Path(__file__).parent.parent / "lua"


def main() -> int:
    tool = shutil.which("luacheck")
    if tool is None:
        print("luacheck: not installed (Debian: lua-check), skipped", file=sys.stderr)
        return 1 if os.environ.get("CI") == "true" else 0
    with tempfile.TemporaryDirectory() as place:
        files = []
        for script in sorted(LUA.glob("*.lua")):
            file = Path(place, script.name)
            file.write_text(expanded(script.stem))
            files.append(file.name)
        # 211: an include may bring more names than a script uses; 431: or, in a branch, parameters called as its locals
        rules = ["--std", "lua51", "--read-globals", "redis", "KEYS", "ARGV", "--max-line-length", "120"]
        return subprocess.call([tool, *rules, "--ignore", "211", "431", "--no-color", *files], cwd=place)


if __name__ == "__main__":
    raise SystemExit(main())
