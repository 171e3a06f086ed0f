"""The planned tree inside the host: look-ahead drafts, costs timed once, the plain sampler where rows cost much."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import tiny_models
import torch

AUTO = {"widths": "auto", "rule": "optimal", "drafter": "look_ahead"}


def _prompts() -> tuple[Any, Any]:
    return tiny_models.conditioning(1), tiny_models.conditioning(2)


def _latent(batch: int = 1) -> dict[str, Any]:
    return {"samples": tiny_models.latent("flow", batch, seed=7)}


@pytest.fixture
def costs(ours: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[float, ...]]]:
    """The first entry is what every model costs."""
    given: list[tuple[float, ...]] = [(1.0,) * 64]
    monkeypatch.setattr(ours.host.cost, "table", lambda model, key, rows, call: (given[0][:rows], 0))
    monkeypatch.setattr(ours.host.cost, "known", lambda model, key: given[0])
    yield given


@pytest.mark.parametrize("batch", [1, 3])
def test_free_rows_are_used(render: Any, costs: Any, batch: int) -> None:
    result, report = render(tiny_models.flow(), _latent(batch), *_prompts(), steps=12, **AUTO)
    assert report["mode"] == "tree" and report["drafter"] == "look_ahead" and report["proposed"] > 0
    assert report["calls"] < 12
    assert torch.isfinite(result["samples"]).all()


def test_nothing_connected_is_auto(render: Any, costs: Any) -> None:
    latent = _latent()
    bare, report = render(tiny_models.flow(), latent, *_prompts(), steps=8)
    planned, _ = render(tiny_models.flow(), latent, *_prompts(), steps=8, **AUTO)
    assert torch.equal(bare["samples"], planned["samples"]) and report["mode"] == "tree"


def test_an_image_does_not_depend_on_its_company(render: Any, costs: Any) -> None:
    """Three images in one batch, and each alone: they agree to the rounding of the batched call."""
    latent = _latent(3) | {"batch_index": [0, 1, 2]}
    three, _ = render(tiny_models.flow(), latent, *_prompts(), steps=8, **AUTO)
    for i in range(3):
        one = {"samples": tiny_models.latent("flow", 3, seed=7)[i : i + 1], "batch_index": [i]}
        alone, _ = render(tiny_models.flow(), one, *_prompts(), steps=8, **AUTO)
        torch.testing.assert_close(alone["samples"][0], three["samples"][i], rtol=1e-3, atol=1e-3)


def test_rows_that_cost_too_much_mean_the_stock_sampler(render: Any, costs: Any) -> None:
    costs[0] = tuple(float(w) for w in range(1, 65))
    latent = _latent(2)
    result, report = render(tiny_models.flow(), latent, *_prompts(), **AUTO)
    assert report["mode"] == "plain" and "2 latents takes 2.00 times" in report["reason"]
    assert report["calls"] == report["steps"] == 6 and report["rows"] == 12
    plain, _ = render(tiny_models.flow(), latent, *_prompts(), widths=())
    assert torch.equal(result["samples"], plain["samples"])


def test_memory_is_asked_for_what_may_be_used(ours: Any, costs: Any) -> None:
    model, samples = tiny_models.flow(), tiny_models.latent("flow")
    settings = ours.host.sampler.Settings("node")
    rows = lambda: ours.host.ksampler._rows(settings, model, _prompts()[0], samples.shape, 3.0)  # noqa: E731
    assert rows() == 8
    costs[0] = tuple(float(w) for w in range(1, 65))
    assert rows() == 1


def test_costs_are_timed_once(ours: Any, render: Any) -> None:
    model, latent = tiny_models.flow(), _latent()
    _, first = render(model, latent, *_prompts(), **AUTO)
    _, second = render(model, latent, *_prompts(), **AUTO)
    assert first["timing_calls"] > 0 and second["timing_calls"] == 0
    assert first["row_costs"] == second["row_costs"] and len(first["row_costs"]) == 8
    assert ours.host.cost.known(model.model, ours.host.sampler.cost_key(latent["samples"].shape, 3.0))
    _, other = render(model, {"samples": torch.zeros(1, 16, 12, 12)}, *_prompts(), **AUTO)
    assert other["timing_calls"] > 0


def test_the_same_seed_again(render: Any) -> None:
    model = tiny_models.flow()
    runs = [render(model, _latent(), *_prompts(), **AUTO)[0]["samples"] for _ in range(3)]
    assert torch.equal(runs[0], runs[1]) and torch.equal(runs[1], runs[2])


def test_costs_follow_the_clock(ours: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """1 s a call and 0.25 s for every further latent: slow calls are timed once, after one that warms up."""
    clock = [0.0]
    monkeypatch.setattr(ours.host.cost.time, "perf_counter", lambda: clock[0])

    def call(width: int) -> None:
        clock[0] += 1.0 + 0.25 * (width - 1) + (5.0 if clock[0] == 0 else 0.0)

    class Model:
        pass

    model = Model()
    table, calls = ours.host.cost.table(model, "key", 5, call)
    assert table == pytest.approx((1.0, 1.25, 1.5, 1.75, 2.0)) and calls == 4
    assert ours.host.cost.table(model, "key", 3, call) == (table[:3], 0)
    assert ours.host.cost.known(model, "other") is None


@pytest.mark.parametrize(
    ("points", "rows", "expected"),
    [
        ({1: 1.0, 2: 2.0}, 4, (1.0, 2.0, 3.0, 4.0)),
        ({1: 1.0, 2: 1.2, 4: 1.6}, 4, (1.0, 1.2, 1.4, 1.6)),
        ({1: 1.0, 2: 0.9}, 3, (1.0, 1.0, 1.0)),
    ],
)
def test_costs_between_measured_points(ours: Any, points: Any, rows: int, expected: Any) -> None:
    assert ours.host.cost.interpolate(points, rows) == pytest.approx(expected)


def test_block_needs_other_drafts(render: Any) -> None:
    with pytest.raises(ValueError, match="(?s)Speculative KSampler.*block.*look"):
        render(tiny_models.flow(), _latent(), *_prompts(), widths=(1, 1), rule="block", drafter="look_ahead")
    _, report = render(tiny_models.flow(), _latent(), *_prompts(), widths=(1, 1), rule="block", drafter="frozen")
    assert report["mode"] == "tree" and report["rule"] == "block"


@pytest.mark.parametrize("text", ["auto", " Auto "])
def test_auto_is_a_width(ours: Any, text: str) -> None:
    assert ours.configure.parse_widths(text) == "auto"
    (settings,) = ours.configure.ConfigureDraftTree.execute(text, "optimal", "look_ahead", 12).args
    assert settings.rows == 12


def test_a_dear_draft_model_is_named(ours: Any, render: Any, costs: Any) -> None:
    """A draft of the target's own size: timed once, drafted with little, and the report says what would be better."""
    model, draft = tiny_models.flow(), tiny_models.flow(seed=5)
    _, first = render(model, _latent(), *_prompts(), draft=draft, **AUTO)
    assert 0.2 < first["draft_cost"] < 5 and "without it" in first["advice"] and first["advice"] in first["summary"]
    _, second = render(model, _latent(), *_prompts(), draft=draft, **AUTO)
    assert second["draft_cost"] == first["draft_cost"] and second["timing_calls"] == 0
    _, alone = render(model, _latent(), *_prompts(), **AUTO)
    assert "draft_cost" not in alone and "advice" not in alone


def test_a_drafts_cost_follows_the_clock(ours: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(ours.host.cost.time, "perf_counter", lambda: clock[0])

    def takes(seconds: float) -> Any:
        return lambda: clock.__setitem__(0, clock[0] + seconds)

    class Model:
        pass

    model = Model()
    assert ours.host.cost.of_draft(model, "key", takes(0.25), takes(1.0)) == (pytest.approx(0.25), 4)
    assert ours.host.cost.of_draft(model, "key", takes(9.0), takes(1.0)) == (pytest.approx(0.25), 0)
