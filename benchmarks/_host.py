"""A ComfyUI in this process, on the CPU, with the pack and its demo model: what the benchmarks share."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

from _pack import ROOT

PACK = "drafttree_pack"


def load_host() -> None:
    """Make ComfyUI's modules importable. Raises SystemExit where COMFYUI_DIR names no ComfyUI."""
    folder = os.environ.get("COMFYUI_DIR", "")
    if not os.path.isfile(os.path.join(folder, "main.py")):
        raise SystemExit(f"COMFYUI_DIR is {folder!r}, no ComfyUI: use `bash scripts/run.sh benchmarks/...`.")
    sys.path.insert(0, folder)
    # ComfyUI parses the command line when it is imported.
    arguments, sys.argv = sys.argv, sys.argv[:1]
    import comfy.cli_args

    comfy.cli_args.args.cpu = True
    import utils.install_util  # noqa: F401  (before `nodes`, which imports another `utils` otherwise)

    sys.argv = arguments


def load_pack() -> ModuleType:
    """The pack, loaded by path as the host does; its folders are attributes (pack.nodes.ksampler ...)."""
    spec = importlib.util.spec_from_file_location(PACK, ROOT / "__init__.py", submodule_search_locations=[str(ROOT)])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[PACK] = module
    spec.loader.exec_module(module)
    return module


def demo_model() -> tuple[Any, Any]:
    """(MODEL, VAE) of the shipped demo checkpoint, by the stock loader."""
    import comfy.sd

    path = ROOT / "demo" / "models" / "checkpoints" / "drafttree-demo.safetensors"
    model, _, vae = comfy.sd.load_checkpoint_guess_config(str(path), output_vae=True, output_clip=False)[:3]
    return model, vae


def encode(pack: ModuleType, text: str) -> list[Any]:
    """CONDITIONING of the demo model for some words."""
    words = importlib.import_module(f"{pack.__name__}.demo.words")
    context, pooled = words.encode(text)
    return [[context, {"pooled_output": pooled}]]
