"""Each bad input gives a message that names the node, the input, the value and what works; the next run is as fresh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tiny_models
import torch

NODE = "Speculative KSampler: "


def _prompts() -> tuple[Any, Any]:
    return tiny_models.conditioning(1), tiny_models.conditioning(2)


def _broken() -> Any:
    model = tiny_models.flow()
    with torch.no_grad():
        model.model.diffusion_model.final_layer.linear.weight[0, 0] = float("nan")
    return model


def _flow_latent() -> dict[str, Any]:
    return {"samples": tiny_models.latent("flow", seed=7)}


BAD: dict[str, tuple[Callable[[], dict[str, Any]], type[Exception], list[str]]] = {
    "latent of another model": (
        lambda: {"latent": {"samples": tiny_models.latent("eps", seed=7)}},
        ValueError,
        ["latent_image", "4 channels", "16", "VAE"],
    ),
    "latent with NaN": (
        lambda: {"latent": {"samples": tiny_models.latent("flow", seed=7) * float("nan")}},
        ValueError,
        ["latent_image", "NaN"],
    ),
    "ddpm on a flow model": (
        lambda: {"sampler_name": "ddpm"}, ValueError, ["sampler_name", "ddpm", "euler_ancestral", "lcm"]
    ),
    "deterministic sampler": (
        lambda: {"sampler_name": "euler"}, ValueError, ["sampler_name", "'euler'", "euler_ancestral"]
    ),
    "draft of another latent": (
        lambda: {"draft": tiny_models.unet()}, ValueError, ["draft", "4-channel SD15", "16-channel SD3", "VAE"]
    ),
    "negative eta": (lambda: {"eta": -1.0}, ValueError, ["eta", "-1.0", "0 or more"]),
    "model returns NaN": (lambda: {"model": _broken()}, RuntimeError, ["NaN"]),
    "impossible width": (lambda: {"widths": (2, 0)}, ValueError, ["width", "0", "(2, 2, 1, 1)"]),
    "unknown rule": (lambda: {"widths": (2,), "rule": "best"}, ValueError, ["'best'", "rass"]),
}  # fmt: skip


@pytest.mark.parametrize("name", list(BAD))
def test_message_and_recovery(render: Any, name: str) -> None:
    build, kind, words = BAD[name]
    usual = {"model": tiny_models.flow(), "latent": _flow_latent(), "widths": (2, 1)}
    before, _ = render(usual["model"], usual["latent"], *_prompts(), widths=(2, 1))
    given = usual | build()
    with pytest.raises(kind) as caught:
        render(given.pop("model"), given.pop("latent"), *_prompts(), **given)
    message = str(caught.value)
    assert message.startswith(NODE) and message.count(NODE) == 1
    assert all(word in message for word in words), message
    after, _ = render(usual["model"], usual["latent"], *_prompts(), widths=(2, 1))
    assert torch.equal(after["samples"], before["samples"])


def test_draft_is_the_model_itself(render: Any) -> None:
    model = tiny_models.flow()
    with pytest.raises(ValueError, match=f"{NODE}draft is the model itself.*Load Draft Model"):
        render(model, _flow_latent(), *_prompts(), draft=model.clone())


def test_draft_of_another_parametrisation(ours: Any, render: Any) -> None:
    import comfy.latent_formats

    eps = tiny_models.unet()
    eps.add_object_patch("latent_format", comfy.latent_formats.SD3())
    with pytest.raises(ValueError, match=f"{NODE}draft is an eps or v model, the model is a flow model"):
        render(tiny_models.flow(), _flow_latent(), *_prompts(), draft=eps)


def test_empty_four_channel_latent_is_repaired(render: Any) -> None:
    """EmptyLatentImage makes 4 channels; the stock KSampler takes it for any model, and so do we."""
    result, report = render(tiny_models.flow(), {"samples": torch.zeros(1, 4, 8, 8)}, *_prompts(), widths=(2, 1))
    assert result["samples"].shape == (1, 16, 8, 8) and report["mode"] == "tree"


def test_denoise_zero_returns_the_input(render: Any) -> None:
    result, report = render(tiny_models.flow(), _flow_latent(), *_prompts(), denoise=0.0)
    assert torch.equal(result["samples"], _flow_latent()["samples"])
    assert (report["steps"], report["calls"], report["reason"]) == (0, 0, "denoise is 0")


@pytest.mark.parametrize("text", ["2,x", "2,0", "-1", "2,,1", "2.5", "1,2,", "\u00b2", "9,9,9,9"])
def test_widths_text(ours: Any, text: str) -> None:
    node = ours.configure.ConfigureDraftTree
    message = node.validate_inputs(text)
    assert isinstance(message, str) and "Configure Draft Tree: widths" in message
    assert repr(text) in message and "2,2,1,1" in message
    with pytest.raises(ValueError, match="Configure Draft Tree: widths"):
        node.execute(text, "rass", "frozen", 8)


@pytest.mark.parametrize(("text", "widths"), [("2,2,1,1", (2, 2, 1, 1)), (" 3 , 1 ", (3, 1)), ("", ()), ("4", (4,))])
def test_widths_that_work(ours: Any, text: str, widths: tuple[int, ...]) -> None:
    node = ours.configure.ConfigureDraftTree
    assert node.validate_inputs(text) is True
    (settings,) = node.execute(text, "greedy", "frozen", 8).args
    assert (settings.widths, settings.rule) == (widths, "greedy")


def test_rising_sigmas(ours: Any) -> None:
    import comfy.sample

    model, latent = tiny_models.flow(), tiny_models.latent("flow", seed=7)
    sampler, report = ours.sampler.SpeculativeSampler.execute("euler_ancestral", 1.0, 1.0).args
    sigmas = torch.tensor([0.2, 0.5, 1.0])
    with pytest.raises(ValueError, match="Speculative Sampler: sigmas: .*rises.*must fall"):
        comfy.sample.sample_custom(model, latent, 3.0, sampler, sigmas, *_prompts(), latent, seed=1)
    assert report == {"reason": "the sampler has not run yet", "late": True}
