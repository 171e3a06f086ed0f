"""ControlNets, T2I adapters, GLIGEN."""

from __future__ import annotations

from typing import Any

import pytest
import tiny_models
import torch
from graphs import SAME, Graph, cfg, conforms, fast_is_wrong, inside, prompts, with_values

THEME = "Control"


def _hint(batch: int, seed: int = 8, channels: int = 3, size: int = 64) -> torch.Tensor:
    return torch.rand(batch, channels, size, size, generator=torch.Generator().manual_seed(seed))


def _applied(
    conditioning: list[Any], net: Any, hint: torch.Tensor, span: tuple[float, float] = (0.0, 1.0), strength: float = 1.0
) -> list[Any]:
    """As ControlNetApplyAdvanced does."""
    out = []
    for tensor, values in conditioning:
        copy = net.copy().set_cond_hint(hint, strength, span)
        copy.set_previous_controlnet(values.get("control"))
        out.append([tensor, {**values, "control": copy, "control_apply_to_uncond": True}])
    return out


@pytest.mark.parametrize(("hints", "images"), [(1, 1), (1, 3), (3, 3), (2, 4)])
def test_hints(ours: Any, record: Any, hints: int, images: int) -> None:
    positive = _applied(prompts()[0], tiny_models.controlnet(), _hint(hints))
    graph = Graph(cfg(tiny_models.unet(), positive, prompts()[1]), tiny_models.latent("eps", images, 7))
    feature = "ControlNet, one hint" if hints == 1 else "ControlNet, a batch of hints"
    record(feature, conforms(ours, graph, "vector"), SAME)


@pytest.mark.parametrize(("hints", "images"), [(3, 2), (2, 3)])
def test_uneven_hints(ours: Any, record: Any, hints: int, images: int) -> None:
    positive = _applied(prompts()[0], tiny_models.controlnet(), _hint(hints))
    graph = Graph(cfg(tiny_models.unet(), positive, prompts()[1]), tiny_models.latent("eps", images, 7))
    record("ControlNet, hints that do not divide the images", conforms(ours, graph, "by node", "batch"), SAME)


@pytest.mark.parametrize("hints", [1, 2])
@pytest.mark.parametrize("span", [(0.0, 0.5), (0.3, 0.8)], ids=str)
def test_for_a_part_of_the_steps(ours: Any, record: Any, span: tuple[float, float], hints: int) -> None:
    positive = _applied(prompts()[0], tiny_models.controlnet(), _hint(hints), span)
    graph = Graph(cfg(tiny_models.unet(), positive, prompts()[1]), tiny_models.latent("eps", 2, 7))
    report = conforms(ours, graph, "by sigma", "a ControlNet for a part of the steps")
    record("ControlNet for a part of the steps", report, SAME)
    fast_is_wrong(ours, graph)


def test_chained(ours: Any, record: Any) -> None:
    positive = _applied(prompts()[0], tiny_models.controlnet(), _hint(2))
    positive = _applied(positive, tiny_models.controlnet(1), _hint(1, 9), (0.0, 0.6), 0.7)
    graph = Graph(cfg(tiny_models.unet(), positive, prompts()[1]), tiny_models.latent("eps", 2, 7))
    report = conforms(ours, graph, "by sigma", "a ControlNet for a part of the steps")
    record("two ControlNets chained, one for a part of the steps", report, SAME)


def test_on_one_of_two_prompts(ours: Any, record: Any) -> None:
    positive = _applied(prompts()[0], tiny_models.controlnet(), _hint(1)) + tiny_models.conditioning(3)
    graph = Graph(cfg(tiny_models.unet(), positive, prompts()[1]), tiny_models.latent("eps", 2, 7))
    record("ControlNet on one of two prompts", conforms(ours, graph, "vector"), SAME)


@pytest.mark.parametrize("hints", [1, 2])
@pytest.mark.parametrize("kind", ["SD3", "SD3.5"])
def test_sd3(ours: Any, record: Any, kind: str, hints: int) -> None:
    net = tiny_models.sd3_controlnet() if kind == "SD3" else tiny_models.sd35_controlnet()
    positive = _applied(prompts()[0], net, _hint(hints, channels=16, size=8), strength=0.7)
    graph = Graph(cfg(tiny_models.flow(), positive, prompts()[1]), tiny_models.latent("flow", 2, 7))
    record(f"{kind} ControlNet", conforms(ours, graph, "vector"), SAME)


def test_with_a_mask(ours: Any, record: Any) -> None:
    positive = _applied(prompts(2)[0], tiny_models.controlnet(), _hint(2))
    mask = torch.rand(2, 64, 64, generator=torch.Generator().manual_seed(3))
    graph = Graph(cfg(tiny_models.unet(), positive, prompts()[1]), tiny_models.latent("eps", 2, 7), mask)
    record("ControlNet, a hint and a noise mask for each image", conforms(ours, graph, "vector"), SAME)


def test_hints_are_not_cut(ours: Any) -> None:
    """A call on fewer rows than images would cut the stored hint for good."""
    positive = _applied(prompts()[0], tiny_models.controlnet(), _hint(3))
    graph = Graph(cfg(tiny_models.unet(), positive, prompts()[1]), tiny_models.latent("eps", 3, 7))

    def look(model_k: Any, x: torch.Tensor, sigmas: torch.Tensor, extra_args: dict[str, Any]) -> None:
        import numpy as np

        choice = ours.host.modes.choose(model_k.inner_model, extra_args["model_options"], sigmas, len(x))
        target = ours.host.target.rows_of(model_k, extra_args, choice, len(x))
        target(x[2:], sigmas[:1], np.array([2]))
        alone = model_k(x, sigmas[:1].expand(3), **extra_args)
        torch.testing.assert_close(target(x[2:], sigmas[:1], np.array([2]))[0], alone[2], rtol=1e-4, atol=1e-4)

    inside(ours, graph, look)


@pytest.mark.parametrize(("hints", "mode"), [(1, "vector"), (2, "by node")])
def test_t2i_adapter(ours: Any, record: Any, hints: int, mode: str) -> None:
    positive = _applied(prompts()[0], tiny_models.t2i_adapter(), _hint(hints))
    graph = Graph(cfg(tiny_models.unet(), positive, prompts()[1]), tiny_models.latent("eps", 2, 7))
    report = conforms(ours, graph, mode, "" if hints == 1 else "T2I adapter")
    record(f"T2I adapter, {'one hint' if hints == 1 else 'a hint for each image'}", report, SAME)


def test_control_lora(ours: Any, record: Any) -> None:
    import comfy.controlnet

    weights = {name: w for name, w in tiny_models.controlnet().control_model.state_dict().items() if _own(name)}
    weights["input_blocks.0.0.up"] = 0.1 * torch.ones(32, 1)
    weights["input_blocks.0.0.down"] = 0.1 * torch.ones(1, 4 * 9)
    net = comfy.controlnet.ControlLora(weights)
    positive = _applied(prompts()[0], net, _hint(2))
    graph = Graph(cfg(tiny_models.unet(), positive, prompts()[1]), tiny_models.latent("eps", 2, 7))
    record("ControlLora", conforms(ours, graph, "vector"), SAME)


def _own(name: str) -> bool:
    """Weights that a ControlLora brings along; the others are the model's."""
    return name.startswith(("input_hint_block", "zero_convs", "middle_block_out"))


def test_unknown_control(ours: Any, record: Any) -> None:
    import comfy.controlnet

    class Strange(comfy.controlnet.ControlNet):
        def copy(self) -> Any:
            copy = Strange(None, load_device=self.load_device)
            copy.control_model, copy.control_model_wrapped = self.control_model, self.control_model_wrapped
            self.copy_to(copy)
            return copy

    plain = tiny_models.controlnet()
    net = Strange(plain.control_model, load_device=torch.device("cpu"))
    positive = _applied(prompts()[0], net, _hint(1))
    graph = Graph(cfg(tiny_models.unet(), positive, prompts()[1]), tiny_models.latent("eps", 2, 7))
    record("a ControlNet of another pack", conforms(ours, graph, "by node", "a ControlNet of the kind"), SAME)


def test_gligen(ours: Any, record: Any) -> None:
    words = torch.randn(1, tiny_models.WIDTH, generator=torch.Generator().manual_seed(4))
    positive = with_values(prompts()[0], gligen=("position", tiny_models.gligen(), [(words, 4, 4, 1, 2)]))
    graph = Graph(cfg(tiny_models.unet(), positive, prompts()[1]), tiny_models.latent("eps", 2, 7))
    record("GLIGEN", conforms(ours, graph, "vector"), SAME)
