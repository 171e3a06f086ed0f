"""Steps, noise levels, precisions: what the sampler itself is asked for."""

from __future__ import annotations

from typing import Any

import pytest
import tiny_models
import torch
from graphs import SAME, SEED, Graph, cfg, conforms, prompts, stock

THEME = "Steps and precision"
KINDS = ["flow", "eps", "v"]
# Half precision rounds a latent of about 1 to 1e-3 or 8e-3, and batches round otherwise than single latents.
HALF = {torch.float16: 2e-2, torch.bfloat16: 1e-1}


def _graph(kind: str, batch: int = 2, **given: Any) -> Graph:
    return Graph(cfg(tiny_models.build(kind), *prompts()), tiny_models.latent(kind, batch, 7), **{"steps": 6, **given})


def _schedulers() -> list[str]:
    import comfy.samplers

    return list(comfy.samplers.KSampler.SCHEDULERS)


@pytest.mark.parametrize("denoise", [1.0, 0.99, 0.5, 0.05])
@pytest.mark.parametrize("kind", KINDS)
def test_denoise(ours: Any, record: Any, kind: str, denoise: float) -> None:
    record(f"denoise {denoise}", conforms(ours, _graph(kind, denoise=denoise), "vector"), SAME)


def test_denoise_zero(record: Any, render: Any) -> None:
    latent = tiny_models.latent("flow", 2, 7)
    result, report = render(tiny_models.flow(), {"samples": latent}, *prompts(), denoise=0.0)
    assert torch.equal(result["samples"], latent) and report["reason"] == "denoise is 0"
    full, whole = render(tiny_models.flow(), {"samples": latent}, *prompts(), widths=())
    assert set(whole) - set(report) <= {"sigmas", "stock_seconds"}
    record("denoise 0", report, "the latent as it came")


def test_every_scheduler(ours: Any, record: Any) -> None:
    for scheduler in _schedulers():
        for kind in ("flow", "eps"):
            record("every scheduler of the host", conforms(ours, _graph(kind, 1, scheduler=scheduler), "vector"), SAME)


@pytest.mark.parametrize("name", ["lcm", "ddpm"])
@pytest.mark.parametrize("kind", KINDS)
def test_other_samplers(ours: Any, record: Any, kind: str, name: str) -> None:
    if (kind, name) != ("flow", "ddpm"):
        record(f"sampler {name}", conforms(ours, _graph(kind, sampler_name=name), "vector"), SAME)
        return
    with pytest.raises(ValueError, match="ddpm, which is not made for flow models"):
        conforms(ours, _graph(kind, sampler_name=name), "vector")
    record("sampler ddpm on a flow model", "declined", "an error that names sampler_name and what works")


@pytest.mark.parametrize("dtype", list(HALF), ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_weights(ours: Any, record: Any, kind: str, dtype: torch.dtype) -> None:
    model = tiny_models.build(kind)
    model.model.to(dtype)
    model.model.manual_cast_dtype = None
    model.model.diffusion_model.dtype = dtype
    graph = Graph(cfg(model, *prompts()), tiny_models.latent(kind, 2, 7))
    name = str(dtype).removeprefix("torch.")
    words = f"rows equal single calls within {HALF[dtype]:g}; one row is the stock sampler bit for bit"
    record(f"{name} weights", conforms(ours, graph, "vector", tolerance=HALF[dtype]), words)


SCHEDULES = {
    "a schedule that starts at the highest noise level": ([1.0, 0.9, 0.6, 0.4, 0.0], [14.6, 8.0, 3.0, 1.0, 0.0]),
    "a schedule that starts below it": ([0.7, 0.5, 0.3, 0.1, 0.0], [3.0, 2.0, 1.0, 0.4, 0.0]),
    "a schedule that does not end at 0": ([1.0, 0.8, 0.6, 0.4, 0.3], [14.6, 9.0, 5.0, 2.0, 1.0]),
}


@pytest.mark.parametrize("name", list(SCHEDULES))
@pytest.mark.parametrize("kind", KINDS)
def test_schedules(ours: Any, record: Any, kind: str, name: str) -> None:
    sigmas = torch.tensor(SCHEDULES[name][kind != "flow"])
    record(name, conforms(ours, _graph(kind, sigmas=sigmas), "vector"), SAME)


@pytest.mark.parametrize("kind", KINDS)
def test_rising_schedule(ours: Any, record: Any, kind: str) -> None:
    with pytest.raises(ValueError, match=r"sweep: sigmas: the schedule rises at step 1.*must fall"):
        conforms(ours, _graph(kind, sigmas=torch.tensor([0.9, 0.4, 0.6, 0.0])), "vector")
    record("rising noise levels", "declined", "an error that names the step and the remedy")


@pytest.mark.parametrize("kind", ["flow", "eps"])
def test_split_sigmas_with_a_mask(ours: Any, record: Any, kind: str) -> None:
    """As SplitSigmas and two SamplerCustomAdvanced do."""
    whole = _graph(kind).schedule(ours)
    mask = torch.rand(2, 64, 64, generator=torch.Generator().manual_seed(3))
    for sigmas in (whole[:4], whole[3:]):
        record("split sigmas with a noise mask", conforms(ours, _graph(kind, mask=mask, sigmas=sigmas), "vector"), SAME)


def test_empty_latent_of_other_channels(ours: Any, record: Any) -> None:
    graph = Graph(cfg(tiny_models.flow(), *prompts()), torch.zeros(2, 4, 8, 8))
    record("an empty latent of 4 channels for a model of 16", conforms(ours, graph, "vector"), SAME)


PARTS = {
    "the first steps, noise left over": ("enable", 0, 4, "enable"),
    "the last steps of a noisy latent": ("disable", 4, 10000, "disable"),
    "steps in the middle, noise left over": ("enable", 1, 5, "enable"),
    "steps in the middle, noise removed": ("enable", 1, 5, "disable"),
    "all steps": ("enable", 0, 10000, "disable"),
    "no steps": ("enable", 6, 10000, "disable"),
    "an end at step 0": ("enable", 0, 0, "disable"),
}


def _advanced(ours: Any, latent: Any, kind: str, part: tuple[Any, ...], widths: Any) -> tuple[Any, Any]:
    noise, start, end, leftover = part
    node = ours.ksampler_advanced.SpeculativeKSamplerAdvanced
    tree = ours.types.TreeSettings(widths, "rass", "frozen")
    given = {"model": tiny_models.build(kind), "noise_seed": SEED, "steps": 6, "cfg": 3.0, "eta": 1.0, "s_noise": 1.0}
    given |= {"sampler_name": "euler_ancestral", "scheduler": "simple", "latent_image": latent, "tree": tree}
    given |= {"add_noise": noise, "start_at_step": start, "end_at_step": end, "return_with_leftover_noise": leftover}
    positive, negative = prompts()
    output = node.execute(positive=positive, negative=negative, **given)
    assert output.ui["drafttree_report"] == [output.args[1]]
    return output.args


@pytest.mark.parametrize("name", list(PARTS))
@pytest.mark.parametrize("kind", ["flow", "eps"])
def test_advanced(ours: Any, record: Any, our_noise: None, kind: str, name: str) -> None:
    """One row against the stock node, and a tree over the same steps."""
    import nodes

    noise, start, end, leftover = part = PARTS[name]
    latent = {"samples": tiny_models.latent(kind, 2, 7)}
    (reference,) = nodes.KSamplerAdvanced().sample(
        tiny_models.build(kind),
        noise,
        SEED,
        6,
        3.0,
        "euler_ancestral",
        "simple",
        *prompts(),
        latent,
        start,
        end,
        leftover,
    )
    one, report = _advanced(ours, latent, kind, part, ())
    assert torch.equal(one["samples"], reference["samples"])
    drafted, report = _advanced(ours, latent, kind, part, (2, 1))
    steps = max(min(end, 6) - start, 0)
    assert report["steps"] == steps and torch.isfinite(drafted["samples"]).all()
    assert report["mode"] == ("tree" if steps > 2 else "plain")
    words = "one row is the stock node bit for bit" + ("; the tree draws from the same kernels" if steps > 2 else "")
    record(f"Advanced: {name}", report, words)


@pytest.mark.parametrize("kind", ["flow", "eps"])
def test_two_in_a_row(ours: Any, record: Any, kind: str) -> None:
    """Noise left over by the first for the second: together the first's schedule, without a seam."""
    latent = {"samples": tiny_models.latent(kind, 2, 7)}
    first, _ = _advanced(ours, latent, kind, ("enable", 0, 3, "enable"), ())
    second, report = _advanced(ours, first, kind, ("disable", 3, 10000, "disable"), ())
    sigmas = _graph(kind).schedule(ours)
    start = stock(ours, _graph(kind, sigmas=sigmas[:4]))
    assert torch.equal(first["samples"], start)
    drafted, report = _advanced(ours, first, kind, ("disable", 3, 10000, "disable"), (2, 1))
    assert report["mode"] == "tree" and torch.isfinite(drafted["samples"]).all() and second["samples"].isfinite().all()
    record("Advanced: two samplers, one after the other", report, "each half is the stock sampler's half")
