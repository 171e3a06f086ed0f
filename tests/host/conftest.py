"""The pack's modules, as this folder's tests use them."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch


@pytest.fixture(scope="session")
def ours(pack: ModuleType) -> SimpleNamespace:
    """The modules of the pack by their last names, and of its adapter in `host`."""

    def module(name: str) -> ModuleType:
        return importlib.import_module(f"{pack.__name__}.{name}")

    # ComfyUI logs a warning for every optional package it lacks; they are nothing to us.
    logging.getLogger().setLevel(logging.ERROR)
    torch.set_num_threads(1)  # the networks are too small for more
    nodes = {
        name: module(f"nodes.{name}")
        for name in (
            "configure",
            "demo_prompt",
            "draft_model",
            "extension",
            "ksampler",
            "ksampler_advanced",
            "picture",
            "report",
            "sampler",
            "types",
        )
    }
    names = ("modes", "sampler", "target", "ksampler", "draft", "cost", "probe", "known", "finding", "compat")
    host = {name: module(f"nodes.host.{name}") for name in names}
    return SimpleNamespace(**nodes, host=SimpleNamespace(**host), core=module("sampler_core"))


@pytest.fixture(scope="session")
def render(ours: SimpleNamespace) -> Callable[..., tuple[dict[str, Any], dict[str, Any]]]:
    """Run the Speculative KSampler node: render(model, latent, positive, negative, **settings) -> (LATENT, report)."""

    def run(model: Any, latent: dict[str, Any], positive: Any, negative: Any, **given: Any) -> tuple[Any, Any]:
        values = {
            "seed": 5,
            "steps": 6,
            "cfg": 3.0,
            "sampler_name": "euler_ancestral",
            "scheduler": "simple",
            "denoise": 1.0,
        }
        values |= {"eta": 1.0, "s_noise": 1.0} | given
        if (widths := values.pop("widths", None)) is not None:
            settings = {"rule": "rass", "drafter": "frozen", "most_rows": 8}
            values["tree"] = ours.types.TreeSettings(widths, **{k: values.pop(k, v) for k, v in settings.items()})
        output = ours.ksampler.SpeculativeKSampler.execute(
            model=model, positive=positive, negative=negative, latent_image=latent, **values
        )
        return output.args

    return run


@pytest.fixture
def our_noise(ours: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stock samplers draw our step noise: of each image alone, and not the initial noise once more."""
    import comfy.k_diffusion.sampling

    def default_noise_sampler(x: torch.Tensor, seed: int | None = None) -> Callable[..., torch.Tensor]:
        seeds = [ours.core.noise.image_seed(seed, n) + 1 for n in range(len(x))]
        generators = [torch.Generator().manual_seed(s) for s in seeds]
        return lambda sigma, sigma_next: torch.cat([torch.randn(1, *x.shape[1:], generator=g) for g in generators])

    monkeypatch.setattr(comfy.k_diffusion.sampling, "default_noise_sampler", default_noise_sampler)
