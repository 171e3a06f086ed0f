"""Tiny networks with random weights in the host's own classes, built in process."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

WIDTH = 32  # of the text conditioning


_UNET: dict[str, Any] = {
    "image_size": 32,
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


def _sd3(depth: int) -> dict[str, Any]:
    return {
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


def flow(seed: int = 0, depth: int = 1) -> Any:
    """An SD3-layout flow model (16 latent channels, patch 2) in a ModelPatcher."""
    import comfy.model_base
    import comfy.supported_models

    return _patcher(comfy.model_base.SD3(comfy.supported_models.SD3(_sd3(depth))), seed)


def unet(kind: str = "eps", seed: int = 0, in_channels: int = 4) -> Any:
    """A small SD1.5-layout network (4 latent channels), "eps" or "v"; 9 in_channels make it an inpaint model."""
    import comfy.model_base
    import comfy.supported_models

    config = comfy.supported_models.SD15({**_UNET, "in_channels": in_channels})
    types = {"eps": comfy.model_base.ModelType.EPS, "v": comfy.model_base.ModelType.V_PREDICTION}
    model = comfy.model_base.BaseModel(config, model_type=types[kind])
    if in_channels > 4:
        model.set_inpaint()
    return _patcher(model, seed)


def unet_sdxl(seed: int = 0) -> Any:
    """A small SDXL-layout network; pooled_output of WIDTH takes the place of 1280."""
    import comfy.model_base
    import comfy.supported_models

    config = comfy.supported_models.SDXL(
        {
            **_UNET,
            "in_channels": 4,
            "model_channels": 64,  # its heads are of 64 channels
            "adm_in_channels": WIDTH + 6 * 256,
            "num_classes": "sequential",
        }
    )
    return _patcher(comfy.model_base.SDXL(config), seed)


def flux(seed: int = 0) -> Any:
    """A small Flux network: 16 latent channels, one double and one single block."""
    import comfy.ldm.flux.model
    import comfy.model_base
    import comfy.supported_models

    values = {
        "image_model": "flux",
        "in_channels": 16,
        "out_channels": 16,
        "patch_size": 2,
        "vec_in_dim": WIDTH,
        "context_in_dim": WIDTH,
        "hidden_size": 32,
        "mlp_ratio": 2.0,
        "num_heads": 2,
        "depth": 1,
        "depth_single_blocks": 1,
        "axes_dim": [4, 6, 6],
        "theta": 10000,
        "qkv_bias": True,
        "guidance_embed": True,
        "dtype": torch.float32,
    }
    config = comfy.supported_models.Flux(_complete(values, comfy.ldm.flux.model.FluxParams))
    return _patcher(comfy.model_base.Flux(config), seed)


def wan(seed: int = 0) -> Any:
    """A small Wan network: latents [B, 16, frames, H, W]."""
    import comfy.model_base
    import comfy.supported_models

    config = comfy.supported_models.WAN21_T2V(
        {
            "image_model": "wan2.1",
            "model_type": "t2v",
            "dim": 48,
            "ffn_dim": 64,
            "text_dim": WIDTH,
            "num_heads": 2,
            "num_layers": 1,
            "in_dim": 16,
            "out_dim": 16,
            "dtype": torch.float32,
        }
    )
    return _patcher(comfy.model_base.WAN21(config), seed)


def qwen(seed: int = 0) -> Any:
    """A small Qwen-Image network: latents [B, 16, 1, H, W]."""
    import comfy.model_base
    import comfy.supported_models

    config = comfy.supported_models.QwenImage(
        {
            "image_model": "qwen_image",
            "in_channels": 64,
            "num_layers": 1,
            "attention_head_dim": 16,
            "num_attention_heads": 2,
            "joint_attention_dim": WIDTH,
            "pooled_projection_dim": WIDTH,
            "axes_dims_rope": (4, 6, 6),
            "dtype": torch.float32,
        }
    )
    return _patcher(comfy.model_base.QwenImage(config), seed)


def svd(seed: int = 0) -> Any:
    """A small SVD-layout network, whose batch is the frames of a video."""
    import comfy.model_base
    import comfy.supported_models

    config = comfy.supported_models.SVD_img2vid(
        {
            **_UNET,
            "in_channels": 8,
            "model_channels": 64,
            "adm_in_channels": 768,
            "num_classes": "sequential",
            "use_temporal_attention": True,
            "use_temporal_resblock": True,
            "video_kernel_size": [3, 1, 1],
            "merge_strategy": "learned_with_images",
            "merge_factor": 0.0,
            "extra_ff_mix_layer": True,
        }
    )
    return _patcher(comfy.model_base.SVD_img2vid(config), seed)


# What newer releases of ComfyUI ask of a network besides, and what says "none of it".
_NEWER = {"txt_ids_dims": [], "vec_in_dim": None, "meanflow_sum": False}


def _complete(values: dict[str, Any], parameters: type) -> dict[str, Any]:
    """The values, and what this release's parameters of the network have besides."""
    known = {field.name for field in dataclasses.fields(parameters)}
    return {**{name: value for name, value in _NEWER.items() if name in known}, **values}


def _built(config: str, model: str, values: dict[str, Any], seed: int) -> Any:
    """A model of these classes of ComfyUI."""
    import comfy.model_base
    import comfy.supported_models

    made = getattr(comfy.supported_models, config)({**values, "dtype": torch.float32})
    return _patcher(getattr(comfy.model_base, model)(made), seed)


def aura(seed: int = 0) -> Any:
    """A small AuraFlow network: 4 latent channels."""
    values = {"max_seq": 16 * 16, "cond_seq_dim": WIDTH, "n_double_layers": 1, "n_layers": 2}
    return _built("AuraFlow", "AuraFlow", {**values, "dim": 32, "n_heads": 2, "global_conddim": 32}, seed)


def chroma(seed: int = 0) -> Any:
    """A small Chroma network."""
    values = {
        "image_model": "chroma",
        "in_channels": 64,  # of a patch
        "out_channels": 64,
        "patch_size": 2,
        "context_in_dim": WIDTH,
        "hidden_size": 32,
        "mlp_ratio": 2.0,
        "num_heads": 2,
        "depth": 1,
        "depth_single_blocks": 1,
        "axes_dim": [4, 6, 6],
        "theta": 10000,
        "qkv_bias": True,
        "in_dim": 64,
        "out_dim": 32,
        "hidden_dim": 32,
        "n_layers": 1,
    }
    import comfy.ldm.chroma.model

    return _built("Chroma", "Chroma", _complete(values, comfy.ldm.chroma.model.ChromaParams), seed)


def lumina(seed: int = 0, z_image: bool = False) -> Any:
    """A small Lumina 2 network; z_image: with Z-Image's changes."""
    values = {
        "image_model": "lumina2",
        "patch_size": 2,
        "in_channels": 16,
        "dim": 32,
        "n_layers": 1,
        "n_refiner_layers": 1,
        "n_heads": 2,
        "n_kv_heads": 2,
        "multiple_of": 16,
        "ffn_dim_multiplier": 1.0,
        "qk_norm": True,
        "cap_feat_dim": WIDTH,
        "axes_dims": [4, 6, 6],
        "axes_lens": [64, 64, 64],
    }
    if z_image:
        values |= {"z_image_modulation": True, "time_scale": 1000.0, "pad_tokens_multiple": 32}
        values |= {"dim": 256, "n_heads": 16, "n_kv_heads": 16}  # it modulates with 256 channels
    return _built("Lumina2", "Lumina2", values, seed)


def hunyuan_video(seed: int = 0) -> Any:
    """A small HunyuanVideo network: latents [B, 16, frames, H, W]."""
    values = {
        "image_model": "hunyuan_video",
        "in_channels": 16,
        "out_channels": 16,
        "patch_size": [1, 2, 2],
        "vec_in_dim": WIDTH,
        "context_in_dim": WIDTH,
        "hidden_size": 32,
        "mlp_ratio": 2.0,
        "num_heads": 2,
        "depth": 1,
        "depth_single_blocks": 1,
        "axes_dim": [4, 6, 6],
        "theta": 256,
        "qkv_bias": True,
        "guidance_embed": True,
        "byt5": False,
        "meanflow": False,
        "use_cond_type_embedding": False,
        "vision_in_dim": None,
    }
    import comfy.ldm.hunyuan_video.model

    parameters = comfy.ldm.hunyuan_video.model.HunyuanVideoParams
    return _built("HunyuanVideo", "HunyuanVideo", _complete(values, parameters), seed)


def hidream(seed: int = 0) -> Any:
    """A small HiDream network; conditioning needs conditioning_llama3 [B, layers, tokens, WIDTH]."""
    values = {
        "image_model": "hidream",
        "patch_size": 2,
        "in_channels": 16,
        "out_channels": 16,
        "num_layers": 1,
        "num_single_layers": 1,
        "attention_head_dim": 16,
        "num_attention_heads": 2,
        "caption_channels": [WIDTH, WIDTH],
        "text_emb_dim": WIDTH,
        "num_routed_experts": 2,
        "num_activated_experts": 1,
        "axes_dims_rope": [4, 6, 6],
        "max_resolution": [128, 128],
        "llama_layers": [0, 1],
    }
    return _built("HiDream", "HiDream", values, seed)


def controlnet(seed: int = 0) -> Any:
    """A ControlNet for `unet`, with hints of eight times the latent's size."""
    import comfy.cldm.cldm
    import comfy.controlnet
    import comfy.ops

    config = {k: v for k, v in _UNET.items() if k not in ("out_channels", "transformer_depth_output", "image_size")}
    network = comfy.cldm.cldm.ControlNet(
        image_size=32, in_channels=4, hint_channels=3, num_heads=8, operations=comfy.ops.disable_weight_init, **config
    )
    fill(network, seed)
    return comfy.controlnet.ControlNet(network.eval(), load_device=torch.device("cpu"))


def sd3_controlnet(seed: int = 0) -> Any:
    """A ControlNet for `flow`; hints are latents of 16 channels here, so it needs no VAE."""
    import comfy.cldm.mmdit
    import comfy.controlnet
    import comfy.ops

    network = comfy.cldm.mmdit.ControlNet(
        num_blocks=1, control_latent_channels=16, operations=comfy.ops.disable_weight_init, device="cpu", **_sd3(1)
    )
    fill(network, seed)
    return comfy.controlnet.ControlNet(network.eval(), compression_ratio=1, load_device=torch.device("cpu"))


def sd35_controlnet(seed: int = 0) -> Any:
    """A ControlNet of SD3.5's kind for `flow`, with latents for hints."""
    import comfy.cldm.dit_embedder
    import comfy.controlnet
    import comfy.ops

    network = comfy.cldm.dit_embedder.ControlNetEmbedder(
        img_size=None, patch_size=2, in_chans=16, num_layers=1, main_model_double=1, double_y_emb=False,
        attention_head_dim=64, num_attention_heads=1, adm_in_channels=WIDTH, device=torch.device("cpu"),
        dtype=torch.float32, operations=comfy.ops.disable_weight_init,
    )  # fmt: skip
    fill(network, seed)
    return comfy.controlnet.ControlNetSD35(network.eval(), compression_ratio=1, load_device=torch.device("cpu"))


def t2i_adapter(seed: int = 0) -> Any:
    """A T2I adapter for `unet`."""
    import comfy.controlnet
    import comfy.t2i_adapter.adapter

    network = comfy.t2i_adapter.adapter.Adapter_light(channels=[32, 64], nums_rb=1, cin=3 * 64)
    fill(network, seed)
    return comfy.controlnet.T2IAdapter(network.eval(), network.input_channels, 8, "nearest-exact", torch.device("cpu"))


def gligen(seed: int = 0) -> Any:
    """A GLIGEN model for `unet`, and a place for one word, as its node writes it."""
    import comfy.gligen
    import comfy.model_patcher

    places = [32, 64, 64, 64, 64, 32, 32]  # channels at each transformer of `unet`
    modules = [comfy.gligen.GatedSelfAttentionDense(width, WIDTH, 4, width // 4) for width in places]
    network = comfy.gligen.Gligen(modules, comfy.gligen.PositionNet(WIDTH, WIDTH), WIDTH)
    fill(network, seed)
    cpu = torch.device("cpu")
    return comfy.model_patcher.ModelPatcher(network.eval(), load_device=cpu, offload_device=cpu)


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


def fill(network: torch.nn.Module, seed: int) -> None:
    """Random weights of a sensible size."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if weight.ndim >= 2:
                weight.copy_(torch.randn(weight.shape, generator=generator) * weight[0].numel() ** -0.5)
            else:
                fill = 1.0 if name.endswith("weight") else 0.0
                weight.copy_(fill + 0.1 * torch.randn(weight.shape, generator=generator))


def _patcher(model: Any, seed: int) -> Any:
    import comfy.model_patcher

    fill(model.diffusion_model, seed)
    cpu = torch.device("cpu")
    return comfy.model_patcher.ModelPatcher(model.float().eval(), load_device=cpu, offload_device=cpu)
