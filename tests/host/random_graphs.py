"""Random small graphs: what ComfyUI's nodes can be combined to, from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tiny_models
import torch
from graphs import Graph, cfg, node, patched

HOOK_KEY = {
    "flow": "diffusion_model.joint_blocks.0.x_block.attn.qkv.weight",
    "eps": "diffusion_model.middle_block.1.transformer_blocks.0.attn1.to_q.weight",
}
HOOK_KEY["v"] = HOOK_KEY["eps"]
SHAPES = {"flow": (16, 8, 8), "eps": (4, 8, 8), "v": (4, 8, 8), "flux": (16, 8, 8), "wan": (16, 2, 8, 8)}
TREES: list[tuple[int, ...] | str] = [(1,), (2,), (1, 1), (2, 1), (1, 1, 1), (3, 1), "auto"]


@dataclass
class Case:
    """A graph, the tree of our sampler, and what it is made of.

    random: results differ from run to run. draft: a draft model or None.
    """

    graph: Graph
    tree: dict[str, Any]
    parts: list[str]
    random: bool
    draft: Any


@dataclass
class _Maker:
    """Draws one part after the other; each notes itself in `parts` and changes what it is about."""

    seed: int
    parts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.kind = str(self.rng.choice(["flow", "eps", "v", "flux", "wan"], p=[0.35, 0.3, 0.1, 0.15, 0.1]))
        self.batch = int(self.rng.choice([1, 2, 3], p=[0.4, 0.35, 0.25]))
        self.random = False
        self.model = self.plain().clone()
        self.guider: Callable[[Any, Any], Callable[[], Any]] | None = None
        self.note(f"{self.kind} x {self.batch}")

    def plain(self) -> Any:
        """The network without anything."""
        build = {"flux": tiny_models.flux, "wan": tiny_models.wan}.get(self.kind)
        return build() if build else tiny_models.build(self.kind)

    @property
    def unet(self) -> bool:
        return self.kind in ("eps", "v")

    def note(self, part: str) -> None:
        self.parts.append(part)

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def count(self, what: str) -> int:
        """1, one for each image, or seldom a number that fits neither."""
        n = int(self.rng.choice([1, self.batch, 5 - self.batch], p=[0.5, 0.44, 0.06]))
        self.note(f"{what} x {n}")
        return n

    def tensor(self, *shape: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(int(self.rng.integers(2**31)))
        return torch.randn(shape, generator=generator)

    def span(self) -> tuple[float, float]:
        start = float(self.rng.choice([0.0, 0.0, 0.2, 0.5]))
        return start, float(self.rng.choice([0.4, 0.7, 1.0])) if start < 0.4 else 1.0


def make(seed: int) -> Case:
    """The case of a seed, built anew at every call."""
    m = _Maker(seed)
    positive, negative = _prompts(m)
    positive = _control(m, positive)
    _patches(m)
    positive = _weights(m, positive)
    mask = _mask(m)
    guider = _guider(m, positive, negative)
    shape = SHAPES[m.kind]
    latent = torch.zeros(m.batch, *shape) if m.chance(0.4) else m.tensor(m.batch, *shape)
    if m.kind == "flow" and not latent.any() and m.chance(0.3):
        latent = torch.zeros(m.batch, 4, *shape[1:])
        m.note("4 channels")
    graph = Graph(
        guider, latent, mask, steps=int(m.rng.choice([1, 2, 3, 4, 6, 8], p=[0.03, 0.05, 0.12, 0.2, 0.3, 0.3]))
    )
    graph.sampler_name = str(m.pick(*(["euler_ancestral"] * 4), "lcm", *(["ddpm"] if m.unet else [])))
    if graph.sampler_name == "euler_ancestral" and m.chance(0.2):
        graph.options = {"eta": float(m.pick(0.0, 0.5, 0.8, 0.9)), "s_noise": float(m.pick(1.0, 1.1))}
    graph.scheduler = str(m.pick("simple", "simple", "normal", "karras", "beta"))
    graph.denoise = float(m.pick(1.0, 1.0, 0.6))
    if m.chance(0.2):
        graph.numbers = [int(n) for n in m.rng.permutation(6)[: m.batch]]
    tree = {
        "widths": m.pick(*TREES),
        "rule": str(m.pick("optimal", "rass", "greedy", "reflection")),
        "drafter": str(m.pick("frozen", "look_ahead")),
        "most_rows": 6,
    }
    if tree["rule"] == "reflection" and tree["widths"] != "auto":
        tree["widths"] = (1, 1)
    m.note(f"{graph.sampler_name} {graph.steps} steps {graph.scheduler} {graph.denoise} {graph.options} {tree}")
    return Case(graph, tree, m.parts, m.random, _draft(m))


def _draft(m: _Maker) -> Any:
    """A model near the target, seldom."""
    if not m.chance(0.2):
        return None
    m.note("draft model")
    draft = m.plain()
    with torch.no_grad():
        for weight in draft.model.diffusion_model.parameters():
            weight.add_(0.002 * m.tensor(*weight.shape))
    return draft


def _prompts(m: _Maker) -> tuple[list[Any], list[Any]]:
    positive = tiny_models.conditioning(1, m.count("prompts"))
    negative = tiny_models.conditioning(2, m.count("negative") if m.chance(0.2) else 1)
    if m.chance(0.35):
        start, end = m.span()
        positive = _with(positive, start_percent=start, end_percent=end) + tiny_models.conditioning(3)
        m.note(f"range {start} to {end}")
    if m.chance(0.2) and m.kind != "wan":
        masks = m.tensor(m.count("regions"), 64, 64).sigmoid()
        positive = positive + _with(tiny_models.conditioning(4), mask=masks, mask_strength=0.8)
    if m.chance(0.15) and m.kind != "wan":
        positive = positive + _with(tiny_models.conditioning(5), area=(4, 6, 2, 0), strength=0.7)
        m.note("area")
    if m.kind == "flux":
        positive = _with(positive, guidance=float(m.pick(1.0, 3.5)))
        if m.chance(0.4):
            positive = _with(positive, reference_latents=[m.tensor(1, 16, 8, 8)])
            m.note("reference")
    if m.unet and m.chance(0.12):
        places = ("position", tiny_models.gligen(), [(m.tensor(1, tiny_models.WIDTH), 4, 4, 1, 2)])
        positive = _with(positive[:1], gligen=places) + positive[1:]
        m.note("gligen")
    return positive, negative


def _with(conditioning: list[Any], **values: Any) -> list[Any]:
    return [[tensor, {**given, **values}] for tensor, given in conditioning]


def _control(m: _Maker, positive: list[Any]) -> list[Any]:
    if not (m.unet or m.kind == "flow") or not m.chance(0.3):
        return positive
    for turn in range(1 + m.chance(0.3)):
        if m.kind == "flow":
            net, hint = tiny_models.sd3_controlnet(turn), m.tensor(m.count("hints"), 16, 8, 8)
        elif m.chance(0.25):
            net, hint = tiny_models.t2i_adapter(turn), m.tensor(m.count("adapter hints"), 3, 64, 64)
        else:
            net, hint = tiny_models.controlnet(turn), m.tensor(m.count("hints"), 3, 64, 64)
        net.set_cond_hint(hint, float(m.pick(1.0, 0.6)), m.span() if m.chance(0.5) else (0.0, 1.0))
        net.set_previous_controlnet(positive[0][1].get("control"))
        m.note(f"control {net.timestep_percent_range}")
        positive = _with(positive, control=net, control_apply_to_uncond=True)
    return positive


def _patches(m: _Maker) -> None:
    for _ in range(int(m.rng.choice([0, 1, 2], p=[0.5, 0.4, 0.1]))):
        names = [name for name, (kinds, _) in PATCHES.items() if m.kind in kinds]
        name = str(m.pick(*names))
        m.note(name)
        m.model = PATCHES[name][1](m)


def _clone(change: Callable[[Any], None]) -> Callable[[_Maker], Any]:
    def apply(m: _Maker) -> Any:
        model = m.model.clone()
        change(model)
        return model

    return apply


def _core(module: str, name: str, **values: Any) -> Callable[[_Maker], Any]:
    return lambda m: patched(m.model, module, name, **values)


def _accumulates() -> Callable[[dict[str, Any]], Any]:
    last = None

    def patch(args: dict[str, Any]) -> Any:
        nonlocal last
        last = args["denoised"] if last is None else 0.9 * args["denoised"] + 0.1 * last
        return last

    return patch


def _random(m: _Maker) -> Any:
    m.random = True
    model = m.model.clone()
    model.set_model_sampler_post_cfg_function(lambda args: args["denoised"] + 0.1 * torch.randn_like(args["denoised"]))
    return model


def _skip(m: _Maker) -> Any:
    start, end = m.span()
    values = {"scale": 2.0, "double_layers": "0", "single_layers": "", "start_percent": start, "end_percent": end}
    return patched(m.model, "nodes_slg", "SkipLayerGuidanceDiT", **values, rescaling_scale=float(m.pick(0.0, 0.0, 0.5)))


_ALL = ("flow", "eps", "v", "flux", "wan")
_FLAT = ("flow", "eps", "v", "flux")
_UNET = ("eps", "v")
PATCHES: dict[str, tuple[tuple[str, ...], Callable[[_Maker], Any]]] = {
    "RescaleCFG": (_UNET, _core("nodes_model_advanced", "RescaleCFG", multiplier=0.7)),
    "CFGZeroStar": (_ALL, _core("nodes_cfg", "CFGZeroStar")),
    "CFGNorm": (_ALL, _core("nodes_cfg", "CFGNorm", strength=1.0)),
    "TCFG": (_ALL, _core("nodes_tcfg", "TCFG")),
    "APG": (_FLAT, _core("nodes_apg", "APG", eta=0.5, norm_threshold=5.0, momentum=0.0)),
    "APG with momentum": (_FLAT, _core("nodes_apg", "APG", eta=0.5, norm_threshold=5.0, momentum=-0.3)),
    "Mahiro": (_ALL, _core("nodes_mahiro", "Mahiro")),
    "RenormCFG": (("flow",), _core("nodes_lumina2", "RenormCFG", cfg_trunc=0.8, renorm_cfg=1.0)),
    "FreSca": (_FLAT, _core("nodes_fresca", "FreSca", scale_low=1.0, scale_high=1.25, freq_cutoff=2)),
    "EpsilonScaling": (_ALL, _core("nodes_eps", "EpsilonScaling", scaling_factor=1.01)),
    "skip layers": (("flow",), _skip),
    "skip layers again": (("flow",), _skip),
    "PAG": (_UNET, _core("nodes_pag", "PerturbedAttentionGuidance", scale=2.0)),
    "FreeU": (_UNET, _core("nodes_freelunch", "FreeU_V2", b1=1.1, b2=1.2, s1=0.9, s2=0.2)),
    "deep shrink": (
        _UNET,
        _core(
            "nodes_model_downscale", "PatchModelAddDownscale", block_number=1, downscale_factor=2.0, start_percent=0.0,
            end_percent=0.5, downscale_after_skip=True, downscale_method="bicubic", upscale_method="bicubic",
        ),
    ),
    "HyperTile": (
        _UNET, _core("nodes_hypertile", "HyperTile", tile_size=32, swap_size=2, max_depth=0, scale_depth=False)
    ),
    "EasyCache": (
        _FLAT,
        _core(
            "nodes_easycache", "EasyCacheNode", reuse_threshold=0.2, start_percent=0.1, end_percent=0.9, verbose=False
        ),
    ),
    "unknown patch": (
        _ALL, _clone(lambda model: model.set_model_sampler_post_cfg_function(lambda args: args["denoised"] * 0.95))
    ),
    "unknown patch that reads the first sigma": (
        _ALL,
        _clone(
            lambda model: model.set_model_sampler_pre_cfg_function(
                lambda args: [out * (1 - 0.05 * torch.tanh(args["sigma"][0])) for out in args["conds_out"]]
            )
        ),
    ),
    "unknown patch that mixes images": (
        _ALL,
        _clone(
            lambda model: model.set_model_sampler_post_cfg_function(
                lambda args: args["denoised"] - 0.5 * args["denoised"].mean()
            )
        ),
    ),
    "unknown patch that keeps values": (
        _ALL, _clone(lambda model: model.set_model_sampler_post_cfg_function(_accumulates()))
    ),
    "unknown patch that is random": (_ALL, _random),
    "unknown wrapper": (
        _ALL,
        _clone(
            lambda model: model.add_wrapper_with_key("diffusion_model", "someone", lambda run, *a, **k: run(*a, **k))
        ),
    ),
    "unknown function wrapper": (
        _ALL,
        _clone(
            lambda model: model.set_model_unet_function_wrapper(
                lambda apply, args: apply(args["input"], args["timestep"], **args["c"])
            )
        ),
    ),
}  # fmt: skip


def _weights(m: _Maker, positive: list[Any]) -> list[Any]:
    if m.kind not in HOOK_KEY:
        return positive
    key = HOOK_KEY[m.kind]
    weight = m.model.model.state_dict()[key]
    if m.chance(0.2):
        m.model = m.model.clone()
        m.model.add_patches({key: ("diff", (0.03 * m.tensor(*weight.shape),))})
        m.note("LoRA")
    if m.chance(0.2):
        import comfy.hooks

        hooks = comfy.hooks.create_hook_lora({}, 1.0, 0.0)
        (hook,) = hooks.hooks
        hook.weights, hook.need_weight_init = {key: ("diff", (0.05 * m.tensor(*weight.shape),))}, False
        if m.chance(0.6):
            frames = comfy.hooks.HookKeyframeGroup()
            for start, strength in ((0.0, 1.0), (float(m.pick(0.2, 0.4)), 0.3), (0.7, -1.0)):
                guarantee = int(m.pick(0, 1, 2))
                frame = comfy.hooks.HookKeyframe(strength=strength, start_percent=start, guarantee_steps=guarantee)
                frames.add(frame)
            hooks.set_keyframes_on_hooks(frames)
            m.note("keyframes")
        m.note("hooks")
        positive = _with(positive[:1], hooks=hooks) + positive[1:]
    return positive


def _guider(m: _Maker, positive: list[Any], negative: list[Any]) -> Callable[[], Any]:
    kind = str(m.rng.choice(["cfg", "dual", "perp", "basic"], p=[0.82, 0.08, 0.05, 0.05]))
    scale = float(m.pick(1.0, 3.0, 3.0))
    m.note(f"{kind} {scale}")
    model = m.model
    if kind == "cfg":
        return cfg(model, positive, negative, scale)

    def build() -> Any:
        if kind == "dual":
            guider = node("nodes_custom_sampler", "Guider_DualCFG")(model)
            guider.set_conds(positive, tiny_models.conditioning(6), negative)
            guider.set_cfg(scale, 2.0)
        elif kind == "perp":
            guider = node("nodes_perpneg", "Guider_PerpNeg")(model)
            guider.set_conds(positive, negative, tiny_models.conditioning(7))
            guider.set_cfg(scale, 1.0)
        else:
            guider = node("nodes_custom_sampler", "Guider_Basic")(model)
            guider.set_conds(positive)
        return guider

    return build


def _mask(m: _Maker) -> torch.Tensor | None:
    if not m.chance(0.3):
        return None
    mask = m.tensor(m.count("mask"), 64, 64).sigmoid()
    if m.chance(0.4):
        strength = float(m.pick(1.0, 0.5))
        m.model = patched(m.model, "nodes_differential_diffusion", "DifferentialDiffusion", strength=strength)
        m.note("differential diffusion")
    return mask
