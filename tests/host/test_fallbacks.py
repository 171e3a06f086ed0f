"""What is unknown takes the safe mode with its reason; what is clean leaves nothing behind."""

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
def test_unknown_patches_take_the_safe_mode(render: Any, reason: str) -> None:
    """A call for each node, after a trial; with auto, which looks for time to save, the plain sampler."""
    model, prompts = tiny_models.flow().clone(), (tiny_models.conditioning(1), tiny_models.conditioning(2))
    UNKNOWN[reason](model)
    _, report = render(model, _latent(), *prompts, widths=(2, 1))
    assert report["mode"] == "tree" and report["call_mode"] == "by node" and report["trial_calls"] == 6
    assert reason in report["call_reason"] and report["model_calls"] == report["rows"] > report["calls"]
    result, report = render(model, _latent(), *prompts, widths="auto")
    assert report["mode"] == report["call_mode"] == "plain" and "trial_calls" not in report
    assert reason in report["reason"] and report["rows"] == report["calls"] == report["steps"]
    reference, _ = render(model, _latent(), *prompts, widths=())
    assert torch.equal(result["samples"], reference["samples"])


@pytest.mark.parametrize("widths", [(2, 1), "auto"])
def test_a_reason_shows_once_in_the_log_and_in_the_report(
    render: Any, caplog: pytest.LogCaptureFixture, widths: Any
) -> None:
    model, prompts = tiny_models.flow().clone(), (tiny_models.conditioning(1), tiny_models.conditioning(2))
    model.set_model_sampler_post_cfg_function(lambda args: args["denoised"])
    with caplog.at_level("INFO"):
        _, report = render(model, _latent(), *prompts, widths=widths)
    lines = [record.getMessage() for record in caplog.records if "DraftTree" in record.getMessage()]
    assert len(lines) == 1 and lines[0].count("post-CFG patch") == 1 and lines[0].isascii()
    assert report["summary"].count("post-CFG patch") == 1 and report["call_reason"].count("post-CFG patch") == 1


def test_names_no_console_can_show(render: Any, caplog: pytest.LogCaptureFixture) -> None:
    model, prompts = tiny_models.flow().clone(), (tiny_models.conditioning(1), tiny_models.conditioning(2))
    model.add_wrapper_with_key("diffusion_model", "\u732b", lambda executor, *args, **kw: executor(*args, **kw))
    with caplog.at_level("INFO"):
        _, report = render(model, _latent(), *prompts, widths=(1,))
    assert "\u732b" in report["call_reason"]
    (line,) = [record.getMessage() for record in caplog.records if "DraftTree" in record.getMessage()]
    assert line.isascii() and "\\u732b" in line


def test_options_of_any_kind(render: Any) -> None:
    """Tensors and whatever else packs put into options are looked at without harm."""
    model, prompts = tiny_models.flow().clone(), (tiny_models.conditioning(1), tiny_models.conditioning(2))
    model.model_options.update(a=torch.ones(2), b=None, c=0, d={}, e=object())
    model.model_options["transformer_options"].update(f=torch.ones(2))
    _, report = render(model, _latent(), *prompts, widths="auto")
    assert report["call_mode"] == "plain" and "the model option a; the model option e" in report["reason"]


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
