"""Run the sweep of tests/host/sweep in a real ComfyUI and write docs/compatibility.md from what it finds.

usage: bash scripts/run.sh scripts/compatibility.py        (COMFYUI_DIR: another ComfyUI folder)
"""

from __future__ import annotations

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main() -> int:
    """The exit status of the tests."""
    pytest = [sys.executable, "-m", "pytest", "-c", "tests/pytest.ini", "tests/host/sweep", "--write-compatibility"]
    return subprocess.run(pytest, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
