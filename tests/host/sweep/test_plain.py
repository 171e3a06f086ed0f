"""What is sampled plainly, with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tiny_models
import torch
from graphs import Graph, cfg, is_plain, patched, prompts, speculative, stock

THEME = "Sampled plainly"
FOUND = "the stock sampler, after a trial: the same input gave different answers"


def _graph(model: Any, kind: str = "flow", batch: int = 2) -> Graph:
    return Graph(cfg(model, *prompts()), tiny_models.latent(kind, batch, 7))


@pytest.mark.parametrize("name", ["EasyCache", "LazyCache"])
def test_core_caches(ours: Any, record: Any, name: str) -> None:
    def build() -> Graph:
        values = {"reuse_threshold": 0.2, "start_percent": 0.1, "end_percent": 0.95, "verbose": False}
        return _graph(patched(tiny_models.flow(), "nodes_easycache", f"{name}Node", **values))

    record(name, is_plain(ours, build, "keep answers from call to call"), "the stock sampler: it keeps answers")


def _teacache(model: Any) -> None:
    kept: dict[str, Any] = {}

    def teacache_wrapper(apply: Any, args: dict[str, Any]) -> Any:
        if "out" not in kept or (args["input"] - kept["in"]).abs().mean() > 0.3:
            kept["in"], kept["out"] = args["input"], apply(args["input"], args["timestep"], **args["c"])
        return kept["out"]

    model.set_model_unet_function_wrapper(teacache_wrapper)


class _Accumulates:
    """Like packs that keep their state on an object."""

    def __init__(self) -> None:
        self.last: Any = None

    def __call__(self, args: dict[str, Any]) -> Any:
        self.last = args["denoised"] if self.last is None else 0.9 * args["denoised"] + 0.1 * self.last
        return self.last


STATEFUL: dict[str, tuple[Callable[[Any], None], str]] = {
    "a cache of another pack, known by its name": (_teacache, "looks like a cache"),
    "a patch that keeps state on its object": (
        lambda model: model.set_model_sampler_post_cfg_function(_Accumulates()), "keeps values from call to call",
    ),
    "a wrapper whose key speaks of a cache": (
        lambda model: model.add_wrapper_with_key("diffusion_model", "fbcache", lambda inner, *a, **k: inner(*a, **k)),
        "looks like a cache",
    ),
    "a transformer option that speaks of a cache": (
        lambda model: model.model_options["transformer_options"].update(magcache_ratio=1.0), "looks like a cache",
    ),
    "context windows": (
        lambda model: model.model_options.update(context_handler=_NoWindows()), "context windows",
    ),
    "several GPUs": (
        lambda model: model.model_options.update(multigpu_clones={torch.device("cpu"): model}), "several GPUs",
    ),
}  # fmt: skip


class _NoWindows:
    def should_use_context(self, *args: Any) -> bool:
        return False


@pytest.mark.parametrize("feature", list(STATEFUL))
def test_stateful(ours: Any, record: Any, feature: str) -> None:
    def build() -> Graph:
        model = tiny_models.flow().clone()
        STATEFUL[feature][0](model)
        return _graph(model)

    reason = STATEFUL[feature][1]
    record(feature, is_plain(ours, build, reason), f"the stock sampler: {reason}")


def test_a_cache_in_disguise(ours: Any, record: Any) -> None:
    """Reuses its last answer for a near input; nothing in its name or code says so, a trial finds it."""
    kept: dict[str, Any] = {}

    def sneaky(apply: Any, args: dict[str, Any]) -> Any:
        near = "x" in kept and (args["input"] - kept["x"]).abs().mean() < 0.3
        if not near:
            kept.update(x=args["input"], out=apply(args["input"], args["timestep"], **args["c"]) - args["input"])
        return args["input"] + kept["out"]

    model = tiny_models.flow().clone()
    model.set_model_unet_function_wrapper(sneaky)
    _, report = speculative(ours, _graph(model, batch=1))
    assert report["mode"] == "plain" and "gave different answers" in report["reason"] and report["trial_calls"] == 6
    record("a cache in disguise", report, FOUND)


def test_injections(ours: Any, record: Any) -> None:
    import comfy.patcher_extension

    def build() -> Graph:
        model = tiny_models.unet().clone()
        nothing = comfy.patcher_extension.PatcherInjection(inject=lambda patcher: None, eject=lambda patcher: None)
        model.set_injections("motion", [nothing])
        return _graph(model, "eps", 3)

    record("injected code (AnimateDiff and its kind)", is_plain(ours, build, "injected code"), "the stock sampler")


@pytest.mark.parametrize(
    ("name", "module", "values"),
    [
        ("HyperTile", "nodes_hypertile", {"tile_size": 32, "swap_size": 2, "max_depth": 0, "scale_depth": False}),
        ("TomePatchModel", "nodes_tomesd", {"ratio": 0.3}),
    ],
)
def test_random_inside(ours: Any, record: Any, name: str, module: str, values: dict[str, Any]) -> None:
    _, report = speculative(ours, _graph(patched(tiny_models.unet(), module, name, **values), "eps"))
    assert report["mode"] == "plain" and "random inside" in report["reason"]
    record(name, report, "the stock sampler: it is random inside")


def test_random_inside_found_by_a_trial(ours: Any, record: Any) -> None:
    model = tiny_models.flow().clone()
    model.set_model_sampler_post_cfg_function(lambda args: args["denoised"] + 0.1 * torch.randn_like(args["denoised"]))
    _, report = speculative(ours, _graph(model))
    assert report["mode"] == "plain" and "random inside" in report["reason"]
    record(
        "unknown code that is random", report, "the stock sampler, after a trial: the same input gave different answers"
    )


@pytest.mark.parametrize("options", [{"eta": 0.0}, {"s_noise": 0.0}], ids=str)
def test_without_noise(ours: Any, record: Any, options: dict[str, Any]) -> None:
    graph = _graph(tiny_models.flow())
    graph.options = options
    report = is_plain(ours, lambda: graph, "nothing to speculate on")
    record(f"{next(iter(options))} 0", report, "the stock sampler: there is no noise to speculate on")


@pytest.mark.parametrize("steps", [1, 2])
def test_too_few_steps(ours: Any, record: Any, steps: int) -> None:
    graph = _graph(tiny_models.flow())
    graph.steps = steps
    report = is_plain(ours, lambda: graph, "nothing to draft")
    record(f"{steps} step{'s' * (steps > 1)}", report, "the stock sampler: nothing can be gained")


def test_two_steps_with_a_draft_model(ours: Any, record: Any) -> None:
    graph = _graph(tiny_models.flow())
    graph.steps = 2
    settings = ours.host.sampler.Settings(
        "sweep", tree=ours.types.TreeSettings((1,), "reflection"), draft=tiny_models.flow()
    )
    sampler = ours.host.sampler.SpeculativeSampler(settings)
    result = graph.sample(ours, sampler)
    assert sampler.report["calls"] == 1 and sampler.report["accepted"] == sampler.report["proposed"] == 2
    torch.testing.assert_close(result, stock(ours, graph), rtol=1e-3, atol=1e-3)
    record("2 steps with a draft model", sampler.report, "a twin draft is always accepted: one call")


def test_four_steps(ours: Any, record: Any) -> None:
    graph = _graph(tiny_models.flow())
    graph.steps, graph.sampler_name = 4, "lcm"
    _, report = speculative(ours, graph, (1,))
    assert report["mode"] == "tree" and report["proposed"] > 0
    record("4 steps of lcm (Turbo, Lightning)", report, "drafts are tried from the second step on")


@pytest.mark.parametrize("name", ["euler", "dpmpp_2m"])
def test_deterministic_samplers(ours: Any, record: Any, name: str) -> None:
    """The nodes do not offer them; a graph sent by hand may name one."""
    graph = _graph(tiny_models.flow())
    graph.sigmas, graph.sampler_name = torch.tensor([1.0, 0.5, 0.0]), name
    with pytest.raises(ValueError, match=f"sampler_name is '{name}'. Use one of: euler_ancestral"):
        speculative(ours, graph)
    record("a deterministic sampler (euler, dpmpp_2m)", "declined", "an error that names the samplers that work")
