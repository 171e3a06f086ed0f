"""Kinds of model and of latent."""

from __future__ import annotations

from typing import Any

import pytest
import tiny_models
import torch
from graphs import SAME, Graph, cfg, conforms, is_plain, patched, prompts, speculative, with_values

THEME = "Models and latents"


def _latent(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(7))


MODELS: dict[str, Any] = {
    "SD1.5 layout, eps": (tiny_models.unet, (2, 4, 8, 8)),
    "SD1.5 layout, v-prediction": (lambda: tiny_models.unet("v"), (2, 4, 8, 8)),
    "SDXL layout": (tiny_models.unet_sdxl, (2, 4, 8, 8)),
    "SD3 layout": (tiny_models.flow, (2, 16, 8, 8)),
    "Flux layout": (tiny_models.flux, (2, 16, 8, 8)),
    "AuraFlow layout": (tiny_models.aura, (2, 4, 8, 8)),
    "Chroma layout": (tiny_models.chroma, (2, 16, 8, 8)),
    "Lumina 2 layout": (tiny_models.lumina, (2, 16, 8, 8)),
    "Z-Image layout": (lambda: tiny_models.lumina(z_image=True), (2, 16, 8, 8)),
    "Qwen-Image layout (5-D latents)": (tiny_models.qwen, (2, 16, 1, 8, 8)),
    "Wan 2.1 layout (5-D latents, several frames)": (tiny_models.wan, (2, 16, 3, 8, 8)),
    "HunyuanVideo layout (5-D latents, several frames)": (tiny_models.hunyuan_video, (2, 16, 2, 8, 8)),
}


@pytest.mark.parametrize("feature", list(MODELS))
def test_models(ours: Any, record: Any, feature: str) -> None:
    build, shape = MODELS[feature]
    sampler = "lcm" if len(feature) % 2 else "euler_ancestral"
    graph = Graph(cfg(build(), *prompts(2)), _latent(*shape), sampler_name=sampler)
    record(feature, conforms(ours, graph, "vector"), SAME)


def test_hidream(ours: Any, record: Any) -> None:
    words = torch.randn(2, 2, 4, tiny_models.WIDTH, generator=torch.Generator().manual_seed(4))
    conds = (with_values(side, conditioning_llama3=words) for side in prompts(2))
    record(
        "HiDream layout",
        conforms(ours, Graph(cfg(tiny_models.hidream(), *conds), _latent(2, 16, 8, 8)), "vector"),
        SAME,
    )


@pytest.mark.parametrize("references", [1, 2])
def test_reference_latents(ours: Any, record: Any, references: int) -> None:
    pictures = [_latent(1, 16, 8, 8), _latent(2, 16, 4, 8)][:references]
    positive = with_values(prompts()[0], reference_latents=pictures, guidance=3.5)
    graph = Graph(cfg(tiny_models.flux(), positive, prompts()[1]), _latent(2, 16, 8, 8))
    record("reference latents (Flux Kontext)", conforms(ours, graph, "vector"), SAME)


def test_guidance(ours: Any, record: Any) -> None:
    graph = Graph(
        cfg(tiny_models.flux(), with_values(prompts()[0], guidance=2.0), prompts()[1], 1.0), _latent(2, 16, 8, 8)
    )
    record("Flux guidance", conforms(ours, graph, "vector"), SAME)


@pytest.mark.parametrize("shape", [(1, 16, 8, 12), (2, 16, 10, 6)], ids=str)
def test_shapes(ours: Any, record: Any, shape: tuple[int, ...]) -> None:
    graph = Graph(cfg(tiny_models.flow(), *prompts()), _latent(*shape))
    record("latents that are not square", conforms(ours, graph, "vector"), SAME)


def test_empty_latent_of_four_channels(ours: Any, record: Any) -> None:
    graph = Graph(cfg(tiny_models.flow(), *prompts()), torch.zeros(2, 4, 8, 8))
    record("an empty latent of 4 channels into a model of 16", conforms(ours, graph, "vector"), SAME)


def test_masked_video(ours: Any, record: Any) -> None:
    mask = torch.rand(2, 64, 64, generator=torch.Generator().manual_seed(3))
    graph = Graph(cfg(tiny_models.wan(), *prompts(2)), _latent(2, 16, 3, 8, 8), mask)
    record("noise mask on 5-D latents", conforms(ours, graph, "vector"), SAME)


def test_unchecked_model(ours: Any, record: Any) -> None:
    """A class of another pack: nothing is known of it."""
    import comfy.model_base

    model = tiny_models.flow()

    class Foreign(comfy.model_base.SD3):
        pass

    model.model.__class__ = Foreign
    graph = Graph(cfg(model, *prompts()), _latent(2, 16, 8, 8))
    record("a model class that has not been checked", conforms(ours, graph, "by node", "Foreign"), SAME)


def test_frame_batch(ours: Any, record: Any) -> None:
    def build() -> Graph:
        conds = (with_values(side, concat_latent_image=_latent(1, 4, 8, 8)) for side in prompts())
        return Graph(cfg(tiny_models.svd(), *conds), _latent(3, 4, 8, 8))

    report = is_plain(ours, build, "frames of a video")
    record("SVD, whose batch is the frames of a video", report, "the stock sampler")


@pytest.mark.parametrize("name", ["VideoLinearCFGGuidance", "VideoTriangleCFGGuidance"])
def test_frame_guidance(ours: Any, record: Any, name: str) -> None:
    def build() -> Graph:
        model = patched(tiny_models.unet(), "nodes_video_model", name, min_cfg=1.0)
        return Graph(cfg(model, *prompts()), _latent(3, 4, 8, 8))

    record("guidance that differs from frame to frame", is_plain(ours, build, "frames of a video"), "the stock sampler")


def _near() -> Any:
    """A draft model: some drafts are taken, some are not."""
    draft = tiny_models.flow()
    with torch.no_grad():
        for weight in draft.model.diffusion_model.parameters():
            weight.add_(0.003 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    return draft


@pytest.mark.parametrize("mode", ["vector", "by sigma", "by node"])
def test_results_do_not_depend_on_company(ours: Any, record: Any, mode: str) -> None:
    """Three images in one batch and each alone: equal to rounding, however the model is called."""
    model, (positive, negative) = tiny_models.flow().clone(), prompts()
    if mode == "by sigma":
        positive = with_values(positive, end_percent=0.5) + tiny_models.conditioning(3)
    elif mode == "by node":
        model.set_model_sampler_post_cfg_function(lambda args: args["denoised"] * (1 - 0.01 * args["sigma"][0]))
    latent = _latent(3, 16, 8, 8)
    guider, tree = cfg(model, positive, negative), {"draft": _near(), "rule": "optimal"}
    together, report = speculative(ours, Graph(guider, latent, numbers=[0, 1, 2], steps=8), (2, 1), **tree)
    assert report["call_mode"] == mode and report["accepted"] > 0
    for i in range(3):
        alone, _ = speculative(ours, Graph(guider, latent[i : i + 1], numbers=[i], steps=8), (2, 1), **tree)
        torch.testing.assert_close(alone[0], together[i], rtol=1e-3, atol=1e-3)
    record("three images together, and each alone", report, "equal within 1e-3")
