"""The draft model: loading it, checking that it fits the target, calling it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import comfy.model_patcher
import comfy.sampler_helpers
import comfy.samplers
import comfy.sd
import folder_paths
import torch
from torch import Tensor

from ...sampler_core.errors import InputError
from . import compat
from .target import Predict

if TYPE_CHECKING:
    from comfy.model_patcher import ModelPatcher

WEIGHT_DTYPES: dict[str, dict[str, Any]] = {
    "default": {},
    "fp8_e4m3fn": {"dtype": torch.float8_e4m3fn},
    "fp8_e4m3fn_fast": {"dtype": torch.float8_e4m3fn, "fp8_optimizations": True},
    "fp8_e5m2": {"dtype": torch.float8_e5m2},
}

# What a draft does without: it need not match the target's extras, only come near its output.
_STRIPPED = ("control", "control_apply_to_uncond", "gligen", "hooks", "default")


def load(name: str, weight_dtype: str) -> ModelPatcher:
    """A model of the diffusion_models folder, as the stock loader loads it. InputError for what does not exist.

    The host (0.3.75) does not hold the choices of newer-style nodes against their lists.
    """
    path = folder_paths.get_full_path("diffusion_models", name)
    if path is None:
        raise InputError(
            f"Load Draft Model: unet_name is {name!r}, and models/diffusion_models holds no such file. "
            "Choose a file of the list; reload the page if it was added just now."
        )
    if weight_dtype not in WEIGHT_DTYPES:
        raise InputError(f"Load Draft Model: weight_dtype is {weight_dtype!r}. Use one of: {', '.join(WEIGHT_DTYPES)}.")
    return comfy.sd.load_diffusion_model(path, model_options=dict(WEIGHT_DTYPES[weight_dtype]))


def check(target: ModelPatcher, draft: ModelPatcher) -> None:
    """InputError when the draft cannot propose for the target, in words that name the input and the remedy."""
    if draft.model is target.model:
        raise InputError(
            "draft is the model itself, so drafting would cost as much as sampling. A LoRA does not make it another "
            "model. Load the draft from a file of its own with Load Draft Model, or leave draft empty."
        )
    ours, theirs = (_latent_kind(m.get_model_object("latent_format")) for m in (target, draft))
    if ours != theirs:
        raise InputError(
            f"draft works on {_describe(draft)} latents, the model on {_describe(target)} latents. "
            "Use a draft model of the same family, made for the same VAE."
        )
    flows = [compat.is_flow(m.get_model_object("model_sampling")) for m in (target, draft)]
    if flows[0] != flows[1]:
        kinds = ["a flow model" if flow else "an eps or v model" for flow in flows]
        raise InputError(
            f"draft is {kinds[1]}, the model is {kinds[0]}: they do not mean the same by a noise level. "
            "Use a draft model of the same kind."
        )


def _latent_kind(latent_format: Any) -> tuple[Any, ...]:
    names = ("latent_channels", "latent_dimensions", "scale_factor", "shift_factor")
    return tuple(getattr(latent_format, name, None) for name in names)


def _describe(patcher: ModelPatcher) -> str:
    latent_format = patcher.get_model_object("latent_format")
    return f"{latent_format.latent_channels}-channel {type(latent_format).__name__}"


@contextmanager
def running(
    draft: ModelPatcher, guider: Any, noise: Tensor, latent_image: Tensor, mask: Tensor | None, seed: int | None
) -> Iterator[tuple[Predict, dict[str, Any]]]:
    """The draft's denoised prediction with the target's prompts and CFG, while the block runs; and its processed conds.

    noise, latent_image [B, ...] and mask: what the target's conditioning was encoded with.
    """
    model, device = draft.model, draft.load_device
    conds = {name: [_strip(cond) for cond in group] for name, group in guider.original_conds.items()}
    options = comfy.model_patcher.create_model_options_clone(draft.model_options)
    try:
        draft.pre_run()
        conds = comfy.samplers.process_conds(
            model, noise, conds, device, latent_image=latent_image, denoise_mask=mask, seed=seed
        )
        negative, positive = conds.get("negative"), conds.get("positive")

        def predict(x: Tensor, sigma: Tensor) -> Tensor:
            return comfy.samplers.sampling_function(
                model, x, sigma, negative, positive, guider.cfg, model_options=options, seed=seed
            )

        yield predict, conds
    finally:
        draft.cleanup()


def _strip(cond: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in cond.items() if name not in _STRIPPED}
