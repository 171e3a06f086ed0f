"""Speculate where rows are provably independent; anything else is the plain sampler, with the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tiny_models
import torch


def _latent(kind: str = "flow", **extra: Any) -> dict[str, Any]:
    return {"samples": tiny_models.latent(kind, seed=7), **extra}


def _options(**options: Any) -> Callable[[Any], None]:
    return lambda model: model.model_options.update(options)


def _wrapper(kind: str) -> Callable[[Any], None]:
    return lambda model: model.add_wrapper_with_key(
        kind, "someone", lambda executor, *args, **kw: executor(*args, **kw)
    )


UNKNOWN: dict[str, Callable[[Any], None]] = {
    "post-CFG patch": lambda model: model.set_model_sampler_post_cfg_function(lambda args: args["denoised"]),
    "pre-CFG patch": lambda model: model.set_model_sampler_pre_cfg_function(lambda args: args["conds_out"]),
    "CFG function": lambda model: model.set_model_sampler_cfg_function(lambda args: args["cond"]),
    "model function wrapper": lambda model: model.set_model_unet_function_wrapper(
        lambda apply, args: apply(args["input"], args["timestep"], **args["c"])
    ),
    "model patches": lambda model: model.set_model_patch(lambda args: args, "double_block"),
    "attention": lambda model: model.set_model_patch_replace(
        lambda args, extra: extra["original_block"](args), "dit", "double_block", 99
    ),
    "wrapper someone (diffusion_model)": _wrapper("diffusion_model"),
    "wrapper someone (predict_noise)": _wrapper("predict_noise"),
    "callback": lambda model: model.add_callback("on_pre_run", lambda patcher: None),
    "option somebodys_option": _options(somebodys_option=True),
    "patched object": lambda model: model.add_object_patch(
        "diffusion_model.x_embedder", model.model.diffusion_model.x_embedder
    ),
}  # fmt: skip


@pytest.mark.parametrize("reason", list(UNKNOWN))
def test_unknown_patches_are_plain(render: Any, reason: str) -> None:
    model, prompts = tiny_models.flow().clone(), (tiny_models.conditioning(1), tiny_models.conditioning(2))
    UNKNOWN[reason](model)
    result, report = render(model, _latent(), *prompts, widths=(2, 1))
    assert report["mode"] == "plain" and report["rows"] == report["calls"] == report["steps"]
    assert reason in report["reason"]
    reference, _ = render(model, _latent(), *prompts, widths=())
    assert torch.equal(result["samples"], reference["samples"])


def test_differential_diffusion_is_plain(render: Any) -> None:
    model, prompts = tiny_models.flow().clone(), (tiny_models.conditioning(1), tiny_models.conditioning(2))
    model.set_model_denoise_mask_function(lambda sigma, mask, extra_options: (mask > 0.5).float())
    _, report = render(model, _latent(noise_mask=torch.rand(1, 64, 64)), *prompts, widths=(2, 1))
    assert report["mode"] == "plain" and "mask function" in report["reason"]


@pytest.mark.parametrize(("start", "end", "mode"), [(0.0, 1.0, "tree"), (0.0, 0.5, "plain"), (0.4, 1.0, "plain")])
def test_prompt_for_part_of_the_steps(render: Any, start: float, end: float, mode: str) -> None:
    (prompt,) = tiny_models.conditioning(1)
    positive = [[prompt[0], prompt[1] | {"start_percent": start, "end_percent": end}], *tiny_models.conditioning(3)]
    _, report = render(tiny_models.flow(), _latent(), positive, tiny_models.conditioning(2), widths=(2, 1))
    assert report["mode"] == mode
    assert ("part of the steps" in report["reason"]) == (mode == "plain")


@pytest.mark.parametrize(
    ("prompts", "images", "mode"), [(2, 4, "tree"), (2, 3, "plain"), (3, 1, "plain"), (3, 3, "tree")]
)
def test_prompt_batches(render: Any, prompts: int, images: int, mode: str) -> None:
    latent = {"samples": tiny_models.latent("flow", images)}
    positive, negative = tiny_models.conditioning(1, prompts), tiny_models.conditioning(2)
    _, report = render(tiny_models.flow(), latent, positive, negative, widths=(2, 1))
    assert report["mode"] == mode
    assert ("conditioning batch" in report["reason"]) == (mode == "plain")


def test_controlnet_is_plain(ours: Any, render: Any) -> None:
    import comfy.controlnet

    class Control(comfy.controlnet.ControlBase):
        def get_control(self, *args: Any) -> None:
            return None

        def get_models(self) -> list[Any]:
            return []

    positive = [
        [c[0], c[1] | {"control": Control(), "control_apply_to_uncond": True}] for c in tiny_models.conditioning(1)
    ]
    _, report = render(tiny_models.unet(), _latent("eps"), positive, tiny_models.conditioning(2), widths=(2, 1))
    assert report["mode"] == "plain" and "ControlNet" in report["reason"]


def test_another_guider_is_plain(ours: Any) -> None:
    import comfy.sample
    import comfy_extras.nodes_custom_sampler as custom

    model, latent = tiny_models.flow(), tiny_models.latent("flow")
    guider = custom.Guider_DualCFG(model)
    guider.set_conds(tiny_models.conditioning(1), tiny_models.conditioning(2), tiny_models.conditioning(3))
    guider.set_cfg(3.0, 2.0)
    sampler, report = ours.sampler.SpeculativeSampler.execute("euler_ancestral", 1.0, 1.0).args
    sigmas = ours.host.ksampler.schedule(model, 6, "euler_ancestral", "simple", 1.0)
    guider.sample(comfy.sample.prepare_noise(latent, 1), latent, sampler, sigmas, seed=1)
    assert report["mode"] == "plain" and "Guider_DualCFG" in report["reason"]


def test_a_lora_is_clean_and_weights_come_back(render: Any) -> None:
    plain = tiny_models.flow()
    prompts = (tiny_models.conditioning(1), tiny_models.conditioning(2))
    before = {name: weight.clone() for name, weight in plain.model.state_dict().items()}
    off, _ = render(plain, _latent(), *prompts, widths=(2, 1))
    model = plain.clone()
    name = "diffusion_model.joint_blocks.0.x_block.attn.qkv.weight"
    assert model.add_patches({name: ("diff", (torch.full_like(before[name], 0.05),))}) == [name]
    on, report = render(model, _latent(), *prompts, widths=(2, 1))
    assert report["mode"] == "tree" and not torch.equal(on["samples"], off["samples"])
    again, _ = render(plain, _latent(), *prompts, widths=(2, 1))
    assert torch.equal(again["samples"], off["samples"])
    plain.unpatch_model()
    assert all(torch.equal(weight, before[name]) for name, weight in plain.model.state_dict().items())


def test_model_sampling_nodes_are_clean(render: Any) -> None:
    import comfy_extras.nodes_model_advanced as advanced

    (model,) = advanced.ModelSamplingSD3().patch(tiny_models.flow(), shift=5.0)
    _, report = render(model, _latent(), tiny_models.conditioning(1), tiny_models.conditioning(2), widths=(2, 1))
    assert report["mode"] == "tree"


def test_inputs_are_not_changed(render: Any) -> None:
    model = tiny_models.flow()
    latent = {"samples": tiny_models.latent("flow", 2, seed=7), "noise_mask": torch.rand(2, 64, 64)}
    kept = {name: value.clone() for name, value in latent.items()}
    prompts = (tiny_models.conditioning(1), tiny_models.conditioning(2))
    options = repr(model.model_options), repr(model.wrappers), repr(model.additional_models)
    render(model, latent, *prompts, widths=(2, 1), draft=tiny_models.flow(1))
    assert all(torch.equal(latent[name], value) for name, value in kept.items())
    assert (repr(model.model_options), repr(model.wrappers), repr(model.additional_models)) == options
    assert set(prompts[0][0][1]) == {"pooled_output"}
