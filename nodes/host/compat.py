"""What differs between ComfyUI releases (0.3.75 to 0.33 were read), and the kinds of model sampling."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import comfy.model_management
import comfy.model_sampling
import comfy.sample
from torch import Tensor

if TYPE_CHECKING:
    from comfy.model_patcher import ModelPatcher

Latent = dict[str, Any]

# Newer releases note on an empty latent for which autoencoder it was made.
_HINTS = ("downscale_ratio_spacial", "downscale_ratio_temporal")


def fix_latent(model: ModelPatcher, latent: Latent) -> Tensor:
    """The samples of a LATENT, an empty one brought to the model's channels and size as in KSampler."""
    fix = comfy.sample.fix_empty_latent_channels
    hints = {name: latent.get(name) for name in _HINTS if name in inspect.signature(fix).parameters}
    return fix(model, latent["samples"], **hints)


def replace_samples(latent: Latent, samples: Tensor) -> Latent:
    """A copy of the LATENT that holds `samples`."""
    out = {name: value for name, value in latent.items() if name not in _HINTS}
    out["samples"] = samples
    return out


def is_flow(model_sampling: object) -> bool:
    """Whether x = (1 - sigma) x0 + sigma n, as in SD3 and Flux, and not x0 + sigma n."""
    return isinstance(model_sampling, comfy.model_sampling.CONST)


def is_variance_exploding(model_sampling: object) -> bool:
    """Whether x = x0 + sigma n: eps, v and EDM models, and Cosmos' form of a flow."""
    kinds = (comfy.model_sampling.EPS, comfy.model_sampling.COSMOS_RFLOW)
    return isinstance(model_sampling, kinds)


def noise_scale(model_sampling: object) -> float:
    """The factor of s_noise in newer releases; 1 for nearly every model."""
    return float(getattr(model_sampling, "noise_scale", 1.0))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the device's memory does not suffice."""
    management = comfy.model_management
    # Newer releases know errors of the driver too, and clear them away.
    if hasattr(management, "is_oom"):
        return bool(management.is_oom(error))
    # ComfyUI names Exception itself where torch has no such error.
    return management.OOM_EXCEPTION is not Exception and isinstance(error, management.OOM_EXCEPTION)


def out_of_memory(message: str) -> Exception:
    """The error for which ComfyUI frees models and gives advice."""
    kind = comfy.model_management.OOM_EXCEPTION
    return kind(message) if isinstance(kind, type) else MemoryError(message)


CHECKED = ("0.3.75",)
"""The releases whose patches were read and tried one by one."""


def is_checked() -> bool:
    """Whether the ComfyUI that runs is one of them."""
    try:
        from comfyui_version import __version__
    except ImportError:
        return False
    return __version__ in CHECKED


def to_ascii(text: str) -> str:
    """For the log: a name from another pack may hold what a console cannot show."""
    return text.encode("ascii", "backslashreplace").decode("ascii")
