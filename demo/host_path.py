"""Find ComfyUI: training uses its own model classes, so that the files fit it exactly."""

from __future__ import annotations

import os
import sys


def use_comfyui() -> None:
    """Put the folder named by COMFYUI_DIR on sys.path and choose the CPU before any comfy import."""
    folder = os.environ.get("COMFYUI_DIR", "")
    if not os.path.isfile(os.path.join(folder, "comfy", "sd.py")):
        raise SystemExit(f"COMFYUI_DIR is {folder!r}: set it to a ComfyUI folder, the one that holds main.py")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    import comfy.cli_args

    comfy.cli_args.args.cpu = True


def bf16_pays() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware (1.3 to 2 times faster training)."""
    import torch

    flags = torch.cpu.get_capabilities()
    return bool(flags.get("avx512_bf16") or flags.get("amx_bf16"))
