"""A graph that ends in a sampler, run by the stock sampler, by ours, and looked at row by row."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tiny_models
import torch

SEED = 5
WIDTHS = (2, 1)
TOLERANCE = 1e-4
"""Relative and absolute: batched and single matrix products round differently."""

SAME = "rows equal single calls within 1e-4; one row is the stock sampler bit for bit"


@dataclass
class Graph:
    """guider(): a new guider with its conds. latent: [B, ...]. mask: a noise mask. sigmas: [N + 1] instead of steps."""

    guider: Callable[[], Any]
    latent: torch.Tensor
    mask: torch.Tensor | None = None
    sigmas: torch.Tensor | None = None
    sampler_name: str = "euler_ancestral"
    numbers: list[int] | None = None
    steps: int = 5
    scheduler: str = "simple"
    denoise: float = 1.0
    options: dict[str, Any] = field(default_factory=dict)

    def schedule(self, ours: SimpleNamespace) -> torch.Tensor:
        if self.sigmas is None:
            patcher = self.guider().model_patcher
            schedule = ours.host.ksampler.schedule
            return schedule(patcher, self.steps, self.sampler_name, self.scheduler, self.denoise)
        return self.sigmas

    def sample(self, ours: SimpleNamespace, sampler: Any) -> torch.Tensor:
        """Through the host's own way, with any sampler object."""
        import comfy.sample

        guider = self.guider()
        latent = comfy.sample.fix_empty_latent_channels(guider.model_patcher, self.latent)
        noise = comfy.sample.prepare_noise(latent, SEED, self.numbers)
        return guider.sample(
            noise, latent.clone(), sampler, self.schedule(ours), denoise_mask=self.mask, disable_pbar=True, seed=SEED
        )


def cfg(model: Any, positive: Any, negative: Any, scale: float = 3.0) -> Callable[[], Any]:
    """The guider of KSampler."""
    import comfy.samplers

    def build() -> Any:
        guider = comfy.samplers.CFGGuider(model)
        guider.set_conds(positive, negative)
        guider.set_cfg(scale)
        return guider

    return build


def stock(ours: SimpleNamespace, graph: Graph) -> torch.Tensor:
    """ComfyUI's sampler function of that name, given our step noise."""
    import comfy.samplers

    channels = graph.guider().model_patcher.get_model_object("latent_format").latent_channels
    shape = (len(graph.latent), channels, *graph.latent.shape[2:])
    numbers = graph.numbers or range(len(graph.latent))
    generators = [torch.Generator().manual_seed(ours.core.noise.image_seed(SEED, n) + 1) for n in numbers]

    def noise(sigma: Any, sigma_next: Any) -> torch.Tensor:
        return torch.cat([torch.randn(1, *shape[1:], generator=g) for g in generators])

    return graph.sample(ours, comfy.samplers.ksampler(graph.sampler_name, {**graph.options, "noise_sampler": noise}))


def speculative(
    ours: SimpleNamespace, graph: Graph, widths: tuple[int, ...] | str = WIDTHS, draft: Any = None, **tree: Any
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Ours, and its report."""
    tree = ours.types.TreeSettings(widths, **{"rule": "rass", "drafter": "frozen", **tree})
    settings = ours.host.sampler.Settings(
        "sweep", graph.sampler_name, tree=tree, draft=draft, image_numbers=graph.numbers, **graph.options
    )
    sampler = ours.host.sampler.SpeculativeSampler(settings)
    with logged(ours) as lines:
        latent = graph.sample(ours, sampler)
    # The reason is told once in the log and once in the report, in ASCII for any console.
    told = [line for line in lines if line.startswith("[DraftTree] sweep:")]
    reason = sampler.report["call_reason"]
    assert len(told) == 1 and (not reason or sum(line.count(reason) for line in lines) == 1), lines
    assert not reason or sampler.report["summary"].count(reason) == 1
    assert all(line.isascii() for line in lines)
    return latent, sampler.report


@contextmanager
def logged(ours: SimpleNamespace) -> Iterator[list[str]]:
    """The lines that the pack logs meanwhile."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger(ours.host.sampler.__name__.rpartition(".")[0])
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def inside(ours: SimpleNamespace, graph: Graph, look: Callable[..., None]) -> None:
    """Run look(model_k, x, sigmas, extra_args) where the host would run a sampler function."""
    import comfy.samplers

    def function(model_k: Any, x: Any, sigmas: Any, extra_args: Any = None, **_: Any) -> Any:
        look(model_k, x, sigmas, extra_args)
        return x

    graph.sample(ours, comfy.samplers.KSAMPLER(function))


def row_sets(batch: int) -> list[list[int]]:
    """Images of the rows of a call: whole batches, then ragged, then out of order."""
    images = list(range(batch))
    return [images * (3 if batch == 1 else 2), (images * 2)[1:][::-1], [images[-1]] * 2]


def rows_agree(ours: SimpleNamespace, graph: Graph, tolerance: float = TOLERANCE, forced: Any = None) -> None:
    """Rows at the noise levels of all steps, in the mode that is chosen, against the host's own call of one batch.

    forced: a Choice to take instead.
    """

    def look(model_k: Any, x: torch.Tensor, sigmas: torch.Tensor, extra_args: dict[str, Any]) -> None:
        choice = forced or ours.host.modes.choose(model_k.inner_model, extra_args["model_options"], sigmas, len(x))
        assert choice.mode < ours.host.finding.Mode.PLAIN, choice.reason
        target = ours.host.target.rows_of(model_k, extra_args, choice, len(x))
        generator = torch.Generator().manual_seed(2)
        steps = len(sigmas) - 1
        for turn, images in enumerate(row_sets(len(x))):
            rows = torch.randn(len(images), *x.shape[1:], generator=generator)
            spread = torch.linspace(0, steps - 1, len(images)).round().long()  # over the whole schedule
            sigma = sigmas[spread.roll(turn)]
            together = target(rows, sigma, np.array(images))
            for row, (image, s) in enumerate(zip(images, sigma, strict=True)):
                batch = torch.randn(x.shape, generator=generator)
                batch[image] = rows[row]
                if choice.keyframes:
                    choice.keyframes.set(s)
                alone = model_k(batch, s.expand(len(x)), **extra_args)[image]
                torch.testing.assert_close(together[row], alone, rtol=tolerance, atol=tolerance)

    inside(ours, graph, look)


def fast_is_wrong(ours: SimpleNamespace, graph: Graph, whole_batches: bool = True) -> None:
    """The checks above can fail: all rows in one call would be wrong for this graph."""
    with pytest.raises((AssertionError, RuntimeError)):
        rows_agree(ours, graph, forced=ours.host.modes.Choice(whole_batches=whole_batches))


def conforms(ours: SimpleNamespace, graph: Graph, mode: str, reason: str = "", tolerance: float = TOLERANCE) -> Any:
    """The whole claim for a feature that is speculated on; returns the report of a run with a tree."""
    reference = stock(ours, graph)
    rows_agree(ours, graph, tolerance)
    drafted, drafting = speculative(ours, graph)
    assert torch.isfinite(drafted).all()
    assert (drafting["mode"], drafting["call_mode"]) == ("tree", mode), drafting
    assert reason in drafting["call_reason"] and bool(reason) == bool(drafting["call_reason"])
    calls, rounds = drafting["model_calls"], drafting["calls"]
    assert calls == rounds if mode == "vector" else calls > rounds
    one, report = speculative(ours, graph, ())
    assert torch.equal(one, reference) and report["call_mode"] == "plain"  # and nothing has been left behind
    return drafting


def is_plain(ours: SimpleNamespace, build: Callable[[], Graph], reason: str) -> Any:
    """The whole claim for a feature that is not: build() makes the graph anew, as state may be left in it."""
    reference = stock(ours, build())
    got, report = speculative(ours, build())
    assert report["mode"] == report["call_mode"] == "plain"
    assert reason in report["reason"] and report["reason"] == report["call_reason"]
    assert report["calls"] == report["steps"]
    assert torch.equal(got, reference)
    return report


def node(module: str, name: str) -> Any:
    """A class of ComfyUI's own nodes."""
    return getattr(importlib.import_module(f"comfy_extras.{module}"), name)


def patched(model: Any, module: str, name: str, **values: Any) -> Any:
    """The MODEL behind a node of ComfyUI."""
    made = node(module, name)
    execute = made.execute if hasattr(made, "execute") else getattr(made(), made.FUNCTION)
    output = execute(model=model, **values)
    return output.args[0] if hasattr(output, "args") else output[0]


def prompts(batch: int = 1) -> tuple[Any, Any]:
    return tiny_models.conditioning(1, batch), tiny_models.conditioning(2, batch)


def with_values(conditioning: list[Any], **values: Any) -> list[Any]:
    """A CONDITIONING with more values."""
    return [[tensor, {**given, **values}] for tensor, given in conditioning]
