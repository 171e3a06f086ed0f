"""Rows at sigmas of their own in one call equal one call per row, whatever the images, conditioning and mask."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tiny_models
import torch

TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}  # batched and single matrix products round differently

# Rows of three images: whole batches; the same without some cells; one image alone; out of order.
ROWS = {
    "whole": [0, 1, 2] * 3,
    "ragged": [0, 1, 2, 0, 2, 0, 2],
    "one left": [2, 2, 2],
    "unordered": [2, 0, 1, 1, 0],
}


def probe(
    model: Any,
    latent: torch.Tensor,
    positive: Any,
    negative: Any,
    look: Callable[[Any, torch.Tensor, torch.Tensor, dict[str, Any]], None],
    mask: torch.Tensor | None = None,
) -> None:
    """Run `look(model_k, x, sigmas, extra_args)` where the host would run a sampler function."""
    import comfy.sample
    import comfy.samplers

    def function(
        model_k: Any, x: Any, sigmas: Any, extra_args: Any = None, callback: Any = None, disable: Any = None
    ) -> Any:
        look(model_k, x, sigmas, extra_args)
        return x

    ks = comfy.samplers.KSampler(model, 6, torch.device("cpu"), "euler_ancestral", "simple", 1.0)
    comfy.sample.sample_custom(
        model, torch.randn(latent.shape, generator=torch.Generator().manual_seed(1)), 3.0,
        comfy.samplers.KSAMPLER(function), ks.sigmas, positive, negative, latent,
        noise_mask=mask, disable_pbar=True, seed=1,
    )  # fmt: skip


def assert_rows_agree(
    ours: SimpleNamespace,
    model_k: Any,
    x: torch.Tensor,
    sigmas: torch.Tensor,
    extra_args: dict[str, Any],
    images: list[int],
) -> None:
    decision = ours.host.modes.choose(model_k.inner_model, extra_args["model_options"], sigmas, len(x))
    assert decision.mode <= 1
    target = ours.host.target.rows_of(model_k, extra_args, decision, len(x))
    generator = torch.Generator().manual_seed(2)
    rows = torch.randn(len(images), *x.shape[1:], generator=generator)
    sigma = sigmas[torch.arange(len(images)) % (len(sigmas) - 1)]
    together = target(rows, sigma, np.array(images))
    for row, (image, s) in enumerate(zip(images, sigma, strict=True)):
        batch = torch.randn(x.shape, generator=generator)
        batch[image] = rows[row]
        alone = model_k(batch, s.expand(len(x)), **extra_args)[image]  # the host's own call, mask and all
        torch.testing.assert_close(together[row], alone, **TOLERANCE)


@pytest.mark.parametrize("masks", [0, 1, 3], ids=["no mask", "one mask", "three masks"])
@pytest.mark.parametrize("prompts", [1, 3], ids=["one prompt", "three prompts"])
@pytest.mark.parametrize("rows", list(ROWS))
@pytest.mark.parametrize("kind", ["flow", "eps", "v"])
def test_rows_equal_single_calls(ours: Any, kind: str, rows: str, prompts: int, masks: int) -> None:
    mask = torch.rand(masks, 64, 64, generator=torch.Generator().manual_seed(3)) if masks else None
    probe(
        tiny_models.build(kind),
        tiny_models.latent(kind, 3, seed=7),
        tiny_models.conditioning(1, prompts),
        tiny_models.conditioning(2, prompts),
        lambda *args: assert_rows_agree(ours, *args, ROWS[rows]),
        mask,
    )


@pytest.mark.parametrize("rows", list(ROWS))
def test_inpaint_model(ours: Any, rows: str) -> None:
    """Nine input channels: the mask and the picture of each image are conditioning too."""
    generator = torch.Generator().manual_seed(4)
    extra = {
        "concat_latent_image": torch.randn(3, 4, 8, 8, generator=generator),
        "concat_mask": torch.rand(3, 1, 64, 64, generator=generator).round(),
    }
    prompts = ([[c[0], c[1] | extra] for c in tiny_models.conditioning(seed)] for seed in (1, 2))
    probe(
        tiny_models.unet(in_channels=9),
        tiny_models.latent("eps", 3, seed=7),
        *prompts,
        lambda *args: assert_rows_agree(ours, *args, ROWS[rows]),
    )


@pytest.mark.parametrize("rows", list(ROWS))
@pytest.mark.parametrize("masks", [1, 3])
def test_regional_prompts(ours: Any, rows: str, masks: int) -> None:
    """Two prompts with masks of their own, and one in an area."""
    regions = torch.rand(2, masks, 64, 64, generator=torch.Generator().manual_seed(6))
    positive = [
        [c[0], c[1] | {"mask": regions[i], "mask_strength": 0.5 + i, "set_area_to_bounds": False}]
        for i in range(2)
        for c in tiny_models.conditioning(10 + i)
    ]
    positive += [[c[0], c[1] | {"area": (4, 4, 2, 2), "strength": 0.7}] for c in tiny_models.conditioning(13)]
    probe(
        tiny_models.unet(),
        tiny_models.latent("eps", 3, seed=7),
        positive,
        tiny_models.conditioning(2),
        lambda *args: assert_rows_agree(ours, *args, ROWS[rows]),
    )


def test_whole_batches_keeps_every_row(ours: Any) -> None:
    """Every row of a random selection finds its own cell, in the column of its image."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        batch = int(rng.integers(1, 5))
        images = rng.integers(0, batch, size=int(rng.integers(1, 20)))
        source, place = ours.host.target.whole_batches(images, batch)
        assert len(source) % batch == 0
        assert (place % batch == images).all() and len(set(place)) == len(place)
        assert (source[place] == np.arange(len(images))).all()
        assert len(source) // batch == np.bincount(images).max()


def test_cyclic_order_would_be_wrong(ours: Any) -> None:
    """The test above can fail: without the grid, rows of a missing image get another image's prompt."""

    def look(model_k: Any, x: torch.Tensor, sigmas: torch.Tensor, extra_args: dict[str, Any]) -> None:
        careless = ours.host.modes.Choice(whole_batches=False)
        ours_target, plain = (
            ours.host.target.rows_of(model_k, extra_args, decision, len(x))
            for decision in (ours.host.modes.Choice(whole_batches=True), careless)
        )
        rows = torch.randn(2, *x.shape[1:], generator=torch.Generator().manual_seed(2))
        images = np.array([1, 2])
        assert not torch.allclose(ours_target(rows, sigmas[:2], images), plain(rows, sigmas[:2], images), **TOLERANCE)

    probe(
        tiny_models.flow(),
        tiny_models.latent("flow", 3),
        tiny_models.conditioning(1, 3),
        tiny_models.conditioning(2),
        look,
    )
