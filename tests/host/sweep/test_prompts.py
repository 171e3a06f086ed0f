"""Prompts: for parts of the steps, in regions, in batches; guidance and guiders."""

from __future__ import annotations

from typing import Any

import pytest
import tiny_models
import torch
from graphs import SAME, Graph, cfg, conforms, fast_is_wrong, prompts, with_values

THEME = "Prompts"


@pytest.mark.parametrize(("start", "end"), [(0.0, 0.5), (0.4, 1.0)])
@pytest.mark.parametrize("kind", ["flow", "eps"])
def test_for_a_part_of_the_steps(ours: Any, record: Any, kind: str, start: float, end: float) -> None:
    positive, negative = prompts()
    positive = with_values(positive, start_percent=start, end_percent=end) + tiny_models.conditioning(3)
    graph = Graph(cfg(tiny_models.build(kind), positive, negative), tiny_models.latent(kind, 2, 7))
    report = conforms(ours, graph, "by sigma", "conditioning for a part of the steps")
    record("for a part of the steps (timestep ranges)", report, SAME)
    fast_is_wrong(ours, graph)


def test_for_all_steps(ours: Any, record: Any) -> None:
    positive, negative = prompts()
    positive = with_values(positive, start_percent=0.0, end_percent=1.0)
    graph = Graph(cfg(tiny_models.flow(), positive, negative), tiny_models.latent("flow", 2, 7))
    record("with a timestep range of all steps", conforms(ours, graph, "vector"), SAME)


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_one_prompt_for_each_image(ours: Any, record: Any, batch: int) -> None:
    graph = Graph(cfg(tiny_models.flow(), *prompts(batch)), tiny_models.latent("flow", batch, 7))
    record("one for each image", conforms(ours, graph, "vector"), SAME)


@pytest.mark.parametrize(("count", "images"), [(2, 3), (3, 1)])
def test_uneven_batches(ours: Any, record: Any, count: int, images: int) -> None:
    graph = Graph(cfg(tiny_models.flow(), *prompts(count)), tiny_models.latent("flow", images, 7))
    record("a batch that does not divide the images", conforms(ours, graph, "by node", "conditioning batch"), SAME)


@pytest.mark.parametrize("masks", [1, 3], ids=["one mask", "three masks"])
def test_regions_by_mask(ours: Any, record: Any, masks: int) -> None:
    regions = torch.rand(2, masks, 64, 64, generator=torch.Generator().manual_seed(6))
    positive = [
        [c[0], c[1] | {"mask": regions[i], "mask_strength": 0.5 + i, "set_area_to_bounds": False}]
        for i in range(2)
        for c in tiny_models.conditioning(10 + i)
    ]
    graph = Graph(cfg(tiny_models.unet(), positive, prompts()[1]), tiny_models.latent("eps", 3, 7))
    feature = "regions by mask, one for all images" if masks == 1 else "regions by mask, one for each image"
    record(feature, conforms(ours, graph, "vector"), SAME)


def test_regions_by_area(ours: Any, record: Any) -> None:
    positive = with_values(prompts()[0], area=(4, 4, 2, 2), strength=0.7) + tiny_models.conditioning(3)
    graph = Graph(cfg(tiny_models.unet(), positive, prompts()[1]), tiny_models.latent("eps", 2, 7))
    record("regions by area", conforms(ours, graph, "vector"), SAME)


@pytest.mark.parametrize("kind", ["flow", "eps", "v"])
def test_cfg_one(ours: Any, record: Any, kind: str) -> None:
    graph = Graph(cfg(tiny_models.build(kind), *prompts(), scale=1.0), tiny_models.latent(kind, 2, 7))
    record("cfg 1", conforms(ours, graph, "vector"), SAME)


def test_batch_index(ours: Any, record: Any) -> None:
    graph = Graph(cfg(tiny_models.flow(), *prompts()), tiny_models.latent("flow", 2), numbers=[4, 1])
    record("batch_index (Latent From Batch)", conforms(ours, graph, "vector"), SAME)
