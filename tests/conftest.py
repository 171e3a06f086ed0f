"""What all tests share: the core on its own, the pack as a host loads it, the host's modules, and a real server."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent


def load(name: str, file: pathlib.Path) -> ModuleType:
    """Import a file (a package's __init__.py too) under a name, without its folder on sys.path.

    The root must never be on sys.path: its `nodes` would shadow ComfyUI's.
    """
    folders = [str(file.parent)] if file.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=folders)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


torch.set_num_threads(2)
load("sampler_core", ROOT / "sampler_core" / "__init__.py")
load("host_server", ROOT / "scripts" / "host_server.py")
load("setup_env", ROOT / "scripts" / "setup_env.py")


@pytest.fixture(scope="session")
def setup_web() -> ModuleType:
    """scripts/setup_web.py: the JavaScript tools, a newer frontend, a browser."""
    return load("setup_web", ROOT / "scripts" / "setup_web.py")


@pytest.fixture(scope="session")
def comfy_page(setup_web: ModuleType) -> ModuleType:
    """scripts/comfy_page.py: a page of the real frontend."""
    return load("comfy_page", ROOT / "scripts" / "comfy_page.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fuzz", type=int, default=40, help="how many random graphs tests/host/test_fuzz.py runs")
    parser.addoption("--write-compatibility", action="store_true", help="write docs/compatibility.md from the sweep")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests in the browser come last: theirs stays open to the end, and with it an event loop in this thread."""
    items.sort(key=lambda item: "browser" in item.path.relative_to(ROOT / "tests").parts)


@pytest.fixture(scope="session")
def comfyui_dir() -> pathlib.Path:
    """The ComfyUI folder that scripts/test.sh chose."""
    folder = pathlib.Path(os.environ.get("COMFYUI_DIR") or ROOT / ".host" / "ComfyUI")
    if not (folder / "main.py").is_file():
        pytest.fail(
            f"{folder} is no ComfyUI: run the tests by `bash scripts/test.sh`, or set COMFYUI_DIR", pytrace=False
        )
    return folder


@pytest.fixture(scope="session")
def host(comfyui_dir: pathlib.Path) -> pathlib.Path:
    """ComfyUI's modules can be imported, on the CPU."""
    sys.path.insert(0, str(comfyui_dir))
    import comfy.cli_args

    comfy.cli_args.args.cpu = True
    import utils.install_util  # noqa: F401  (before `nodes` and `server`, which import another `utils` otherwise)

    return comfyui_dir


@pytest.fixture(scope="session")
def pack(host: pathlib.Path) -> ModuleType:
    """The pack's root module, loaded by path under a mangled name as the host does."""
    return load(str(ROOT).replace(".", "_x_"), ROOT / "__init__.py")


@pytest.fixture(scope="session")
def server(comfyui_dir: pathlib.Path) -> Iterator[ModuleType]:
    """A running ComfyUI with the pack; shared, so leave it able to run the next prompt."""
    with sys.modules["host_server"].HostServer(comfyui_dir) as running:
        yield running
