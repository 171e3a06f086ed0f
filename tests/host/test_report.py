"""Speculation Report: the picture and the text of every kind of run."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import tiny_models
import torch

RUNS: dict[str, dict[str, Any]] = {
    "tree": {"widths": (2, 2)},
    "chain": {"widths": (1, 1, 1), "rule": "optimal", "drafter": "look_ahead"},
    "draft model": {"widths": (2, 1), "draft": 1},
    "auto": {"widths": "auto", "rule": "optimal", "drafter": "look_ahead"},
    "one row": {"widths": ()},
    "no noise": {"widths": (2, 1), "eta": 0.0},
    "one step": {"widths": (2, 1), "steps": 1},
    "three steps": {"widths": (2, 1), "steps": 3},
    "nothing": {"denoise": 0.0},
    "three images": {"widths": (2, 1), "batch": 3},
}


def _report(render: Any, name: str) -> dict[str, Any]:
    given = dict(RUNS[name])
    if "draft" in given:
        given["draft"] = tiny_models.flow(given["draft"])
    latent = {"samples": tiny_models.latent("flow", given.pop("batch", 1), seed=7)}
    return render(tiny_models.flow(), latent, tiny_models.conditioning(1), tiny_models.conditioning(2), **given)[1]


@pytest.mark.parametrize("name", list(RUNS))
def test_picture_and_text(ours: Any, render: Any, name: str) -> None:
    report = _report(render, name)
    output = ours.report.SpeculationReport.execute(report)
    image, text = output.args
    assert image.dtype == torch.float32 and image.shape[0] == 1 and image.shape[2:] == (1024, 3)
    assert 0.0 <= float(image.min()) < 0.3 and float(image.max()) == 1.0  # ink on paper
    assert text.startswith(report["summary"]) and output.ui == {"text": [text]}
    if report["mode"] == "plain":
        assert image.shape[1] < 512
        assert report["reason"] in text
    else:
        assert image.shape[1] == 1024 and f"model calls: {report['calls']}" in text
    assert "nan" not in text.lower()


def test_rounds_say_what_every_call_did(ours: Any, render: Any) -> None:
    for name in ("tree", "chain", "draft model", "three images"):
        report = _report(render, name)
        done, rows, depth, width = zip(*report["rounds"], strict=True)
        assert len(done) == report["calls"] and sum(rows) == report["rows"] and done[-1] == report["steps"]
        assert list(done) == sorted(done)
        widths = RUNS[name]["widths"]
        assert max(depth) <= len(widths) and max(width) <= max(widths)


def test_pictures_leave_no_trace_in_matplotlib(ours: Any, render: Any) -> None:
    """No figure is registered, so none stays alive; no backend is chosen for others."""
    import matplotlib
    import matplotlib.pyplot as plt

    before = dict(matplotlib.rcParams)
    ours.report.SpeculationReport.execute(_report(render, "tree"))
    assert plt.get_fignums() == [] and dict(matplotlib.rcParams) == before


def test_matplotlib_is_missing(ours: Any, render: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    report = _report(render, "tree")
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    image, text = ours.report.SpeculationReport.execute(report).args
    assert text.startswith(report["summary"]) and "python -m pip install matplotlib" in text
    assert image.shape[2:] == (1024, 3) and float(image.min()) < 0.5


def test_a_report_that_comes_later(ours: Any) -> None:
    """Speculative Sampler's report: refused unless drawn after the run, even if an earlier run has filled it."""
    import comfy_extras.nodes_custom_sampler as custom

    tree = ours.types.TreeSettings((2, 1), "rass", "frozen")
    sampler, report = ours.sampler.SpeculativeSampler.execute("euler_ancestral", 1.0, 1.0, None, tree).args
    node = ours.report.SpeculationReport
    with pytest.raises(ValueError, match="Speculation Report: .*Connect that node's output latent to `after`"):
        node.execute(report)
    with pytest.raises(ValueError, match="report is empty: the sampler has not run yet.*`after`"):
        node.execute(report, after={"samples": None})
    model, latent = tiny_models.flow(), {"samples": tiny_models.latent("flow")}
    prompts = tiny_models.conditioning(1), tiny_models.conditioning(2)
    sigmas = ours.host.ksampler.schedule(model, 6, "euler_ancestral", "simple", 1.0)
    output, _ = custom.SamplerCustom.execute(model, True, 5, 3.0, *prompts, sampler, sigmas, latent).args
    image, text = node.execute(report, after=output).args
    assert image.shape[1] == 1024 and "6 steps in" in text
    with pytest.raises(ValueError, match="`after`"):
        node.execute(report)


def test_a_long_run_is_legible(ours: Any) -> None:
    """200 steps, made up: nothing leaves the page, and it is drawn within a second or two."""
    rng = np.random.default_rng(1)
    done = np.minimum(np.cumsum(rng.integers(1, 5, 90)), 200)
    done = done[: int(np.argmax(done == 200)) + 1].tolist()
    report = {
        "summary": "200 steps", "steps": 200, "images": 1, "calls": len(done), "rows": 8 * len(done), "mode": "tree",
        "reason": "", "kernel": "flow_ancestral", "rule": "optimal", "drafter": "look_ahead", "tree": "auto",
        "calls_ratio": 200 / len(done), "rows_ratio": 3.0, "accepted": 150, "proposed": 180, "seconds": 1234.5,
        "deltas": rng.lognormal(-0.5, 1, 200).tolist(), "acceptances": rng.integers(0, 2, 200).tolist(),
        "rounds": [[d, 8, 7, 1] for d in done], "draft_calls": 0, "stock_seconds": 2400.0, "call_mode": "by sigma",
        "call_reason": "a ControlNet for a part of the steps", "model_calls": 120,
    }  # fmt: skip
    image, text = ours.report.SpeculationReport.execute(report).args
    edge = torch.cat([image[0, :, :8].flatten(), image[0, :, -8:].flatten(), image[0, :8].flatten()])
    assert float(edge.min()) == 1.0
    assert "calls by sigma: a ControlNet for a part of the steps (120 in all)" in text
