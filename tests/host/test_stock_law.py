"""Pictures of the draft tree have the law of pictures of the stock sampler: two-sample tests on the tiny model.

Energy distance between 384 of our latents and 384 of ComfyUI's own euler_ancestral, judged by permutation: under equal
laws a test fails by chance once in 1000 (seeds are fixed, so a pass stays a pass). A sampler that takes every draft
unjudged must fail it.
"""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

IMAGES, BATCH, STEPS, CFG, FALSE_ALARM = 384, 64, 8, 2.0, 1e-3


@pytest.fixture(scope="module")
def tiny(pack: ModuleType, ours: Any) -> dict[str, Any]:
    """The shipped models through the stock loader and our own; "face" is a word with many pictures."""
    import nodes

    asyncio.run(pack.comfy_entrypoint())
    model, _, _ = nodes.CheckpointLoaderSimple().load_checkpoint("drafttree-demo.safetensors")
    (draft,) = ours.draft_model.LoadDraftModel.execute("drafttree-demo-draft.safetensors", "default").args
    positive, negative = (ours.demo_prompt.DemoPrompt.execute(text).args[0] for text in ("face", ""))
    return {"model": model, "draft": draft, "positive": positive, "negative": negative}


@pytest.fixture(scope="module")
def stock(tiny: dict[str, Any], ours: Any) -> torch.Tensor:
    """[IMAGES, D] from the stock sampler function with noise of its own."""
    import comfy.sample
    import comfy.samplers

    generator = torch.Generator().manual_seed(99)
    sampler = comfy.samplers.ksampler(
        "euler_ancestral", {"noise_sampler": lambda *_: torch.randn(BATCH, 16, 8, 8, generator=generator)}
    )
    sigmas = ours.host.ksampler.schedule(tiny["model"], STEPS, "euler_ancestral", "simple", 1.0)
    latent = torch.zeros(BATCH, 16, 8, 8)
    return torch.cat([
        comfy.sample.sample_custom(
            tiny["model"], torch.randn(latent.shape, generator=generator), CFG, sampler, sigmas,
            tiny["positive"], tiny["negative"], latent, disable_pbar=True, seed=0,
        )
        for _ in range(IMAGES // BATCH)
    ]).flatten(1)  # fmt: skip


def ours_sample(render: Any, tiny: dict[str, Any], **given: Any) -> tuple[torch.Tensor, list[dict[str, Any]]]:
    """[IMAGES, D] from our node."""
    runs = [
        render(
            tiny["model"], {"samples": torch.zeros(BATCH, 16, 8, 8)}, tiny["positive"], tiny["negative"],
            seed=1000 + i, steps=STEPS, cfg=CFG, **given,
        )
        for i in range(IMAGES // BATCH)
    ]  # fmt: skip
    return torch.cat([latent["samples"] for latent, _ in runs]).flatten(1), [report for _, report in runs]


def p_value(a: torch.Tensor, b: torch.Tensor, permutations: int = 4999) -> float:
    """Of the hypothesis that a and b have one law, by permuting the energy distance (Szekely and Rizzo 2004)."""
    pooled = torch.cat([a, b]).double()
    distance = torch.cdist(pooled, pooled).numpy()
    rng = np.random.default_rng(0)
    labels = np.repeat([1.0, -1.0], [len(a), len(b)])
    # With equal sample sizes the energy distance is, up to a positive factor, minus the quadratic form of the labels.
    observed = -labels @ distance @ labels
    shuffled = np.stack([rng.permutation(labels) for _ in range(permutations)])
    at_least = (-np.einsum("pi,pi->p", shuffled @ distance, shuffled) >= observed).sum()
    return float(at_least + 1) / (permutations + 1)


CASES = {
    "frozen, rass": {"widths": (2, 1), "rule": "rass"},
    "frozen, greedy": {"widths": (2, 2), "rule": "greedy"},
    "frozen, reflection": {"widths": (1, 1, 1), "rule": "reflection"},
    "draft model, rass": {"widths": (2, 1), "rule": "rass", "draft": True},
}


@pytest.mark.parametrize("case", list(CASES))
def test_same_law_as_stock(render: Any, tiny: dict[str, Any], stock: torch.Tensor, case: str) -> None:
    given = CASES[case] | ({"draft": tiny["draft"]} if "draft" in CASES[case] else {})
    latents, reports = ours_sample(render, tiny, **given)
    assert all(report["mode"] == "tree" and 0 < report["accepted"] < report["proposed"] for report in reports)
    assert p_value(latents, stock) > FALSE_ALARM


def test_the_test_sees_a_sampler_that_takes_every_draft(
    render: Any, ours: Any, tiny: dict[str, Any], stock: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = type(ours.core.coupling.get("reflection"))
    monkeypatch.setattr(rule, "select", lambda self, delta, u, draws: torch.zeros(len(delta), dtype=torch.int64))
    latents, reports = ours_sample(render, tiny, widths=(1, 1, 1), rule="reflection")
    assert all(report["accepted"] == report["proposed"] for report in reports)
    assert p_value(latents, stock) <= FALSE_ALARM
