"""What changes the guidance: CFG patches and guiders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tiny_models
import torch
from graphs import SAME, Graph, cfg, conforms, fast_is_wrong, is_plain, node, patched, prompts, speculative, stock

THEME = "Guidance"


ROWWISE: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "RescaleCFG": ("v", "nodes_model_advanced", "RescaleCFG", {"multiplier": 0.7}),
    "CFGZeroStar": ("flow", "nodes_cfg", "CFGZeroStar", {}),
    "CFGNorm": ("flow", "nodes_cfg", "CFGNorm", {"strength": 1.0}),
    "TCFG (Tangential Damping CFG)": ("flow", "nodes_tcfg", "TCFG", {}),
    "APG without momentum": ("flow", "nodes_apg", "APG", {"eta": 0.5, "norm_threshold": 5.0, "momentum": 0.0}),
    "FreSca": ("flow", "nodes_fresca", "FreSca", {"scale_low": 1.0, "scale_high": 1.25, "freq_cutoff": 2}),
    "Epsilon Scaling": ("eps", "nodes_eps", "EpsilonScaling", {"scaling_factor": 1.005}),
    "Self-Attention Guidance": ("eps", "nodes_sag", "SelfAttentionGuidance", {"scale": 0.5, "blur_sigma": 2.0}),
    "Perturbed-Attention Guidance": ("eps", "nodes_pag", "PerturbedAttentionGuidance", {"scale": 3.0}),
}


@pytest.mark.parametrize("feature", list(ROWWISE))
def test_row_by_row(ours: Any, record: Any, feature: str) -> None:
    kind, module, name, values = ROWWISE[feature]
    graph = Graph(
        cfg(patched(tiny_models.build(kind), module, name, **values), *prompts(2)), tiny_models.latent(kind, 2, 7)
    )
    record(feature, conforms(ours, graph, "vector"), SAME)


LAYERS = {"double_layers": "0", "single_layers": ""}
SKIP: dict[str, tuple[str, str, dict[str, Any]]] = {
    "SkipLayerGuidanceSD3": ("nodes_sd3", "SkipLayerGuidanceSD3", {"layers": "0", "scale": 3.0}),
    "SkipLayerGuidanceDiT": ("nodes_slg", "SkipLayerGuidanceDiT", {**LAYERS, "scale": 3.0}),
    "SkipLayerGuidanceDiTSimple": ("nodes_slg", "SkipLayerGuidanceDiTSimple", LAYERS),
}


@pytest.mark.parametrize(("start", "end"), [(0.01, 0.5), (0.3, 1.0)])
@pytest.mark.parametrize("feature", list(SKIP))
def test_skip_layers(ours: Any, record: Any, feature: str, start: float, end: float) -> None:
    module, name, values = SKIP[feature]
    model = patched(tiny_models.flow(), module, name, start_percent=start, end_percent=end, **values)
    graph = Graph(cfg(model, *prompts()), tiny_models.latent("flow", 2, 7))
    record(feature, conforms(ours, graph, "by sigma", "SkipLayerGuidance"), SAME)
    fast_is_wrong(ours, graph)


def test_skip_layers_with_rescaling(ours: Any, record: Any) -> None:
    _, name, values = SKIP["SkipLayerGuidanceDiT"]
    model = patched(
        tiny_models.flow(), "nodes_slg", name, start_percent=0.0, end_percent=0.6, rescaling_scale=0.5, **values
    )
    _coupled(ours, record, "SkipLayerGuidanceDiT with rescaling", cfg(model, *prompts()), "flow", "rescaling")


def _coupled(ours: Any, record: Any, feature: str, guider: Callable[[], Any], kind: str, reason: str) -> None:
    """Right for one image, node by node; with several its results for one depend on the others."""
    graph = Graph(guider, tiny_models.latent(kind, 1, 7))
    record(f"{feature}, one image", conforms(ours, graph, "by node", reason), SAME)
    fast_is_wrong(ours, graph)
    two = is_plain(ours, lambda: Graph(guider, tiny_models.latent(kind, 2, 7)), "mixes the images of a batch")
    record(f"{feature}, several images", two, "the stock sampler: it mixes the images of a batch")


def test_mahiro(ours: Any, record: Any) -> None:
    guider = cfg(patched(tiny_models.flow(), "nodes_mahiro", "Mahiro"), *prompts())
    _coupled(ours, record, "Mahiro", guider, "flow", "Mahiro")


def test_perp_neg_patch(ours: Any, record: Any) -> None:
    empty = tiny_models.conditioning(8)
    model = patched(tiny_models.unet(), "nodes_perpneg", "PerpNeg", empty_conditioning=empty, neg_scale=1.0)
    _coupled(ours, record, "PerpNeg (patch)", cfg(model, *prompts()), "eps", "PerpNeg")


def test_perp_neg_guider(ours: Any, record: Any) -> None:
    def build() -> Any:
        guider = node("nodes_perpneg", "Guider_PerpNeg")(model)
        guider.set_conds(*prompts(), tiny_models.conditioning(8))
        guider.set_cfg(3.0, 1.0)
        return guider

    model = tiny_models.flow()
    _coupled(ours, record, "PerpNegGuider", build, "flow", "PerpNeg")


@pytest.mark.parametrize(
    ("feature", "kind", "module", "name", "values"),
    [
        ("RenormCFG", "flow", "nodes_lumina2", "RenormCFG", {"cfg_trunc": 0.8, "renorm_cfg": 1.0}),
        ("Temporal Score Rescaling", "flow", "nodes_eps", "TemporalScoreRescaling", {"tsr_k": 0.95, "tsr_sigma": 1.0}),
    ],
)
def test_made_for_one_image(
    ours: Any, record: Any, feature: str, kind: str, module: str, name: str, values: dict[str, Any]
) -> None:
    """ComfyUI itself fails with several images, and so do we, with its words."""
    guider = cfg(patched(tiny_models.build(kind), module, name, **values), *prompts())
    record(
        f"{feature}, one image", conforms(ours, Graph(guider, tiny_models.latent(kind, 1, 7)), "by node", name), SAME
    )
    from graphs import speculative

    several = Graph(guider, tiny_models.latent(kind, 2, 7))
    with pytest.raises(RuntimeError) as theirs:
        stock(ours, several)
    with pytest.raises(RuntimeError) as mine:
        speculative(ours, several)
    assert str(mine.value) == str(theirs.value)
    record(f"{feature}, several images", "plain", "ComfyUI fails, and so do we with its message")


@pytest.mark.parametrize("nested", [False, True], ids=["regular", "nested"])
def test_dual_cfg(ours: Any, record: Any, nested: bool) -> None:
    def build() -> Any:
        guider = node("nodes_custom_sampler", "Guider_DualCFG")(model)
        guider.set_conds(tiny_models.conditioning(1, 2), tiny_models.conditioning(2), tiny_models.conditioning(3))
        guider.set_cfg(3.0, 2.0, nested)
        return guider

    model = tiny_models.flow()
    report = conforms(ours, Graph(build, tiny_models.latent("flow", 2, 7)), "vector")
    record(f"DualCFGGuider, {'nested' if nested else 'regular'}", report, SAME)


def test_basic_guider(ours: Any, record: Any) -> None:
    def build() -> Any:
        guider = node("nodes_custom_sampler", "Guider_Basic")(model)
        guider.set_conds(prompts()[0])
        return guider

    model = tiny_models.flow()
    record("BasicGuider", conforms(ours, Graph(build, tiny_models.latent("flow", 2, 7)), "vector"), SAME)


def test_unknown_guider(ours: Any, record: Any) -> None:
    import comfy.samplers

    class Halved(comfy.samplers.CFGGuider):
        def predict_noise(self, x: Any, timestep: Any, model_options: Any = {}, seed: Any = None) -> Any:  # noqa: B006
            return super().predict_noise(x, timestep, model_options, seed) * 0.5

    def build() -> Any:
        guider = Halved(model)
        guider.set_conds(*prompts())
        guider.set_cfg(3.0)
        return guider

    model = tiny_models.flow()
    report = conforms(ours, Graph(build, tiny_models.latent("flow", 2, 7)), "by node", "the guider Halved")
    assert report["trial_calls"] == 8
    record("a guider of another pack", report, SAME)


UNKNOWN: dict[str, Callable[[Any], None]] = {
    "an unknown post-CFG patch": lambda model: model.set_model_sampler_post_cfg_function(
        lambda args: args["denoised"] * 0.9
    ),
    "an unknown pre-CFG patch": lambda model: model.set_model_sampler_pre_cfg_function(
        lambda args: [out * 0.9 for out in args["conds_out"]]
    ),
    "an unknown CFG function": lambda model: model.set_model_sampler_cfg_function(
        lambda args: args["cond"] * 0.9 + args["sigma"][0] * 0.01
    ),
}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("feature", list(UNKNOWN))
def test_unknown(ours: Any, record: Any, feature: str, batch: int) -> None:
    model = tiny_models.flow().clone()
    UNKNOWN[feature](model)
    graph = Graph(cfg(model, *prompts(batch)), tiny_models.latent("flow", batch, 7))
    record(feature, conforms(ours, graph, "by node", feature.split(" ")[-1]), SAME)


def test_unknown_that_mixes_images(ours: Any, record: Any) -> None:
    def build() -> Graph:
        model = tiny_models.flow().clone()
        model.set_model_sampler_post_cfg_function(lambda args: args["denoised"] - args["denoised"].mean())
        return Graph(cfg(model, *prompts()), tiny_models.latent("flow", 2, 7))

    report = is_plain(ours, build, "mixes the images of a batch")
    record("an unknown patch that mixes images", report, "the stock sampler, after a trial: it mixes the images")


def test_apg_with_momentum(ours: Any, record: Any) -> None:
    def build() -> Graph:
        model = patched(tiny_models.flow(), "nodes_apg", "APG", eta=1.0, norm_threshold=5.0, momentum=-0.5)
        return Graph(cfg(model, *prompts()), tiny_models.latent("flow", 2, 7))

    report = is_plain(ours, build, "APG with momentum")
    record("APG with momentum", report, "the stock sampler: it keeps an average from call to call")


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "found by trial"])
def test_unknown_that_keeps_values(ours: Any, record: Any, seen: bool) -> None:
    """The first assigns to an outer variable, which shows; the other hides it in a list and is found by a trial."""

    def build() -> Graph:
        last: Any = None
        hidden: list[torch.Tensor] = []

        def shows(args: dict[str, Any]) -> Any:
            nonlocal last
            last = args["denoised"] if last is None else 0.5 * last + 0.5 * args["denoised"]
            return last

        def hides(args: dict[str, Any]) -> Any:
            hidden.append(args["denoised"])
            return sum(hidden[-2:]) / len(hidden[-2:])

        model = tiny_models.flow().clone()
        model.set_model_sampler_post_cfg_function(shows if seen else hides)
        return Graph(cfg(model, *prompts()), tiny_models.latent("flow", 1, 7))

    if seen:
        report = is_plain(ours, build, "keeps values from call to call")
    else:
        _, report = speculative(ours, build())  # not held against stock: the trial has left values in it
        assert report["mode"] == "plain" and "gave different answers" in report["reason"]
    record(
        f"an unknown patch that keeps values, {'seen' if seen else 'found by trial'}",
        report,
        "the stock sampler: " + ("its code keeps values" if seen else "the same input gave different answers"),
    )
