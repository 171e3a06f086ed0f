"""The scripts as modules. Their folder stays off sys.path: its demo.py would shadow the package demo/."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
from types import ModuleType

import pytest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture(scope="session")
def demo_script() -> ModuleType:
    """scripts/demo.py; it finds host_server among the loaded modules."""
    spec = importlib.util.spec_from_file_location("demo_script", SCRIPTS / "demo.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["demo_script"] = module
    spec.loader.exec_module(module)
    return module
