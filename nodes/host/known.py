"""ComfyUI's own patches, and what each means for rows that share a call; found out by reading and tried by tests.

A patch is known by the file and the name of its function. Anything else is unknown and never takes the fast way.
"""

from __future__ import annotations

import dis
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import CodeType, FunctionType
from typing import Any

import comfy.samplers
from torch import Tensor

from .finding import Finding, Mode

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(comfy.samplers.__file__)))
_PARTS = tuple(os.path.join(_ROOT, part) + os.sep for part in ("comfy", "comfy_extras", "comfy_api"))


def examine(function: Any, what: str) -> Finding:
    """What a patch, wrapper or callback does to rows. what: its kind, for the reason."""
    name = _name(function)
    if name in _KNOWN:
        found = _KNOWN[name](_closure(function))
        return replace(found, what=found.what or name.split(".")[1])
    shown = f"{what}{f' ({_shown(function)})' if _shown(function) else ''}"
    if "cache" in _whence(function).lower():
        return Finding(f"{shown}: it looks like a cache, which keeps values from call to call", Mode.PLAIN)
    if keeps_values(function):
        return Finding(f"{shown}: it keeps values from call to call", Mode.PLAIN)
    return Finding(shown, Mode.NODE, guess=True)


def of_host(function: Any) -> bool:
    """Whether a function was defined in a file of ComfyUI itself."""
    code = getattr(function, "__code__", None)
    return code is not None and os.path.abspath(code.co_filename).startswith(_PARTS)


def keeps_values(function: Any) -> bool:
    """Whether a function is seen to store something that outlives a call.

    It sees assignments to outer variables and to attributes, in the function, those defined in it and those it wraps,
    not in others it calls: what it does not see is tried at run time.
    """
    function = getattr(function, "func", function)  # functools.partial
    if not hasattr(function, "__code__") and not hasattr(function, "__func__"):
        function = getattr(type(function), "__call__", None)  # an object that can be called  # noqa: B004
    function = getattr(function, "__func__", function)
    seen: set[int] = set()
    waiting = [function] if hasattr(function, "__code__") else []
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if _stores(one.__code__):
            return True
        waiting += [value for value in _closure(one).values() if isinstance(value, FunctionType)]
    return False


def _stores(code: CodeType, outer: frozenset[str] = frozenset()) -> bool:
    # Variables of the function itself do not outlive the call, even where a function within assigns to them.
    foreign = set(code.co_freevars) - outer
    for op in dis.get_instructions(code):
        if op.opname in ("STORE_GLOBAL", "STORE_ATTR") or (op.opname == "STORE_DEREF" and op.argval in foreign):
            return True
    inner = outer | set(code.co_cellvars)
    return any(_stores(const, inner) for const in code.co_consts if isinstance(const, CodeType))


def _name(function: Any) -> str:
    """ "nodes_cfg.CFGZeroStar.execute.<locals>.cfg_zero_star" for a function of the host, "" for any other."""
    if not of_host(function):
        return ""
    file = os.path.splitext(os.path.basename(function.__code__.co_filename))[0]
    return f"{file}.{function.__qualname__}"


def _shown(function: Any) -> str:
    """A short name for people."""
    name = getattr(function, "__qualname__", "") or type(function).__name__
    return "" if "<lambda>" in name else name.split(".<locals>.")[-1]


def _whence(function: Any) -> str:
    """Its own name, its class and its file."""
    own, module = getattr(function, "__qualname__", "").split(".")[-1], getattr(function, "__module__", "")
    return f"{own} {type(function).__name__} {module}"


def _closure(function: Any) -> dict[str, Any]:
    """The outer variables of a function, by name."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # a variable that has no value yet
            found[name] = cell.cell_contents
    return found


Read = Callable[[Mapping[str, Any]], Finding]


def _rowwise(values: Mapping[str, Any]) -> Finding:
    return Finding("")


def _plain(reason: str) -> Read:
    return lambda values: Finding(reason, Mode.PLAIN)


def _mixing(what: str) -> Read:
    """Rows of a call change each other."""
    return lambda values: Finding(what, Mode.NODE, mixes=True)


def _span(what: str, values: Mapping[str, Any]) -> Finding:
    """Works between two noise levels, and asks the first row whether it is there."""
    start, end = float(values["sigma_start"]), float(values["sigma_end"])

    def active(sigmas: Tensor) -> list[bool]:
        return [end <= sigma <= start for sigma in sigmas.tolist()]

    return Finding(what, active=active)


def _skip_layers(values: Mapping[str, Any]) -> Finding:
    if values.get("rescaling_scale"):
        return Finding("SkipLayerGuidance with rescaling", Mode.NODE, mixes=True)
    return _span("SkipLayerGuidance", values)


def _apg(values: Mapping[str, Any]) -> Finding:
    if values["momentum"] != 0:
        return Finding("APG with momentum keeps its average from call to call", Mode.PLAIN)
    return Finding("")


_RANDOM = "is random inside: no exact distribution of its pictures exists"
_FRAMES = "treats the batch as the frames of a video"

_KNOWN: dict[str, Read] = {
    "nodes_apg.APG.execute.<locals>.pre_cfg_function": _apg,
    "nodes_cfg.CFGNorm.execute.<locals>.cfg_norm": _rowwise,
    "nodes_cfg.CFGZeroStar.execute.<locals>.cfg_zero_star": _rowwise,
    "nodes_differential_diffusion.DifferentialDiffusion.execute.<locals>.<lambda>": _rowwise,
    "nodes_differential_diffusion.DifferentialDiffusion.forward": _rowwise,
    "nodes_eps.EpsilonScaling.execute.<locals>.epsilon_scaling_function": _rowwise,
    "nodes_eps.TemporalScoreRescaling.execute.<locals>.temporal_score_rescaling": _mixing("TemporalScoreRescaling"),
    "nodes_freelunch.FreeU.execute.<locals>.output_block_patch": _rowwise,
    "nodes_freelunch.FreeU.patch.<locals>.output_block_patch": _rowwise,
    "nodes_freelunch.FreeU_V2.execute.<locals>.output_block_patch": _rowwise,
    "nodes_freelunch.FreeU_V2.patch.<locals>.output_block_patch": _rowwise,
    "nodes_fresca.FreSca.execute.<locals>.custom_cfg_function": _rowwise,
    "nodes_hypertile.HyperTile.execute.<locals>.hypertile_in": _plain(f"HyperTile {_RANDOM}"),
    "nodes_hypertile.HyperTile.execute.<locals>.hypertile_out": _plain(f"HyperTile {_RANDOM}"),
    "nodes_lumina2.RenormCFG.execute.<locals>.renorm_cfg_func": _mixing("RenormCFG"),
    "nodes_mahiro.Mahiro.execute.<locals>.mahiro_normd": _mixing("Mahiro"),
    "nodes_model_advanced.RescaleCFG.patch.<locals>.rescale_cfg": _rowwise,
    "nodes_model_downscale.PatchModelAddDownscale.execute.<locals>.input_block_patch": lambda values: _span(
        "PatchModelAddDownscale", values
    ),
    "nodes_model_downscale.PatchModelAddDownscale.execute.<locals>.output_block_patch": _rowwise,
    "nodes_pag.PerturbedAttentionGuidance.execute.<locals>.post_cfg_function": _rowwise,
    "nodes_perpneg.PerpNeg.execute.<locals>.cfg_function": _mixing("PerpNeg"),
    # What it records is used within the same call.
    "nodes_sag.SelfAttentionGuidance.execute.<locals>.attn_and_record": _rowwise,
    "nodes_sag.SelfAttentionGuidance.execute.<locals>.post_cfg_function": _rowwise,
    "nodes_slg.SkipLayerGuidanceDiT.execute.<locals>.post_cfg_function": _skip_layers,
    "nodes_slg.SkipLayerGuidanceDiTSimple.execute.<locals>.calc_cond_batch_function": _skip_layers,
    "nodes_tcfg.TCFG.execute.<locals>.tangential_damping_cfg": _rowwise,
    "nodes_tomesd.TomePatchModel.execute.<locals>.tomesd_m": _plain(f"TomePatchModel {_RANDOM}"),
    "nodes_tomesd.TomePatchModel.execute.<locals>.tomesd_u": _plain(f"TomePatchModel {_RANDOM}"),
    "nodes_video_model.VideoLinearCFGGuidance.patch.<locals>.linear_cfg": _plain(f"VideoLinearCFGGuidance {_FRAMES}"),
    "nodes_video_model.VideoTriangleCFGGuidance.patch.<locals>.linear_cfg": _plain(
        f"VideoTriangleCFGGuidance {_FRAMES}"
    ),
    "torch_compile.apply_torch_compile_factory.<locals>.apply_torch_compile_wrapper": _rowwise,
}
