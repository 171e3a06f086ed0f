"""The call of the target by itself: layout, modes, memory that runs out, interrupts, trials of what is unknown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import graphs
import numpy as np
import pytest
import tiny_models
import torch


class Net:
    """x / (1 + sigma + 0.1 image), where the image is found as the host finds it: cyclically. Notes its calls."""

    def __init__(self, images: int, most: int | None = None) -> None:
        self.images, self.most, self.calls = images, most, []

    def __call__(self, x: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
        if self.most is not None and len(x) > self.most:
            raise torch.OutOfMemoryError(f"{len(x)} latents")
        self.calls.append(sigma.tolist())
        image = torch.arange(len(x)) % self.images
        return x / (1 + sigma + 0.1 * image).reshape(-1, 1, 1, 1)


def _case(images: int, rows: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, np.ndarray, torch.Tensor]:
    """x, sigma and images of rows, and what must come out."""
    rng = np.random.default_rng(seed)
    image = rng.integers(0, images, rows)
    x = torch.from_numpy(rng.normal(size=(rows, 2, 3, 3))).float()
    sigma = torch.tensor([0.9, 0.5, 0.1])[torch.from_numpy(rng.integers(0, 3, rows))]
    return x, sigma, image, x / (1 + sigma + 0.1 * torch.from_numpy(image)).float().reshape(-1, 1, 1, 1)


def _choices(ours: SimpleNamespace) -> dict[str, Any]:
    choice, mode = ours.host.modes.Choice, ours.host.finding.Mode
    level = {float(torch.tensor(s)): c for s, c in ((0.9, 0), (0.5, 0), (0.1, 1))}
    return {
        "vector": choice(whole_batches=True),
        "by sigma": choice(mode.SIGMA, "test", whole_batches=True, classes=level),
        "by node": choice(mode.NODE, "test", whole_batches=True),
    }


@pytest.mark.parametrize("mode", ["vector", "by sigma", "by node"])
@pytest.mark.parametrize("images", [1, 2, 3])
def test_every_row_gets_its_own_answer(ours: Any, mode: str, images: int) -> None:
    for seed in range(20):
        x, sigma, image, expected = _case(images, 1 + seed % 9, seed)
        net = Net(images)
        rows = ours.host.target.Rows(net, images, _choices(ours)[mode])
        torch.testing.assert_close(rows(x, sigma, image), expected)
        assert rows.usage.calls == len(net.calls) and (mode != "vector" or len(net.calls) == 1)
        for call in net.calls:
            assert len(call) % images == 0
            if mode == "by node":
                assert len(call) == images and len(set(call)) == 1
            elif mode == "by sigma":
                assert len({s < 0.2 for s in call}) == 1


@pytest.mark.parametrize("mode", ["vector", "by sigma"])
@pytest.mark.parametrize("images", [1, 2])
def test_memory_that_runs_out_halves_the_calls(
    ours: Any, caplog: pytest.LogCaptureFixture, mode: str, images: int
) -> None:
    x, sigma, image, expected = _case(images, 12)
    net = Net(images, most=4)
    rows = ours.host.target.Rows(net, images, _choices(ours)[mode])
    with caplog.at_level("WARNING"):
        torch.testing.assert_close(rows(x, sigma, image), expected)
    assert max(map(len, net.calls)) <= 4 and rows.usage.limit in (2, 3, 4)
    warnings = [r.getMessage() for r in caplog.records if "out of memory" in r.getMessage()]
    assert warnings and f"going on with {rows.usage.limit} at the most" in warnings[-1]
    tried = rows.usage.calls
    torch.testing.assert_close(rows(x, sigma, image), expected)  # now at once in calls that fit
    assert rows.usage.calls - tried == len(net.calls) - (tried - len(warnings))


@pytest.mark.parametrize(("images", "words"), [(1, "one latent"), (2, "2 latents, one of every image")])
def test_memory_for_nothing(ours: Any, images: int, words: str) -> None:
    x, sigma, image, _ = _case(images, 4)
    rows = ours.host.target.Rows(Net(images, most=0), images, _choices(ours)["vector"])
    with pytest.raises(torch.OutOfMemoryError, match=f"Out of memory: a call on {words}.*smaller latent"):
        rows(x, sigma, image)


def test_memory_in_a_run(ours: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of a run whose calls were halved is that of one with enough memory, to rounding."""
    model = tiny_models.flow()
    graph = graphs.Graph(graphs.cfg(model, *graphs.prompts()), tiny_models.latent("flow", 2, 7))
    whole, report = graphs.speculative(ours, graph)
    assert "memory_limit" not in report

    def fail(network: Any, args: Any) -> None:
        if len(args[0]) > 6:  # of 2 images, with and without the prompt, at 2 nodes
            raise torch.OutOfMemoryError("too large")

    handle = model.model.diffusion_model.register_forward_pre_hook(fail)
    halved, report = graphs.speculative(ours, graph)
    handle.remove()
    assert report["mode"] == "tree" and report["memory_limit"] == 2 and report["model_calls"] > report["calls"]
    torch.testing.assert_close(halved, whole, rtol=1e-3, atol=1e-3)


def test_interrupt_between_the_calls_of_a_round(ours: Any) -> None:
    import comfy.model_management

    x, sigma, image, _ = _case(1, 6)
    net = Net(1)
    rows = ours.host.target.Rows(net, 1, _choices(ours)["by node"])
    original = net.__call__

    def press(*given: Any) -> torch.Tensor:
        if len(net.calls) == 2:
            comfy.model_management.interrupt_current_processing()
        return original(*given)

    object.__setattr__(rows, "predict", press)
    with pytest.raises(comfy.model_management.InterruptProcessingException):
        rows(x, sigma, image)
    assert len(net.calls) == 3
    torch.testing.assert_close(rows(x[:1], sigma[:1], image[:1])[0], original(x[:1], sigma[:1])[0])


CALLS: dict[str, Any] = {
    "clean": lambda kept, x, sigma: x * sigma.reshape(-1, 1, 1, 1),
    "random": lambda kept, x, sigma: x + 0.1 * torch.randn_like(x),
    "counts": lambda kept, x, sigma: x * (1 + len(kept) % 2) if kept.append(1) is None else x,
    "averages": lambda kept, x, sigma: kept.append(x) or sum(kept) / len(kept),
    "mean": lambda kept, x, sigma: x - 0.05 * x.mean(),
    "late": lambda kept, x, sigma: x - 0.05 * x.mean() if sigma[0] < 0.6 else x,
    "neighbour": lambda kept, x, sigma: x + 0.1 * x.roll(1, 0),
}


@pytest.mark.parametrize(
    ("name", "batch", "words"),
    [
        ("clean", 1, ""), ("clean", 3, ""), ("random", 1, "different answers"), ("counts", 1, "different answers"),
        ("averages", 2, "different answers"), ("mean", 1, ""), ("mean", 2, "mixes the images"),
        ("neighbour", 3, "mixes the images"), ("late", 2, "mixes the images"),
    ],
)  # fmt: skip
def test_trials(ours: Any, name: str, batch: int, words: str) -> None:
    kept: list[Any] = []
    x = torch.randn(batch, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    sigmas = torch.tensor([1.0, 0.8, 0.5, 0.0])
    found, calls = ours.host.probe.refusal(lambda *given: CALLS[name](kept, *given), x, sigmas, "it")
    assert words in found and bool(found) == bool(words) and calls == 6 + 2 * (batch > 1 and "answers" not in found)


class _Object:
    def __init__(self) -> None:
        self.last = None

    def keeps(self, args: Any) -> Any:
        self.last = args
        return args

    def clean(self, args: Any) -> Any:
        return args

    def __call__(self, args: Any) -> Any:
        self.last = args
        return args


def test_what_keeps_values_is_seen(ours: Any) -> None:
    from functools import partial

    last = None

    def keeps(args: Any) -> Any:
        nonlocal last
        last = args
        return last

    def inner(args: Any) -> Any:
        own = None

        def deeper() -> None:
            nonlocal own  # a variable of this very call
            own = args

        deeper()
        return own

    def deep(args: Any) -> Any:
        def deeper() -> None:
            nonlocal last
            last = args

        deeper()
        return args

    def wraps(args: Any) -> Any:
        return keeps(args)

    def calls_itself(args: Any) -> Any:
        return calls_itself if args else unset

    seen = ours.host.known.keeps_values
    assert all(seen(f) for f in (keeps, deep, wraps, _Object(), _Object().keeps, partial(keeps, 1)))
    assert not any(seen(f) for f in (inner, calls_itself, _Object().clean, lambda args: args, len))
    unset = 1


def test_another_release_is_tried_once(ours: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ComfyUI is not the release whose patches were read, known ones are compared with single calls first."""
    model = tiny_models.flow()
    skipping = graphs.patched(
        model, "nodes_slg", "SkipLayerGuidanceDiT", double_layers="0", single_layers="", scale=3.0, start_percent=0.0,
        end_percent=0.5,
    )  # fmt: skip
    graph = graphs.Graph(graphs.cfg(skipping, *graphs.prompts()), tiny_models.latent("flow", 2, 7))
    monkeypatch.setattr(ours.host.compat, "is_checked", lambda: False)
    runs = [graphs.speculative(ours, graph)[1] for _ in range(2)]
    assert [run["trial_calls"] for run in runs] == [4, 0] and {run["call_mode"] for run in runs} == {"by sigma"}
    plain = graphs.Graph(graphs.cfg(model, *graphs.prompts()), graph.latent)
    assert "trial_calls" not in graphs.speculative(ours, plain)[1]


def test_another_release_that_changed_something(ours: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mahiro, taken for a patch that leaves rows alone."""
    name = "nodes_mahiro.Mahiro.execute.<locals>.mahiro_normd"
    monkeypatch.setitem(ours.host.known._KNOWN, name, ours.host.known._rowwise)
    graph = graphs.Graph(
        graphs.cfg(graphs.patched(tiny_models.flow(), "nodes_mahiro", "Mahiro"), *graphs.prompts()),
        tiny_models.latent("flow", 1, 7),
    )
    monkeypatch.setattr(ours.host.compat, "is_checked", lambda: True)
    assert graphs.speculative(ours, graph)[1]["call_mode"] == "vector"  # as if it were so in the release that was read
    monkeypatch.setattr(ours.host.compat, "is_checked", lambda: False)
    latent, report = graphs.speculative(ours, graph)
    assert report["mode"] == "plain" and "Mahiro: not as in ComfyUI" in report["reason"]
    assert torch.equal(latent, graphs.stock(ours, graph))
