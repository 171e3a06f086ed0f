"""scripts/run.sh: any Python file, in the project's environment, from the repository's root."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUN = str(ROOT / "scripts" / "run.sh")

PROBE = """
import json, os, sys
import sampler_core
print(json.dumps({"arguments": sys.argv[1:], "folder": os.getcwd(), "host": os.environ["COMFYUI_DIR"],
                  "core": sampler_core.__file__, "root_on_path": os.getcwd() in sys.path}))
sys.exit(7)
"""


@pytest.fixture
def probe(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "some where"
    folder.mkdir()
    file = folder / "probe.py"
    file.write_text(PROBE, encoding="utf-8")
    return file


def run(*arguments: str, folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", RUN, *arguments], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


@pytest.mark.parametrize("how", ["absolute", "relative"])
def test_a_file_from_elsewhere(probe: pathlib.Path, how: str) -> None:
    """Arguments arrive unchanged, the status comes back, stdout holds the file's words alone, the core imports."""
    file = str(probe) if how == "absolute" else probe.name
    arguments = ["--json", "two words", "", "*", "$HOME"]
    done = run(file, *arguments, folder=probe.parent)
    assert done.returncode == 7, done.stderr
    told = json.loads(done.stdout)
    assert told["arguments"] == arguments
    assert pathlib.Path(told["folder"]) == ROOT
    assert pathlib.Path(told["core"]).resolve() == ROOT / "sampler_core" / "__init__.py"
    assert (pathlib.Path(told["host"]) / "main.py").is_file()
    assert not told["root_on_path"]  # it would shadow the host's nodes.py


def test_a_file_of_the_repository_is_found_from_anywhere(tmp_path: pathlib.Path) -> None:
    done = run("scripts/demo.py", "--help", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "--prompt" in done.stdout


def test_no_such_file(tmp_path: pathlib.Path) -> None:
    done = run("nowhere.py", folder=tmp_path)
    assert done.returncode == 2
    assert "nowhere.py" in done.stderr and done.stdout == ""


def test_no_file(tmp_path: pathlib.Path) -> None:
    done = run(folder=tmp_path)
    assert done.returncode == 2 and "usage" in done.stderr


def test_wrong_host(tmp_path: pathlib.Path, probe: pathlib.Path) -> None:
    """A COMFYUI_DIR that is none stops everything, and says what is wrong with it."""
    done = subprocess.run(
        ["bash", RUN, str(probe)], env=os.environ | {"COMFYUI_DIR": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 1 and done.stdout == ""
    assert str(tmp_path) in done.stderr and "main.py" in done.stderr
