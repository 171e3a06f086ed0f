"""Write the trained weights as the files that ComfyUI's stock loaders read."""

from __future__ import annotations

import pathlib

import torch

import train_vae

CHECKPOINT = pathlib.Path("checkpoints") / "drafttree-demo.safetensors"
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
    _save(whole, models / CHECKPOINT)
    _save(
        {name: value.half() for name, value in draft.items()},
        models / "diffusion_models" / "drafttree-demo-draft.safetensors",
    )


def read(models: pathlib.Path) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """The autoencoder and the diffusion model's weights of files that `write` made."""
    from safetensors.torch import load_file

    whole = load_file(models / CHECKPOINT)
    parts: dict[str, dict[str, torch.Tensor]] = {"model.diffusion_model.": {}, "first_stage_model.": {}}
    for name, value in whole.items():
        prefix = next(p for p in parts if name.startswith(p))
        parts[prefix][name[len(prefix) :]] = value.float()
    big, latent = parts.values()
    vae = train_vae.new_vae()
    vae.load_state_dict(latent)
    return vae, big


def _save(weights: dict[str, torch.Tensor], path: pathlib.Path) -> None:
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: value.contiguous() for name, value in weights.items()}, path, metadata=NOTE)
    path.chmod(0o644)
