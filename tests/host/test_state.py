"""Nothing of a run is left behind: memory, models, inputs, and what the next run gives."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import tiny_models
import torch

RUNS = 5


def _prompts() -> tuple[Any, Any]:
    return tiny_models.conditioning(1), tiny_models.conditioning(2)


def _latent(batch: int = 2, size: int = 8) -> dict[str, Any]:
    return {"samples": tiny_models.latent("flow", batch, seed=7, size=size)}


TREES: dict[str, dict[str, Any]] = {
    "look-ahead chain": {"widths": (1, 1, 1), "rule": "optimal", "drafter": "look_ahead"},
    "frozen tree": {"widths": (2, 1), "rule": "optimal", "drafter": "frozen"},
    "block": {"widths": (1, 1), "rule": "block", "drafter": "frozen"},
    "draft model": {"widths": (2, 1), "rule": "greedy", "draft": 1},
}


@pytest.fixture(params=list(TREES))
def given(request: pytest.FixtureRequest) -> dict[str, Any]:
    values = dict(TREES[request.param])
    if "draft" in values:
        values["draft"] = tiny_models.flow(values["draft"])
    return values


@contextmanager
def failing(network: torch.nn.Module, error: BaseException, after: int) -> Iterator[None]:
    """The network raises from its call `after` on."""
    calls = []

    def fail(*_: Any) -> None:
        calls.append(1)
        if len(calls) >= after:
            raise error

    handle = network.register_forward_pre_hook(fail)
    try:
        yield
    finally:
        handle.remove()


@pytest.mark.parametrize("after", [1, 2, 3])
@pytest.mark.parametrize("what", ["error", "memory", "cancel"])
def test_the_next_run_is_a_fresh_one(render: Any, given: dict[str, Any], what: str, after: int) -> None:
    import comfy.model_management as management

    model = tiny_models.flow()
    fresh, report = render(model, _latent(), *_prompts(), **given)
    assert report["mode"] == "tree"
    errors: dict[str, BaseException] = {
        "error": RuntimeError("out of luck"),
        "memory": torch.OutOfMemoryError("too large"),
        "cancel": management.InterruptProcessingException(),
    }
    error = errors[what]
    with failing(model.model.diffusion_model, error, after), pytest.raises(type(error)):
        render(model, _latent(), *_prompts(), **given)
    again, second = render(model, _latent(), *_prompts(), **given)
    assert torch.equal(again["samples"], fresh["samples"])
    assert {k: v for k, v in second.items() if "seconds" not in k and k != "summary"} == {
        k: v for k, v in report.items() if "seconds" not in k and k != "summary"
    }


def _held() -> tuple[int, int]:
    """Tensors that are alive, and their bytes, each storage once."""
    gc.collect()
    storages = {}
    for thing in gc.get_objects():
        if isinstance(thing, torch.Tensor):
            storage = thing.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return len(storages), sum(storages.values())


def test_memory_is_flat_over_five_runs(render: Any, given: dict[str, Any]) -> None:
    import comfy.model_management as management

    model = tiny_models.flow()
    held, loaded = [], []
    for size in (8, 12, 8, 12, 8, 12)[: RUNS + 1]:
        render(model, _latent(size=size), *_prompts(), **given)
        held.append(_held())
        loaded.append(len(management.current_loaded_models))
    assert len(set(held[1:])) == 1, held
    assert len(set(loaded)) == 1, loaded


def test_nothing_of_the_tree_stays_alive(render: Any, given: dict[str, Any]) -> None:
    """Without the help of the garbage collector: a video card's memory does not wait for it."""
    model = tiny_models.flow()
    alive: list[weakref.ref[torch.Tensor]] = []
    handle = model.model.diffusion_model.register_forward_pre_hook(lambda _, args: alive.append(weakref.ref(args[0])))
    gc.collect()
    gc.disable()
    try:
        result, _ = render(model, _latent(), *_prompts(), **given)
        left = [ref for ref in alive if ref() is not None]
    finally:
        gc.enable()
        handle.remove()
    assert alive and not left and torch.isfinite(result["samples"]).all()


def _loaded_models() -> list[Any]:
    import comfy.model_management as management

    return [loaded.model for loaded in management.current_loaded_models if loaded.model is not None]


def test_models_are_freed(render: Any, given: dict[str, Any]) -> None:
    """Target and draft: the host's manager lets go of them, and so do we."""
    import comfy.model_management as management

    model = tiny_models.flow()
    networks = [weakref.ref(model.model.diffusion_model)]
    if draft := given.get("draft"):
        networks.append(weakref.ref(draft.model.diffusion_model))
        assert draft.model is not model.model
    render(model, _latent(), *_prompts(), **given)
    if draft:
        loaded = [model.model is draft.model for model in _loaded_models()]
        assert sum(loaded) == 1, "the manager knows the draft model"
    given.clear()
    del model, draft
    management.unload_all_models()
    management.cleanup_models()
    gc.collect()
    assert [ref() for ref in networks] == [None] * len(networks)


def _frozen(value: Any) -> Any:
    """A deep copy that compares by content."""
    if isinstance(value, torch.Tensor):
        return ("tensor", value.dtype, value.clone())
    if isinstance(value, dict):
        return {key: _frozen(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_frozen(item) for item in value]
    return copy.copy(value)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def test_inputs_are_never_changed(render: Any, given: dict[str, Any]) -> None:
    model, prompts = tiny_models.flow(), _prompts()
    model.model_options["transformer_options"]["rope_options"] = {"scale_x": 1.0}
    latent = _latent() | {"noise_mask": torch.rand(2, 64, 64), "batch_index": [3, 1]}
    weights = _frozen(dict(model.model.state_dict()))
    before = [_frozen(thing) for thing in (prompts, latent, model.model_options)]
    names = set(vars(model))
    render(model, latent, *prompts, **given)
    after = [_frozen(thing) for thing in (prompts, latent, model.model_options)]
    assert all(_same(a, b) for a, b in zip(before, after, strict=True))
    assert _same(weights, _frozen(dict(model.model.state_dict())))
    assert set(vars(model)) == names and not model.wrappers and not model.additional_models


@pytest.mark.parametrize("state", ["LOW_VRAM", "NO_VRAM", "NORMAL_VRAM", "DISABLED"])
def test_little_memory(render: Any, given: dict[str, Any], state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with --lowvram, --novram and --cpu: weights cast when they are used, and the same picture."""
    import comfy.model_management as management

    expected, _ = render(tiny_models.flow(), _latent(), *_prompts(), **given)
    if draft := given.get("draft"):
        given = given | {"draft": tiny_models.flow(1)}
    asked: list[float] = []
    for loaded in list(management.current_loaded_models):
        loaded.model_unload()
    management.current_loaded_models.clear()
    honest = management.LoadedModel.model_load

    def model_load(self: Any, lowvram_model_memory: float = 0, force_patch_weights: bool = False) -> Any:
        asked.append(lowvram_model_memory)
        return honest(self, lowvram_model_memory, force_patch_weights)

    monkeypatch.setattr(management.LoadedModel, "model_load", model_load)
    monkeypatch.setattr(management, "vram_state", management.VRAMState[state])
    if state in ("LOW_VRAM", "NO_VRAM"):
        # The host never streams weights to a CPU: it is told that this one is a card with no room at all.
        monkeypatch.setattr(management, "is_device_cpu", lambda device: False)
        monkeypatch.setattr(management, "get_free_memory", lambda _=None, both=False: (1e9, 1e9) if both else 0)
        monkeypatch.setattr(management, "minimum_inference_memory", lambda: 0)
    result, report = render(tiny_models.flow(), _latent(), *_prompts(), **given)
    assert report["mode"] == "tree"
    assert bool(draft) == (report["drafter"] == "draft model")
    torch.testing.assert_close(result["samples"], expected["samples"], rtol=1e-4, atol=1e-4)
    if state == "NO_VRAM":
        assert asked and all(amount == 0.1 for amount in asked)


@pytest.mark.parametrize("widths", [(1, 1, 1), (2, 2)])
def test_the_host_plans_for_every_row(
    ours: Any, render: Any, widths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host is asked for memory for all latents of a call."""
    model, shapes = tiny_models.flow(), []
    honest = type(model.model).memory_required
    monkeypatch.setattr(
        type(model.model), "memory_required",
        lambda self, input_shape, **given: (shapes.append(list(input_shape)), honest(self, input_shape, **given))[1],
    )  # fmt: skip
    render(model, _latent(), *_prompts(), widths=widths)
    rows = ours.types.TreeSettings(widths).rows
    assert max(shape[0] for shape in shapes) == 2 * 2 * rows  # with and without the prompt, two images
