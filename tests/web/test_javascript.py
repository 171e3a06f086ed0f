"""The JavaScript of the pack: linted, its units tested, small, and free of anything but plain modules."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
from collections.abc import Callable
from types import ModuleType

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "web").rglob("*.js"))
MOST_BYTES = 40_000


@pytest.fixture(scope="session")
def npm(setup_web: ModuleType) -> Callable[..., str]:
    setup_web.node_modules()

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [shutil.which("npm") or "npm", *arguments], cwd=ROOT, capture_output=True, text=True, encoding="utf-8"
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_lint(npm: Callable[..., str]) -> None:
    npm("run", "lint")


def test_units(npm: Callable[..., str]) -> None:
    assert "passed" in npm("run", "test")


def test_size() -> None:
    """All of it, unpacked and unshortened."""
    assert 0 < sum(file.stat().st_size for file in FILES) < MOST_BYTES


def test_one_file_alone_knows_the_host() -> None:
    """Everything else can be imported, and so tested, anywhere."""
    for file in FILES:
        sources = re.findall(r"^import .* from '([^']+)'", file.read_text(encoding="utf-8"), re.MULTILINE)
        theirs = [source for source in sources if not source.startswith("./")]
        assert theirs == (["/scripts/app.js", "/scripts/api.js"] if file.name == "drafttree.js" else [])


def test_lock_file_names_no_registry() -> None:
    """npm fetches from whichever registry the machine is set up for."""
    text = (ROOT / "package-lock.json").read_text(encoding="utf-8")
    assert '"integrity"' in text and '"resolved"' not in text
