"""Use the demo models as a workflow does: ComfyUI's own loaders, KSampler and VAEDecode, in this process."""

from __future__ import annotations

import pathlib
from typing import Any

import torch

import host_path
import words


class Stock:
    """The models of a folder, loaded by CheckpointLoaderSimple and UNETLoader."""

    def __init__(self, models: pathlib.Path) -> None:
        host_path.use_comfyui()
        import comfy.model_management  # noqa: F401  reads the command line, so it comes first
        import folder_paths
        import utils.install_util  # noqa: F401  else `utils` may become another package

        import nodes

        for kind in ("checkpoints", "diffusion_models"):
            folder_paths.add_model_folder_path(kind, str(models.resolve() / kind), is_default=True)
        self.nodes = nodes
        self.model, _, self.vae = nodes.CheckpointLoaderSimple().load_checkpoint("drafttree-demo.safetensors")
        (self.draft,) = nodes.UNETLoader().load_unet("drafttree-demo-draft.safetensors", "default")

    @torch.no_grad()
    def sample(
        self,
        model: Any,
        text: str,
        seed: int,
        count: int,
        steps: int = 28,
        cfg: float = 4.0,
        sampler: str = "euler_ancestral",
    ) -> torch.Tensor:
        """Latents [count, 16, 8, 8]."""
        empty = {"samples": torch.zeros(count, 16, 8, 8)}
        arguments = (model, seed, steps, cfg, sampler, "simple", condition(text), condition(""), empty)
        return self.nodes.common_ksampler(*arguments)[0]["samples"]

    @torch.no_grad()
    def decode(self, latents: torch.Tensor) -> torch.Tensor:
        """[count, 64, 64, 3] in 0..1."""
        return self.vae.decode(latents)

    @torch.no_grad()
    def encode(self, pictures: torch.Tensor) -> torch.Tensor:
        """Latents [count, 16, 8, 8] of pictures [count, 64, 64, 3] in 0..1."""
        return self.vae.encode(pictures)


def condition(text: str) -> list[Any]:
    """A CONDITIONING for the demo models."""
    context, pooled = words.encode(text)
    return [[context, {"pooled_output": pooled}]]
