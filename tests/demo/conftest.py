"""The demo's files, loaded by path: neither the repository's root nor demo/ goes on sys.path."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
from collections.abc import Callable
from types import ModuleType

import pytest

DEMO = pathlib.Path(__file__).resolve().parents[2] / "demo"


def load(name: str) -> ModuleType:
    """The file demo/<name>.py, as its siblings import it."""
    spec = importlib.util.spec_from_file_location(name, DEMO / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def demo() -> Callable[[str], ModuleType]:
    """demo("words"): the file demo/words.py."""
    return load


@pytest.fixture(scope="session")
def words() -> ModuleType:
    return load("words")
