"""Write the trained weights as the files that ComfyUI's stock loaders read."""

from __future__ import annotations

import pathlib

import torch

NOTE = {
    "title": "DraftTree demo",
    "description": "A toy SD3.5-layout text-to-image model of 64 x 64 pixels, for tests and demonstrations. "
    "It has memorised 1384 emoji and is no general image model. "
    "Prompts go through demo/words.py, not through a text encoder.",
    "license": "Apache-2.0. Trained on Noto Emoji pictures (Copyright Google LLC, Apache-2.0).",
    "format": "pt",
}


def write(
    vae: torch.nn.Module, big: dict[str, torch.Tensor], draft: dict[str, torch.Tensor], models: pathlib.Path
) -> None:
    """models/checkpoints/drafttree-demo.safetensors and models/diffusion_models/drafttree-demo-draft.safetensors."""
    whole = {f"model.diffusion_model.{name}": value.half() for name, value in big.items()}
    for name, value in vae.state_dict().items():
        # The two scalars set the latents' scale: half precision would shift every picture.
        whole[f"first_stage_model.{name}"] = value.float() if value.dim() == 0 else value.half()
    _save(whole, models / "checkpoints" / "drafttree-demo.safetensors")
    _save(
        {name: value.half() for name, value in draft.items()},
        models / "diffusion_models" / "drafttree-demo-draft.safetensors",
    )


def _save(weights: dict[str, torch.Tensor], path: pathlib.Path) -> None:
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: value.contiguous() for name, value in weights.items()}, path, metadata=NOTE)
    path.chmod(0o644)
