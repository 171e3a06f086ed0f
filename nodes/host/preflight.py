"""Whether rows at different sigmas may share a call.

Most ComfyUI extras look at row 0 only: whatever is not known to be safe falls back to the plain sampler and says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import comfy.conds
import comfy.model_base
import comfy.samplers
from torch import Tensor

from .memory import KEY

# Models whose rows were found not to mix (agreement with single calls), by class: subclasses may add anything.
MODELS = ("BaseModel", "SDXL", "SD3", "Flux")
NETWORKS = ("UNetModel", "OpenAISignatureMMDITWrapper", "Flux")

# Options that leave every row to itself.
OPTIONS = frozenset({"transformer_options", "to_load_options", "disable_cfg1_optimization"})
TRANSFORMER_OPTIONS = frozenset({"sample_sigmas", "wrappers", "callbacks", "rope_options"})
OBJECT_PATCHES = frozenset({"model_sampling", "latent_format", "manual_cast_dtype"})

_PLAIN_NAMES = {
    "denoise_mask_function": "differential diffusion or another mask function",
    "context_handler": "context windows",
    "sampler_cfg_function": "a patched CFG function",
    "sampler_pre_cfg_function": "a pre-CFG patch",
    "sampler_post_cfg_function": "a post-CFG patch",
    "sampler_calc_cond_batch_function": "a patched conditioning batch",
    "model_function_wrapper": "a model function wrapper",
    "registered_hooks": "hooks",
    "multigpu_clones": "several GPUs",
    "patches": "model patches",
    "patches_replace": "replaced attention blocks",
}

_COND_EXTRAS = {
    "control": "a ControlNet",
    "hooks": "hooks on conditioning",
    "gligen": "GLIGEN",
    "default": "default conditioning of hooks",
}


@dataclass(frozen=True)
class Decision:
    """refusal: why rows may not share a call, "" if they may. whole_batches: conditioning differs between images."""

    refusal: str = ""
    whole_batches: bool = False


def decide(guider: Any, model_options: Mapping[str, Any], sigmas: Tensor, images: int) -> Decision:
    """Look at a guider that is about to sample: its model, options and processed conds.

    sigmas: [N + 1], the schedule. images: B.
    """
    conds = [cond for group in guider.conds.values() for cond in group or ()]
    refusal = _guider(guider) or _model(guider.model_patcher) or _options(model_options)
    if refusal := refusal or _extras(conds) or _ranges(conds, sigmas):
        return Decision(refusal)
    batches = set(_batches(conds))
    if None in batches:
        return Decision("conditioning of an unknown kind")
    uneven = sorted(n for n in batches if n is not None and images % n)
    if uneven:
        return Decision(f"a conditioning batch of {uneven[0]} for {images} image{'s' * (images > 1)}")
    return Decision(whole_batches=any(n != 1 for n in batches))


def static_refusal(patcher: Any, conds: Sequence[Mapping[str, Any]] = ()) -> str:
    """Why a model cannot take rows at different sigmas, as far as it shows before sampling; "" if it seems it can."""
    return _model(patcher) or _options(patcher.model_options) or _wrappers(vars(patcher)) or _extras(conds)


def _guider(guider: Any) -> str:
    stock = comfy.samplers.CFGGuider
    for name in ("__call__", "outer_predict_noise", "predict_noise"):
        if getattr(type(guider), name, None) is not getattr(stock, name):
            return f"the guider {type(guider).__name__}"
    return ""


def _model(patcher: Any) -> str:
    model = patcher.model
    kind = type(model)
    if kind.__module__ != comfy.model_base.__name__ or kind.__name__ not in MODELS:
        return f"the model type {kind.__name__} has not been checked"
    network = type(patcher.get_model_object("diffusion_model"))
    if not network.__module__.startswith("comfy.ldm.") or network.__name__ not in NETWORKS:
        return f"the network type {network.__name__} has not been checked"
    unknown = sorted(set(patcher.object_patches) - OBJECT_PATCHES)
    if unknown:
        return f"the patched object {unknown[0]}"
    for name, what in (("injections", "injected code"), ("hook_patches", "weight hooks")):
        if getattr(patcher, name, None):
            return what
    return ""


def _options(model_options: Mapping[str, Any]) -> str:
    for name, value in model_options.items():
        if name not in OPTIONS and value:
            return _PLAIN_NAMES.get(name, f"the model option {name}")
    options = model_options.get("transformer_options", {})
    for name, value in options.items():
        # Emptiness is asked for containers only: a tensor has no truth value.
        if name not in TRANSFORMER_OPTIONS and not (isinstance(value, (dict, list)) and not value):
            return _PLAIN_NAMES.get(name, f"the transformer option {name}")
    return _wrappers(options)


def _wrappers(holder: Mapping[str, Any]) -> str:
    for kind in ("wrappers", "callbacks"):
        for where, by_key in holder.get(kind, {}).items():
            if foreign := [key for key, functions in by_key.items() if functions and key != KEY]:
                return f"the {kind[:-1]} {foreign[0] or 'without a name'} ({where})"
    return ""


def _extras(conds: Iterable[Mapping[str, Any]]) -> str:
    for cond in conds:
        for name, what in _COND_EXTRAS.items():
            if cond.get(name) is not None:
                return what
    return ""


def _ranges(conds: Iterable[Mapping[str, Any]], sigmas: Tensor) -> str:
    values = sigmas[:-1].tolist()
    for cond in conds:
        start, end = cond.get("timestep_start"), cond.get("timestep_end")
        active = {(start is None or s <= start) and (end is None or s >= end) for s in values}
        if len(active) > 1:
            return "conditioning for a part of the steps"
    return ""


def _batches(conds: Iterable[Mapping[str, Any]]) -> Iterator[int | None]:
    """The batch of every tensor the conds bring; None for a kind of cond that is not known."""
    for cond in conds:
        if (mask := cond.get("mask")) is not None:
            yield len(mask)
        for value in cond.get("model_conds", {}).values():
            kind = type(value)
            if kind is comfy.conds.CONDConstant:
                continue
            if kind is comfy.conds.CONDList:
                yield from (len(tensor) for tensor in value.cond)
            elif kind in (comfy.conds.CONDRegular, comfy.conds.CONDNoiseShape, comfy.conds.CONDCrossAttn):
                yield len(value.cond)
            else:
                yield None
