"""scripts/setup_env.py, with no packages to install: what it makes, what it renews, and what it must not touch."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import textwrap

import pytest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"


class Clone:
    """A fresh clone with empty requirements and a host that is already there."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.venv = folder / "clone" / ".venv"
        self.requirements = folder / "clone" / "requirements-dev.txt"
        (folder / "clone").mkdir(parents=True)
        (folder / "clone" / "sampler_core").mkdir()
        self.requirements.write_text("", encoding="utf-8")
        host = folder / "host"
        (host / "comfy").mkdir(parents=True)
        for name in ("main.py", "execution.py"):
            (host / name).write_text("", encoding="utf-8")
        self.driver = folder / "driver.py"
        self.driver.write_text(
            textwrap.dedent(f"""
                import os, pathlib, sys
                sys.path.insert(0, {str(SCRIPTS)!r})
                import setup_env as s
                s.ROOT = pathlib.Path({str(folder / "clone")!r})
                s.HOST_HOME = s.ROOT / ".host"
                s.REQUIREMENTS = s.ROOT / "requirements-dev.txt"
                s.REQUIREMENT_FILES = (s.REQUIREMENTS,)
                os.environ.pop("DRAFTTREE_VENV", None)
                os.environ["COMFYUI_DIR"] = {str(host)!r}
                sys.exit(s.main())
            """),
            encoding="utf-8",
        )

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, self.driver], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def set_up(self) -> tuple[int, str, str]:
        run = self.start()
        out, errors = run.communicate(timeout=300)
        return run.returncode, out, errors


@pytest.fixture
def clone(tmp_path: pathlib.Path) -> Clone:
    return Clone(tmp_path)


def test_makes_it_once(clone: Clone) -> None:
    status, out, errors = clone.set_up()
    assert status == 0, errors
    python, host = out.splitlines()
    assert subprocess.run([python, "-c", "import pip"]).returncode == 0 and host == str(clone.folder / "host")
    mark = clone.venv / "mark"
    mark.touch()
    assert clone.set_up() == (0, out, "")  # nothing to do and nothing to say
    assert mark.exists()


def test_renews_it_when_requirements_change(clone: Clone) -> None:
    clone.set_up()
    (clone.venv / "mark").touch()
    clone.requirements.write_text("# other\n", encoding="utf-8")
    status, _, errors = clone.set_up()
    assert status == 0 and "renewing" in errors and not (clone.venv / "mark").exists()


@pytest.mark.parametrize("stage", ["empty folder", "marked folder", "no packages", "broken python"])
def test_recovers_from_an_interruption(clone: Clone, stage: str) -> None:
    """Wherever the last set-up was cut off, the next one ends with a working environment."""
    if stage == "empty folder":
        clone.venv.mkdir()
    elif stage == "marked folder":
        clone.venv.mkdir()
        (clone.venv / "drafttree-made").touch()
    else:
        clone.set_up()
        if stage == "no packages":
            (clone.venv / "drafttree-done").unlink()
        else:
            (clone.venv / "bin" / "python").unlink()
            (clone.venv / "bin" / "python").write_text("", encoding="utf-8")
    status, out, errors = clone.set_up()
    assert status == 0, errors
    assert subprocess.run([out.splitlines()[0], "-c", "import pip"]).returncode == 0


def test_a_package_that_does_not_exist(clone: Clone) -> None:
    """A failing pip ends the set-up with its own words, and the repaired clone sets up."""
    clone.requirements.write_text(f"{clone.folder / 'nothing.whl'}\n", encoding="utf-8")
    status, out, errors = clone.set_up()
    assert status == 1 and out == "" and "nothing.whl" in errors and "setup.log" in errors
    clone.requirements.write_text("", encoding="utf-8")
    assert clone.set_up()[0] == 0


def test_never_changes_what_it_did_not_make(clone: Clone) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", clone.venv], check=True)
    before = sorted(clone.venv.rglob("*"))
    status, _, errors = clone.set_up()
    assert status == 1 and "was not made by this script" in errors and "torch" in errors
    assert sorted(clone.venv.rglob("*")) == before
    (clone.venv / "bin" / "python").unlink()
    status, _, errors = clone.set_up()
    assert status == 1 and "move it away" in errors and clone.venv.is_dir()


def test_two_at_once(clone: Clone) -> None:
    """The second waits for the first and uses what it made."""
    runs = [clone.start() for _ in range(2)]
    ended = [run.communicate(timeout=300) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], ended
    assert ended[0][0] == ended[1][0]
    assert sum("environment ready" in errors for _, errors in ended) == 1
