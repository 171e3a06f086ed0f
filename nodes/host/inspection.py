"""Looks through a graph that is about to sample: guider, model, options, conditioning, hooks, ControlNets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import comfy.conds
import comfy.controlnet
import comfy.hooks
import comfy.model_base
import comfy.samplers
import torch
from torch import Tensor

from .finding import Finding, Mode
from .known import examine, of_host
from .memory import KEY

# Models whose rows were found not to mix (agreement with single calls) and their networks, by class: subclasses may add
# anything.
MODELS = {
    "BaseModel": "UNetModel",
    "SDXL": "UNetModel",
    "SD3": "OpenAISignatureMMDITWrapper",
    "AuraFlow": "MMDiT",
    "Flux": "Flux",
    "Chroma": "Chroma",
    "Lumina2": "NextDiT",
    "HiDream": "HiDreamImageTransformer2DModel",
    "QwenImage": "QwenImageTransformer2DModel",
    "WAN21": "WanModel",
    "HunyuanVideo": "HunyuanVideo",
}
FRAMES = ("SVD_img2vid", "SV3D_u", "SV3D_p")
CONTROL_NETWORKS = (
    "comfy.cldm.cldm.ControlNet",
    "comfy.cldm.mmdit.ControlNet",
    "comfy.cldm.dit_embedder.ControlNetEmbedder",
)
GUIDERS = ("Guider_Basic", "Guider_DualCFG")

# Options that leave every row to itself.
OPTIONS = frozenset({"to_load_options", "disable_cfg1_optimization", "torch_compile_kwargs", "registered_hooks"})
TRANSFORMER_OPTIONS = frozenset({"sample_sigmas", "rope_options"})
OBJECT_PATCHES = frozenset({"model_sampling", "latent_format", "manual_cast_dtype"})

# Options that hold functions, by what people call them.
FUNCTIONS = {
    "denoise_mask_function": "a mask function",
    "sampler_cfg_function": "a patched CFG function",
    "sampler_pre_cfg_function": "a pre-CFG patch",
    "sampler_post_cfg_function": "a post-CFG patch",
    "sampler_calc_cond_batch_function": "a patched conditioning batch",
    "model_function_wrapper": "a model function wrapper",
}
PLAIN_OPTIONS = {
    "context_handler": "context windows divide a latent anew at every call",
    "multigpu_clones": "several GPUs",
    "easycache": "EasyCache and LazyCache keep answers from call to call",
}


def graph(guider: Any, model_options: Mapping[str, Any]) -> Iterator[Finding]:
    """Everything that rows may meet in a guider that is about to sample, with its conds processed."""
    yield from _guider(guider)
    yield from model(guider.model_patcher)
    yield from options(model_options)
    yield from conditioning(cond for group in guider.conds.values() for cond in group or ())


def _guider(guider: Any) -> Iterator[Finding]:
    stock, kind = comfy.samplers.CFGGuider, type(guider)
    names = ("__call__", "outer_predict_noise", "predict_noise")
    changed = [name for name in names if getattr(kind, name, None) is not getattr(stock, name)]
    if any(name in vars(guider) for name in names):
        yield Finding(f"the guider {kind.__name__}, patched", Mode.NODE, guess=True)
    elif changed and all(of_host(getattr(kind, name)) for name in changed):
        if kind.__name__ == "Guider_PerpNeg":
            yield Finding("PerpNeg", Mode.NODE, mixes=True)
        elif kind.__name__ not in GUIDERS:
            yield Finding(f"the guider {kind.__name__}", Mode.NODE, guess=True)
    elif changed:
        yield Finding(f"the guider {kind.__name__}", Mode.NODE, guess=True)


def model(patcher: Any) -> Iterator[Finding]:
    """What shows in a model and its patcher."""
    kind = type(patcher.model)
    known = MODELS.get(kind.__name__) if kind.__module__ == comfy.model_base.__name__ else None
    if kind.__module__ == comfy.model_base.__name__ and kind.__name__ in FRAMES:
        yield Finding(f"the model type {kind.__name__} treats the batch as the frames of a video", Mode.PLAIN)
    elif known is None:
        yield Finding(f"the model type {kind.__name__} has not been checked", Mode.NODE, guess=True)
    network = patcher.get_model_object("diffusion_model")
    # torch.compile wraps a network without changing what it does.
    compiled = getattr(network, "_orig_mod", None)
    network = type(network if compiled is None else compiled)
    if known is not None and (not network.__module__.startswith("comfy.ldm.") or network.__name__ != known):
        yield Finding(f"the network type {network.__name__} has not been checked", Mode.NODE, guess=True)
    original = patcher.object_patches_backup.get("diffusion_model", patcher.model.diffusion_model)
    for name, value in patcher.object_patches.items():
        same = name == "diffusion_model" and getattr(value, "_orig_mod", None) is original
        if name not in OBJECT_PATCHES and not same:
            yield Finding(f"the patched object {name}", Mode.NODE, guess=True)
    sampling = type(patcher.get_model_object("model_sampling"))
    for name in ("calculate_input", "calculate_denoised", "noise_scaling", "timestep"):
        if not of_host(getattr(sampling, name, None)):
            yield Finding(f"the patched noise schedule {sampling.__name__}", Mode.NODE, guess=True)
            break
    if getattr(patcher, "injections", None):
        yield Finding("injected code, as of motion models", Mode.PLAIN)


def options(model_options: Mapping[str, Any]) -> Iterator[Finding]:
    """What shows in model options."""
    for name, value in model_options.items():
        if name in OPTIONS or name == "transformer_options" or _is_empty(value):
            continue
        if name in FUNCTIONS:
            yield from (examine(one, FUNCTIONS[name]) for one in _as_list(value))
        elif name in PLAIN_OPTIONS:
            yield Finding(PLAIN_OPTIONS[name], Mode.PLAIN)
        else:
            yield Finding(f"the model option {name}", Mode.NODE, guess=True)
    yield from transformer_options(model_options.get("transformer_options", {}))


def _is_empty(value: Any) -> bool:
    # Asked of containers and plain values only: a tensor has no truth value.
    return value is None or (isinstance(value, (dict, list, tuple, bool, str, int, float)) and not value)


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def transformer_options(given: Mapping[str, Any]) -> Iterator[Finding]:
    """What shows in transformer options."""
    for name, value in given.items():
        if name in TRANSFORMER_OPTIONS or (isinstance(value, (dict, list)) and not value):
            continue
        if name == "patches":
            for place, functions in value.items():
                yield from (examine(one, f"model patches ({place})") for one in _as_list(functions))
        elif name == "patches_replace":
            for by_block in value.values():
                yield from (examine(one, "replaced attention blocks") for one in by_block.values())
        elif name in ("wrappers", "callbacks"):
            yield from wrappers(name[:-1], value)
        elif name in PLAIN_OPTIONS:
            yield Finding(PLAIN_OPTIONS[name], Mode.PLAIN)
        elif "cache" in name.lower():
            yield Finding(f"the transformer option {name} looks like a cache", Mode.PLAIN)
        else:
            yield Finding(f"the transformer option {name}", Mode.NODE, guess=True)


def wrappers(kind: str, given: Mapping[str, Mapping[Any, Iterable[Any]]]) -> Iterator[Finding]:
    """kind: "wrapper" or "callback"; given: functions by place and key."""
    for where, by_key in given.items():
        for key, functions in by_key.items():
            if key == KEY:
                continue
            for one in functions:
                found = examine(one, f"the {kind} {key or 'without a name'} ({where})")
                if "cache" in str(key).lower():
                    found = Finding(f"the {kind} {key} ({where}) looks like a cache", Mode.PLAIN)
                yield found


def conditioning(conds: Iterable[Mapping[str, Any]]) -> Iterator[Finding]:
    """What shows in conditioning, before or after the host has processed it."""
    for cond in conds:
        start, end = cond.get("timestep_start"), cond.get("timestep_end")
        if start is not None or end is not None:
            yield Finding("conditioning for a part of the steps", active=_between(start, end))
        if (control := cond.get("control")) is not None:
            yield from _control(control)
        if (hooks := cond.get("hooks")) is not None:
            yield from _hooks(hooks)


def _between(start: float | None, end: float | None) -> Any:
    """The host's own comparison, in the schedule's precision."""

    def active(sigmas: Tensor) -> list[bool]:
        inside = torch.ones_like(sigmas, dtype=torch.bool)
        if start is not None:
            inside &= ~(sigmas > start)
        if end is not None:
            inside &= ~(sigmas < end)
        return inside.tolist()

    return active


def _control(control: Any) -> Iterator[Finding]:
    yield Finding("a ControlNet")
    for net in _chain(control):
        kind = type(net)
        if kind is comfy.controlnet.T2IAdapter:
            # It encodes its hint once, for the rows of the first call.
            if isinstance(net.cond_hint_original, Tensor) and len(net.cond_hint_original) > 1:
                yield Finding("a T2I adapter with a hint for each image", Mode.NODE)
        elif kind in (comfy.controlnet.ControlNet, comfy.controlnet.ControlNetSD35):
            network = type(net.control_model)
            if f"{network.__module__}.{network.__name__}" not in CONTROL_NETWORKS:
                yield Finding(f"a ControlNet of the kind {network.__module__}", Mode.NODE, guess=True)
        elif kind is not comfy.controlnet.ControlLora:
            yield Finding(f"a ControlNet of the kind {kind.__name__}", Mode.NODE, guess=True)
        if (span := getattr(net, "timestep_range", None)) is not None:
            yield Finding("a ControlNet for a part of the steps", active=_between(*span))


def _chain(control: Any) -> Iterator[Any]:
    while control is not None:
        yield control
        control = getattr(control, "previous_controlnet", None)


def _hooks(group: Any) -> Iterator[Finding]:
    yield Finding("hooks")
    for hook in group.hooks:
        if isinstance(hook, comfy.hooks.TransformerOptionsHook):
            yield from transformer_options(hook.transformers_dict or {})
        elif not isinstance(hook, (comfy.hooks.WeightHook, comfy.hooks.AdditionalModelsHook)):
            yield Finding(f"a hook of the kind {type(hook).__name__}", Mode.PLAIN)


def batches(conds: Iterable[Mapping[str, Any]]) -> Iterator[int | None]:
    """The batch of every tensor that processed conds bring; None for a kind of cond that is not known."""
    for cond in conds:
        if (mask := cond.get("mask")) is not None:
            yield len(mask)
        for net in _chain(cond.get("control")):
            for hint in (getattr(net, "cond_hint_original", None), *getattr(net, "extra_concat_orig", ())):
                if isinstance(hint, Tensor):
                    yield len(hint)
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


def hook_groups(conds: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The hook groups of conds, each once."""
    return list({id(group): group for cond in conds if (group := cond.get("hooks")) is not None}.values())
