"""What changes the network: LoRAs, hooks, compiled and patched networks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tiny_models
import torch
from graphs import SAME, Graph, cfg, conforms, fast_is_wrong, inside, patched, prompts, speculative

THEME = "Weights and patches"
KEY = "diffusion_model.joint_blocks.0.x_block.attn.qkv.weight"


def _weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in model.model.state_dict().items()}


def test_lora_on_off_on(ours: Any, record: Any) -> None:
    plain = tiny_models.flow()
    before = _weights(plain)
    lora = plain.clone()
    lora.add_patches({KEY: ("diff", (torch.full_like(before[KEY], 0.05),))})
    graphs = [Graph(cfg(model, *prompts()), tiny_models.latent("flow", 2, 7)) for model in (lora, plain)]
    on, off, again = (speculative(ours, graph)[0] for graph in (graphs[0], graphs[1], graphs[0]))
    assert torch.equal(on, again) and not torch.equal(on, off)
    report = conforms(ours, graphs[0], "vector")
    plain.unpatch_model()
    assert all(torch.equal(weight, before[name]) for name, weight in plain.model.state_dict().items())
    record("LoRA on, off, on", report, f"{SAME}; the weights are restored")


def _hooks(weight: torch.Tensor, value: float, keyframes: list[tuple[float, float]] = []) -> Any:  # noqa: B006
    """A LoRA as a hook; keyframes: (start, strength)."""
    import comfy.hooks

    group = comfy.hooks.create_hook_lora({}, 1.0, 0.0)
    (hook,) = group.hooks
    hook.weights, hook.need_weight_init = {KEY: ("diff", (torch.full_like(weight, value),))}, False
    if keyframes:
        frames = comfy.hooks.HookKeyframeGroup()
        for start, strength in keyframes:
            frames.add(comfy.hooks.HookKeyframe(strength=strength, start_percent=start, guarantee_steps=1))
        group.set_keyframes_on_hooks(frames)
    return group


def _hooked(conditioning: list[Any], hooks: Any) -> list[Any]:
    return [[tensor, {**values, "hooks": hooks}] for tensor, values in conditioning]


def test_hooks(ours: Any, record: Any) -> None:
    model = tiny_models.flow()
    before = _weights(model)
    positive = _hooked(prompts()[0], _hooks(before[KEY], 0.05)) + _hooked(
        tiny_models.conditioning(3), _hooks(before[KEY], -0.05)
    )
    graph = Graph(cfg(model, positive, prompts()[1]), tiny_models.latent("flow", 2, 7))
    report = conforms(ours, graph, "vector")
    model.unpatch_model()
    assert all(torch.equal(weight, before[name]) for name, weight in model.model.state_dict().items())
    record("hooks: a LoRA on each of two prompts", report, f"{SAME}; the weights are restored")


@pytest.mark.parametrize("both", [False, True], ids=["one hook", "on both sides"])
def test_hooks_with_keyframes(ours: Any, record: Any, both: bool) -> None:
    model = tiny_models.flow()
    before = _weights(model)
    hooks = _hooks(before[KEY], 0.1, [(0.0, 1.0), (0.3, 0.2), (0.6, -1.0)])
    positive, negative = prompts()
    positive, negative = _hooked(positive, hooks), _hooked(negative, hooks) if both else negative
    graph = Graph(cfg(model, positive, negative), tiny_models.latent("flow", 2, 7))
    report = conforms(ours, graph, "by sigma", "hooks with keyframes")
    fast_is_wrong(ours, graph)
    model.unpatch_model()
    assert all(torch.equal(weight, before[name]) for name, weight in model.model.state_dict().items())
    record("hooks with keyframes", report, f"{SAME}; the weights are restored")


@pytest.mark.parametrize("guarantee", [0, 1, 3])
def test_keyframes_are_those_of_the_stock_sampler(ours: Any, guarantee: int) -> None:
    """What the model answered at each step of a stock run, asked again in one call and in any order."""

    model = tiny_models.flow()
    hooks = _hooks(_weights(model)[KEY], 0.1, [(0.0, 1.0), (0.3, 0.2), (0.6, -1.0)])
    for frame in hooks.hooks[0].hook_keyframe.keyframes:
        frame.guarantee_steps = guarantee
    graph = Graph(cfg(model, _hooked(prompts()[0], hooks), prompts()[1]), tiny_models.latent("flow", 1, 7), steps=8)

    def look(model_k: Any, x: Any, sigmas: Any, extra_args: Any) -> None:
        seen: list[tuple[Any, Any, Any]] = []
        for sigma, following in zip(sigmas[:-1], sigmas[1:], strict=True):
            answer = model_k(x, sigma.expand(1), **extra_args)
            seen.append((x, sigma, answer))
            x = answer + (x - answer) * following / sigma
        choice = ours.host.modes.choose(model_k.inner_model, extra_args["model_options"], sigmas, 1)
        target = ours.host.target.rows_of(model_k, extra_args, choice, 1)
        for order in (range(8), range(7, -1, -1), [3, 7, 0, 5, 1, 6, 2, 4]):
            rows, answers = (torch.cat([seen[i][k] for i in order]) for k in (0, 2))
            levels = torch.stack([seen[i][1] for i in order])
            found = target(rows, levels, np.zeros(8, dtype=np.int64))
            torch.testing.assert_close(found, answers, rtol=1e-4, atol=1e-4)

    inside(ours, graph, look)


def test_default_conditioning(ours: Any, record: Any) -> None:
    """PairConditioningSetDefaultCombine: a prompt for what no other covers."""
    region = torch.zeros(1, 64, 64)
    region[:, :, :32] = 1
    positive = [[c[0], {**c[1], "mask": region}] for c in prompts()[0]]
    positive += [[c[0], {**c[1], "default": True}] for c in tiny_models.conditioning(3)]
    graph = Graph(cfg(tiny_models.unet(), positive, prompts()[1]), tiny_models.latent("eps", 2, 7))
    record("a default prompt for the rest of the picture", conforms(ours, graph, "vector"), SAME)


def test_torch_compile(ours: Any, record: Any) -> None:
    """ComfyUI's own node; the compiled network is called in eager mode, which is its own reference."""
    from comfy_api.torch_helpers import set_torch_compile_wrapper

    model = tiny_models.flow().clone()
    set_torch_compile_wrapper(model, backend="eager")
    graph = Graph(cfg(model, *prompts()), tiny_models.latent("flow", 2, 7))
    with torch.compiler.set_stance("force_eager"):
        record("torch.compile (TorchCompileModel)", conforms(ours, graph, "vector"), SAME)


def test_compiled_network(ours: Any, record: Any) -> None:
    """As other packs do it: the network replaced by a compiled one."""
    model = tiny_models.flow().clone()
    model.add_object_patch("diffusion_model", torch.compile(model.model.diffusion_model, backend="eager"))
    graph = Graph(cfg(model, *prompts()), tiny_models.latent("flow", 2, 7))
    with torch.compiler.set_stance("force_eager"):
        record("torch.compile as an object patch", conforms(ours, graph, "vector"), SAME)


@pytest.mark.parametrize("name", ["FreeU", "FreeU_V2"])
def test_freeu(ours: Any, record: Any, name: str) -> None:
    model = patched(tiny_models.unet(), "nodes_freelunch", name, b1=1.1, b2=1.2, s1=0.9, s2=0.2)
    graph = Graph(cfg(model, *prompts()), tiny_models.latent("eps", 2, 7))
    record(name, conforms(ours, graph, "vector"), SAME)


def test_deep_shrink(ours: Any, record: Any) -> None:
    model = patched(
        tiny_models.unet(), "nodes_model_downscale", "PatchModelAddDownscale", block_number=1, downscale_factor=2.0,
        start_percent=0.0, end_percent=0.5, downscale_after_skip=True, downscale_method="bicubic",
        upscale_method="bicubic",
    )  # fmt: skip
    graph = Graph(cfg(model, *prompts()), tiny_models.latent("eps", 2, 7))
    report = conforms(ours, graph, "by sigma", "PatchModelAddDownscale")
    record("PatchModelAddDownscale (Kohya Deep Shrink)", report, SAME)
    fast_is_wrong(ours, graph)


def test_rope_options(ours: Any, record: Any) -> None:
    model = patched(
        tiny_models.flux(), "nodes_rope", "ScaleROPE", scale_x=1.1, shift_x=0.0, scale_y=0.9, shift_y=0.0, scale_t=1.0,
        shift_t=0.0,
    )  # fmt: skip
    graph = Graph(cfg(model, *prompts()), tiny_models.latent("flow", 2, 7))
    record("ScaleROPE", conforms(ours, graph, "vector"), SAME)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("ModelSamplingSD3", {"shift": 5.0}),
        ("ModelSamplingFlux", {"max_shift": 1.15, "base_shift": 0.5, "width": 64, "height": 64}),
    ],
)
def test_flow_schedules(ours: Any, record: Any, name: str, values: dict[str, Any]) -> None:
    model = patched(tiny_models.flow(), "nodes_model_advanced", name, **values)
    graph = Graph(cfg(model, *prompts()), tiny_models.latent("flow", 2, 7))
    record("ModelSampling nodes", conforms(ours, graph, "vector"), SAME)


@pytest.mark.parametrize("sampling", ["eps", "v_prediction", "lcm", "x0"])
def test_discrete_schedules(ours: Any, record: Any, sampling: str) -> None:
    model = patched(tiny_models.unet(), "nodes_model_advanced", "ModelSamplingDiscrete", sampling=sampling, zsnr=False)
    graph = Graph(cfg(model, *prompts()), tiny_models.latent("eps", 2, 7))
    record("ModelSampling nodes", conforms(ours, graph, "vector"), SAME)


@pytest.mark.parametrize("place", ["diffusion_model", "apply_model", "predict_noise", "calc_cond_batch"])
def test_unknown_wrapper(ours: Any, record: Any, place: str) -> None:
    model = tiny_models.flow().clone()
    model.add_wrapper_with_key(place, "someone", lambda executor, *args, **kw: executor(*args, **kw))
    graph = Graph(cfg(model, *prompts()), tiny_models.latent("flow", 2, 7))
    record("an unknown wrapper", conforms(ours, graph, "by node", f"wrapper someone ({place})"), SAME)


def test_unknown_patches(ours: Any, record: Any) -> None:
    def attention(q: Any, k: Any, v: Any, extra_options: Any) -> Any:
        return q, k, v * (1 + 0.1 * extra_options["sigmas"][0])  # the first row's noise level

    model = tiny_models.unet().clone()
    model.set_model_attn1_patch(attention)
    model.set_model_unet_function_wrapper(lambda apply, args: apply(args["input"], args["timestep"], **args["c"]))
    graph = Graph(cfg(model, *prompts()), tiny_models.latent("eps", 2, 7))
    record("unknown model patches and function wrappers", conforms(ours, graph, "by node", "attention"), SAME)
    fast_is_wrong(ours, graph)
