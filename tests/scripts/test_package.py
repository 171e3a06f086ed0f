"""What the registry would get: a valid description, and an archive with all the pack needs and nothing else."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
import zipfile
from typing import Any

import pytest
import tomllib
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMFY = pathlib.Path(sys.executable).with_name("comfy")
RAW = "https://raw.githubusercontent.com/drafttree/ComfyUI-DraftTree/main/"


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The tracked files as they are now, in a repository of their own: `comfy node pack` reads what git knows."""
    folder = tmp_path_factory.mktemp("checkout") / "ComfyUI-DraftTree"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode("utf-8")
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


def _comfy(folder: pathlib.Path, *command: str) -> str:
    done = subprocess.run(
        [COMFY, "--skip-prompt", "--no-enable-telemetry", "node", *command],
        cwd=folder, capture_output=True, text=True, encoding="utf-8", timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_validate_is_clean(checkout: pathlib.Path) -> None:
    said = _comfy(checkout, "validate")
    assert "passed" in said and not re.search("warning|error", said, re.IGNORECASE), said


def test_the_archive_is_the_pack(checkout: pathlib.Path) -> None:
    _comfy(checkout, "pack")
    (file,) = checkout.glob("*.zip")
    assert file.stat().st_size < 20e6
    with zipfile.ZipFile(file) as archive:
        names = set(archive.namelist())
    needed = {
        "__init__.py",
        "pyproject.toml",
        "requirements.txt",
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "demo/words.py",
    }
    for folder, pattern in (
        ("nodes", "*.py"), ("sampler_core", "*.py"), ("web", "*"), ("locales", "*.json"), ("example_workflows", "*"),
        ("subgraphs", "*.json"), ("demo/models", "*.safetensors"),
    ):  # fmt: skip
        needed |= {
            path.relative_to(ROOT).as_posix()
            for path in (ROOT / folder).rglob(pattern)
            if path.is_file() and path.suffix != ".pyc"
        }
    assert needed <= names, needed - names
    others = {name for name in names - needed if not name.startswith("docs/")}
    assert others <= {"demo/__init__.py", "demo/README.md", ".gitignore", ".comfyignore"}, others


def test_the_archive_loads(checkout: pathlib.Path, host: pathlib.Path) -> None:
    """Unpacked where a host would put it, it imports and lists its nodes."""
    _comfy(checkout, "pack")
    (file,) = checkout.glob("*.zip")
    folder = checkout.parent / "unpacked"
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder)
    script = (
        "import sys; host, root = sys.argv[1:]; sys.argv = sys.argv[:1]; sys.path.insert(0, host)\n"
        "import comfy.cli_args; comfy.cli_args.args.cpu = True\n"
        "import utils.install_util, nodes, importlib.util, asyncio\n"
        "spec = importlib.util.spec_from_file_location('p', root + '/__init__.py', submodule_search_locations=[root])\n"
        "pack = importlib.util.module_from_spec(spec); sys.modules['p'] = pack; spec.loader.exec_module(pack)\n"
        "made = asyncio.run(asyncio.run(pack.comfy_entrypoint()).get_node_list())\n"
        "print(len([node.GET_SCHEMA() for node in made]))\n"
        "from p.demo.words import encode; print(encode('red heart')[0].shape)\n"
    )
    command = [sys.executable, "-c", script, str(host), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    assert done.returncode == 0 and done.stdout.splitlines()[-2:] == ["8", "torch.Size([1, 8, 128])"], done.stderr


def test_what_the_registry_shows(project: dict[str, Any]) -> None:
    comfy, about = project["tool"]["comfy"], project["project"]
    assert about["name"] == "drafttree" and "comfyui" not in about["name"].lower()
    assert re.fullmatch(r"\d+\.\d+\.\d+", about["version"]) and about["license"] == {"file": "LICENSE"}
    assert comfy["PublisherId"] and comfy["DisplayName"] and comfy["requires-comfyui"] == ">=0.3.75"
    for key, least in (("Icon", 400), ("Banner", 1000)):
        assert comfy[key].startswith(RAW)
        with Image.open(ROOT / comfy[key].removeprefix(RAW)) as picture:
            assert picture.width >= least
    assert {"Repository", "Documentation", "Bug Tracker"} <= set(about["urls"])


def test_dependencies_agree(project: dict[str, Any]) -> None:
    """The registry installs requirements.txt; both name the picture's library alone."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert (
        [line for line in lines if not line.startswith("#")]
        == project["project"]["dependencies"]
        == ["matplotlib>=3.8"]
    )


def test_the_changelog_knows_this_version(project: dict[str, Any]) -> None:
    assert f"## {project['project']['version']}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
