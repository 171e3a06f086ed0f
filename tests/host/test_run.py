"""A run inside the host: progress, previews, cancel, errors, batches, img2img, the sampler object."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import tiny_models
import torch


def _prompts() -> tuple[Any, Any]:
    return tiny_models.conditioning(1), tiny_models.conditioning(2)


@contextmanager
def progress_hook(hook: Any) -> Iterator[None]:
    import comfy.utils

    before = comfy.utils.PROGRESS_BAR_HOOK
    comfy.utils.set_progress_bar_global_hook(hook)
    try:
        yield
    finally:
        comfy.utils.set_progress_bar_global_hook(before)


@pytest.mark.parametrize("draft", [False, True], ids=["frozen", "draft"])
@pytest.mark.parametrize("denoise", [1.0, 0.5])
@pytest.mark.parametrize("batch", [1, 3])
def test_progress_never_goes_back_and_ends_at_the_total(
    render: Any, monkeypatch: pytest.MonkeyPatch, batch: int, denoise: float, draft: bool
) -> None:
    import comfy.cli_args
    import latent_preview

    monkeypatch.setattr(comfy.cli_args.args, "preview_method", latent_preview.LatentPreviewMethod.Latent2RGB)
    seen: list[tuple[int, int, Any]] = []
    with progress_hook(lambda value, total, preview, **_: seen.append((value, total, preview))):
        # The same weights draft for the target: every step is accepted, and progress comes in leaps.
        _, report = render(
            tiny_models.flow(), {"samples": tiny_models.latent("flow", batch, seed=7)}, *_prompts(),
            widths=(1, 1, 1), denoise=denoise, draft=tiny_models.flow() if draft else None,
        )  # fmt: skip
    values = [value for value, _, _ in seen]
    assert values == sorted(set(values)) and values[-1] == 6
    assert {total for _, total, _ in seen} == {6}
    assert all(preview is not None for _, _, preview in seen)
    assert report["calls"] == len(values) if batch == 1 else report["calls"] >= len(values)
    assert not draft or report["calls"] == 2


def test_the_last_denoised_is_the_result(ours: Any) -> None:
    """SamplerCustomAdvanced returns it as its second output."""
    import comfy_extras.nodes_custom_sampler as custom

    model, latent = tiny_models.flow(), {"samples": tiny_models.latent("flow", 2)}
    tree = ours.types.TreeSettings((1, 1))
    sampler, report = ours.sampler.SpeculativeSampler.execute("euler_ancestral", 1.0, 1.0, None, tree).args
    assert report == {"reason": "the sampler has not run yet", "late": True}
    guider = custom.CFGGuider.execute(model, *_prompts(), 3.0).args[0]
    sigmas = ours.host.ksampler.schedule(model, 6, "euler_ancestral", "simple", 1.0)
    output, denoised = custom.SamplerCustomAdvanced.execute(
        custom.Noise_RandomNoise(5), guider, sampler, sigmas, latent
    ).args
    assert report["mode"] == "tree" and report["steps"] == 6 and "6 steps in" in report["summary"]
    torch.testing.assert_close(output["samples"], denoised["samples"], rtol=1e-5, atol=1e-5)


def test_the_sampler_object_agrees_with_the_node(ours: Any, render: Any) -> None:
    import comfy_extras.nodes_custom_sampler as custom

    model, latent = tiny_models.flow(), {"samples": tiny_models.latent("flow", seed=7)}
    draft, tree = tiny_models.flow(1), ours.types.TreeSettings((2, 1), "greedy")
    sampler, _ = ours.sampler.SpeculativeSampler.execute("euler_ancestral", 1.0, 1.0, draft, tree).args
    sigmas = ours.host.ksampler.schedule(model, 6, "euler_ancestral", "simple", 0.7)
    output, _ = custom.SamplerCustom.execute(model, True, 5, 3.0, *_prompts(), sampler, sigmas, latent).args
    result, _ = render(model, latent, *_prompts(), widths=(2, 1), rule="greedy", draft=draft, denoise=0.7)
    assert torch.equal(output["samples"], result["samples"])


def test_one_guider_without_negative(ours: Any) -> None:
    import comfy_extras.nodes_custom_sampler as custom

    model, latent = tiny_models.flow(), {"samples": tiny_models.latent("flow")}
    sampler, report = ours.sampler.SpeculativeSampler.execute(
        "euler_ancestral", 1.0, 1.0, tiny_models.flow(1), ours.types.TreeSettings((2, 1), "rass")
    ).args
    guider = custom.BasicGuider.execute(model, tiny_models.conditioning(1)).args[0]
    sigmas = ours.host.ksampler.schedule(model, 6, "euler_ancestral", "simple", 1.0)
    custom.SamplerCustomAdvanced.execute(custom.Noise_RandomNoise(5), guider, sampler, sigmas, latent)
    assert report["mode"] == "tree" and report["draft_calls"] > 0


@pytest.mark.parametrize("draft", [False, True], ids=["frozen", "draft"])
def test_cancel_then_a_fresh_run(render: Any, draft: bool) -> None:
    import comfy.model_management

    model, proposer = tiny_models.flow(), tiny_models.flow(1) if draft else None
    latent, given = {"samples": tiny_models.latent("flow", 2, seed=7)}, {"widths": (2, 1), "draft": proposer}
    fresh, _ = render(model, latent, *_prompts(), **given)

    calls = []

    def press_cancel(*_: Any) -> None:
        calls.append(1)
        if len(calls) == 3:
            comfy.model_management.interrupt_current_processing()

    handle = model.model.diffusion_model.register_forward_pre_hook(press_cancel)
    with pytest.raises(comfy.model_management.InterruptProcessingException):
        render(model, latent, *_prompts(), **given)
    handle.remove()
    assert len(calls) == 3  # no call after the one during which it was pressed
    again, _ = render(model, latent, *_prompts(), **given)
    assert torch.equal(again["samples"], fresh["samples"])


@pytest.mark.parametrize("who", ["target", "draft"])
def test_an_error_inside_a_model_then_a_fresh_run(render: Any, who: str) -> None:
    models = {"target": tiny_models.flow(), "draft": tiny_models.flow(1)}
    latent, given = {"samples": tiny_models.latent("flow", seed=7)}, {"widths": (2, 1), "draft": models["draft"]}
    fresh, _ = render(models["target"], latent, *_prompts(), **given)
    calls = []

    def fail(*_: Any) -> None:
        calls.append(1)
        if len(calls) == 4:
            raise RuntimeError("out of luck")

    handle = models[who].model.diffusion_model.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="out of luck"):
        render(models["target"], latent, *_prompts(), **given)
    handle.remove()
    again, _ = render(models["target"], latent, *_prompts(), **given)
    assert torch.equal(again["samples"], fresh["samples"])


def test_nothing_stays_alive(render: Any) -> None:
    """After a run neither the clone of the model nor the states of the tree are held by the pack."""
    model, draft = tiny_models.flow(), tiny_models.flow(1)
    alive: list[weakref.ref[torch.Tensor]] = []
    handle = model.model.diffusion_model.register_forward_pre_hook(lambda _, args: alive.append(weakref.ref(args[0])))
    render(model, {"samples": tiny_models.latent("flow")}, *_prompts(), widths=(2, 1), draft=draft)
    handle.remove()
    gc.collect()
    assert alive and not any(ref() is not None for ref in alive)
    assert draft.model.current_patcher in (None, draft)
    assert not draft.additional_models and not model.additional_models


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@pytest.mark.parametrize("prompts", [1, 3])
@pytest.mark.parametrize("draft", [False, True], ids=["frozen", "draft"])
def test_an_image_does_not_depend_on_its_batch(render: Any, draft: bool, prompts: int, masked: bool) -> None:
    """Image b of three, alone with its batch_index, prompt and mask, is the same picture."""
    target, proposer = tiny_models.flow(), tiny_models.flow() if draft else None
    if proposer:
        with torch.no_grad():  # near the target: some drafts are taken, some are not
            for weight in proposer.model.diffusion_model.parameters():
                weight.add_(0.003 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    positive, negative = tiny_models.conditioning(1, prompts), tiny_models.conditioning(2)
    latent: dict[str, Any] = {"samples": tiny_models.latent("flow", 3, seed=7), "batch_index": [0, 1, 2]}
    if masked:
        latent["noise_mask"] = torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(3))
    given = {"widths": (2, 1, 1), "draft": proposer}
    together, report = render(target, latent, positive, negative, **given)
    assert report["mode"] == "tree" and (not draft or report["accepted"] > 0)
    for b in range(3):
        own = [
            [c[0][b % prompts : b % prompts + 1], {k: v[b % prompts : b % prompts + 1] for k, v in c[1].items()}]
            for c in positive
        ]
        alone, _ = render(target, {k: v[b : b + 1] for k, v in latent.items()}, own, negative, **given)
        torch.testing.assert_close(alone["samples"][0], together["samples"][b], rtol=1e-3, atol=1e-3)


def test_masked_out_parts_are_kept(render: Any) -> None:
    """Where the mask is 0 the picture that comes out is the one that went in."""
    mask = torch.zeros(1, 64, 64)
    mask[:, :, 32:] = 1
    latent = {"samples": tiny_models.latent("flow", seed=7), "noise_mask": mask}
    result, report = render(tiny_models.flow(), latent, *_prompts(), widths=(2, 1), draft=tiny_models.flow())
    assert report["mode"] == "tree"
    kept = result["samples"][..., :4], latent["samples"][..., :4]
    torch.testing.assert_close(*kept, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(result["samples"][..., 4:], latent["samples"][..., 4:], atol=0.1)


def test_two_sizes_in_a_row(render: Any) -> None:
    model, draft = tiny_models.flow(), tiny_models.flow(1)
    first, _ = render(model, {"samples": tiny_models.latent("flow")}, *_prompts(), widths=(2, 1), draft=draft)
    wide = {"samples": tiny_models.latent("flow", 2, size=12)}
    render(model, wide, *_prompts(), widths=(2, 1), draft=draft)
    again, _ = render(model, {"samples": tiny_models.latent("flow")}, *_prompts(), widths=(2, 1), draft=draft)
    assert torch.equal(first["samples"], again["samples"])


@pytest.mark.parametrize("kind", ["flow", "eps", "v"])
def test_a_twin_draft_is_always_accepted(render: Any, kind: str) -> None:
    """A draft with the target's weights proposes the target's own steps, with mask and CFG."""
    latent = {"samples": tiny_models.latent(kind, 2, seed=7), "noise_mask": torch.rand(2, 64, 64)}
    _, report = render(
        tiny_models.build(kind), latent, *_prompts(), widths=(1, 1), rule="reflection", draft=tiny_models.build(kind)
    )
    assert report["drafter"] == "draft model" and report["calls"] == 2
    assert report["accepted"] == report["proposed"] > 0
    assert max(delta for delta in report["deltas"] if delta is not None) < 0.05


def test_a_patched_draft_is_not_used(render: Any, caplog: pytest.LogCaptureFixture) -> None:
    draft = tiny_models.flow(1).clone()
    draft.set_model_sampler_post_cfg_function(lambda args: args["denoised"])
    with caplog.at_level("WARNING"):
        _, report = render(
            tiny_models.flow(), {"samples": tiny_models.latent("flow")}, *_prompts(), widths=(2, 1), draft=draft
        )
    assert report["drafter"] == "frozen" and report["draft_calls"] == 0
    assert "post-CFG patch" in caplog.text


def test_log_and_ui(ours: Any, caplog: pytest.LogCaptureFixture) -> None:
    """One line in the log; the same line and the numbers in the node's ui, which /history keeps."""
    import json

    with caplog.at_level("INFO"):
        output = ours.ksampler.SpeculativeKSampler.execute(
            tiny_models.flow(),
            5,
            6,
            3.0,
            "euler_ancestral",
            "simple",
            *_prompts(),
            {"samples": tiny_models.latent("flow")},
            1.0,
            1.0,
            1.0,
        )
    report = output.args[1]
    lines = [record.getMessage() for record in caplog.records if "[DraftTree]" in record.getMessage()]
    assert lines == [f"[DraftTree] Speculative KSampler: {report['summary']}"] and lines[0].isascii()
    assert output.ui == {"text": [report["summary"]], "drafttree_report": [report]}
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert report["tree"] == "auto" and report["rule"] == "optimal"
