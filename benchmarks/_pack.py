"""Loads the pack's core without putting the repository's root on sys.path.

The root holds a folder `nodes`, which would hide ComfyUI's own module of that name.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent


def load_core() -> ModuleType:
    """The package `sampler_core` of this repository, importable by that name from here on."""
    if "sampler_core" not in sys.modules:
        folder = ROOT / "sampler_core"
        spec = importlib.util.spec_from_file_location(
            "sampler_core", folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        if spec is None or spec.loader is None:
            raise ImportError(f"no sampler_core in {ROOT}")
        module = importlib.util.module_from_spec(spec)
        sys.modules["sampler_core"] = module
        spec.loader.exec_module(module)
    return sys.modules["sampler_core"]


def load_coupling() -> ModuleType:
    """The package `sampler_core.coupling`."""
    load_core()
    return importlib.import_module("sampler_core.coupling")
