"""Tiny networks with random weights in the host's own classes, built in process."""

from __future__ import annotations

from typing import Any

import torch

WIDTH = 32  # of the text conditioning


def flow(seed: int = 0, depth: int = 1) -> Any:
    """An SD3-layout flow model (16 latent channels, patch 2) in a ModelPatcher."""
    import comfy.model_base
    import comfy.supported_models

    config = comfy.supported_models.SD3(
        {
            "in_channels": 16,
            "patch_size": 2,
            "depth": depth,
            "adm_in_channels": WIDTH,
            "context_embedder_config": {
                "target": "torch.nn.Linear",
                "params": {"in_features": WIDTH, "out_features": 64 * depth},
            },
            "qk_norm": "rms",
            "num_patches": None,
            "pos_embed_scaling_factor": None,
            "dtype": torch.float32,
        }
    )
    return _patcher(comfy.model_base.SD3(config), seed)


def unet(kind: str = "eps", seed: int = 0, in_channels: int = 4) -> Any:
    """A small SD1.5-layout network (4 latent channels), "eps" or "v"; 9 in_channels make it an inpaint model."""
    import comfy.model_base
    import comfy.supported_models

    config = comfy.supported_models.SD15(
        {
            "image_size": 32,
            "in_channels": in_channels,
            "out_channels": 4,
            "model_channels": 32,
            "num_res_blocks": [1, 1],
            "channel_mult": [1, 2],
            "transformer_depth": [1, 1],
            "transformer_depth_output": [1, 1, 1, 1],
            "transformer_depth_middle": 1,
            "context_dim": WIDTH,
            "adm_in_channels": None,
            "use_linear_in_transformer": False,
            "use_temporal_attention": False,
            "use_spatial_transformer": True,
            "legacy": False,
            "dtype": torch.float32,
        }
    )
    types = {"eps": comfy.model_base.ModelType.EPS, "v": comfy.model_base.ModelType.V_PREDICTION}
    model = comfy.model_base.BaseModel(config, model_type=types[kind])
    if in_channels > 4:
        model.set_inpaint()
    return _patcher(model, seed)


def build(kind: str, seed: int = 0) -> Any:
    return flow(seed) if kind == "flow" else unet(kind, seed)


def latent(kind: str, batch: int = 1, seed: int | None = None, size: int = 8) -> torch.Tensor:
    """[batch, C, size, size]: empty without a seed, else random."""
    shape = (batch, 16 if kind == "flow" else 4, size, size)
    return torch.zeros(shape) if seed is None else torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def conditioning(seed: int = 1, batch: int = 1) -> list[Any]:
    """A CONDITIONING of `batch` prompts."""
    generator = torch.Generator().manual_seed(seed)
    context = torch.randn(batch, 4, WIDTH, generator=generator)
    return [[context, {"pooled_output": torch.randn(batch, WIDTH, generator=generator)}]]


def _patcher(model: Any, seed: int) -> Any:
    import comfy.model_patcher

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.diffusion_model.named_parameters():
            if weight.ndim >= 2:
                weight.copy_(torch.randn(weight.shape, generator=generator) * weight[0].numel() ** -0.5)
            else:
                fill = 1.0 if name.endswith("weight") else 0.0
                weight.copy_(fill + 0.1 * torch.randn(weight.shape, generator=generator))
    cpu = torch.device("cpu")
    return comfy.model_patcher.ModelPatcher(model.float().eval(), load_device=cpu, offload_device=cpu)
