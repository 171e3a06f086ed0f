"""Inpainting: noise masks, differential diffusion, inpaint models."""

from __future__ import annotations

from typing import Any

import pytest
import tiny_models
import torch
from graphs import SAME, Graph, cfg, conforms, is_plain, patched, prompts, with_values

THEME = "Masks"


def _mask(batch: int) -> torch.Tensor:
    return torch.rand(batch, 64, 64, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("masks", ["one mask", "a mask each"])
@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("kind", ["flow", "eps", "v"])
def test_noise_mask(ours: Any, record: Any, kind: str, batch: int, masks: str) -> None:
    mask = _mask(1 if masks == "one mask" else batch)
    graph = Graph(cfg(tiny_models.build(kind), *prompts()), tiny_models.latent(kind, batch, 7), mask)
    images = f"{batch} image{'s' * (batch > 1)}"
    record(f"noise mask, {images}", conforms(ours, graph, "vector"), SAME)


@pytest.mark.parametrize("strength", [1.0, 0.5])
@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("kind", ["flow", "eps"])
def test_differential_diffusion(ours: Any, record: Any, kind: str, batch: int, strength: float) -> None:
    import comfy_extras.nodes_differential_diffusion as nodes_dd

    model = nodes_dd.DifferentialDiffusion.execute(tiny_models.build(kind), strength).args[0]
    graph = Graph(cfg(model, *prompts(batch)), tiny_models.latent(kind, batch, 7), _mask(batch))
    record("Differential Diffusion", conforms(ours, graph, "vector"), SAME)


def test_unknown_mask_function(ours: Any, record: Any) -> None:
    model = tiny_models.flow().clone()
    model.set_model_denoise_mask_function(lambda sigma, mask, extra_options: (mask > 1 - sigma[0]).float())
    graph = Graph(cfg(model, *prompts()), tiny_models.latent("flow", 2, 7), _mask(2))
    record("an unknown mask function", conforms(ours, graph, "by node", "mask function"), SAME)


def test_inpaint_model(ours: Any, record: Any) -> None:
    """Nine input channels: the mask and the picture of each image are conditioning too."""
    generator = torch.Generator().manual_seed(4)
    extra = {
        "concat_latent_image": torch.randn(3, 4, 8, 8, generator=generator),
        "concat_mask": torch.rand(3, 1, 64, 64, generator=generator).round(),
    }
    conds = (with_values(side, **extra) for side in prompts())
    graph = Graph(cfg(tiny_models.unet(in_channels=9), *conds), tiny_models.latent("eps", 3, 7), _mask(3))
    record("inpaint model with concat channels, and a noise mask", conforms(ours, graph, "vector"), SAME)


@pytest.mark.parametrize("batch", [1, 3])
def test_mask_with_a_prompt_for_a_part_of_the_steps(ours: Any, record: Any, batch: int) -> None:
    positive = with_values(prompts(batch)[0], end_percent=0.5) + tiny_models.conditioning(3)
    graph = Graph(cfg(tiny_models.unet(), positive, prompts()[1]), tiny_models.latent("eps", batch, 7), _mask(batch))
    report = conforms(ours, graph, "by sigma", "conditioning for a part of the steps")
    record("noise mask, and a prompt for a part of the steps", report, SAME)


def test_a_mask_does_not_hide_that_images_mix(ours: Any, record: Any) -> None:
    """At the first step differential diffusion holds everything, so a trial with the mask would see nothing."""

    def build() -> Graph:
        model = tiny_models.flow().clone()
        model.set_model_sampler_post_cfg_function(lambda args: args["denoised"] - 0.5 * args["denoised"].mean())
        model = patched(model, "nodes_differential_diffusion", "DifferentialDiffusion", strength=1.0)
        return Graph(cfg(model, *prompts()), tiny_models.latent("flow", 2, 7), _mask(2), denoise=0.6)

    report = is_plain(ours, build, "mixes the images of a batch")
    record("differential diffusion, and an unknown patch that mixes images", report, "the stock sampler, after a trial")
