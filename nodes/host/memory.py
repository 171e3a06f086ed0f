"""What the host is told before it loads models: the rows a call will have, and the draft model beside the target."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import comfy.model_management
import comfy.patcher_extension

if TYPE_CHECKING:
    from comfy.model_patcher import ModelPatcher

KEY = "drafttree"


def prepare(model: ModelPatcher, rows: int, draft: ModelPatcher | None) -> ModelPatcher:
    """A clone of the target that makes the host plan for `rows` latents per image, and load the draft model with it."""
    clone = model.clone()
    if draft is not None:
        clone.set_additional_models(KEY, [draft])
    clone.add_wrapper_with_key(comfy.patcher_extension.WrappersMP.PREPARE_SAMPLING, KEY, _planner(rows, draft))
    return clone


def load_beside(target: ModelPatcher, draft: ModelPatcher, loaded: list[Any]) -> None:
    """Load the draft model unless the host has (a sampler object cannot ask for it before the target is loaded)."""
    if not any(model is draft for model in loaded):
        # The target is named too, lest the host make room by unloading it.
        comfy.model_management.load_models_gpu([draft, target])


def _planner(rows: int, draft: ModelPatcher | None) -> Callable[..., Any]:
    def plan(executor: Callable[..., Any], model: Any, noise_shape: Any, *args: Any, **kwargs: Any) -> Any:
        if draft is not None:
            # 0.3.75 loads in arbitrary order and may leave the last model no room: the small one first, then both.
            comfy.model_management.load_models_gpu([draft])
        return executor(model, [noise_shape[0] * rows, *noise_shape[1:]], *args, **kwargs)

    return plan
