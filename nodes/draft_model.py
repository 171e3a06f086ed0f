"""Draft models: a second, cheaper network that proposes the steps the first one verifies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comfy_api.v0_0_2 import io

from .types import CATEGORY, DraftModel, found_by

if TYPE_CHECKING:
    from comfy.model_patcher import ModelPatcher

# As in the stock Load Diffusion Model.
WEIGHT_DTYPES = ["default", "fp8_e4m3fn", "fp8_e4m3fn_fast", "fp8_e5m2"]

_OUTPUT_TOOLTIP = "Connect to the draft input of a speculative sampler."


class LoadDraftModel(io.ComfyNode):
    """A file of models/diffusion_models -> DRAFT_MODEL."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        import folder_paths

        return io.Schema(
            node_id="DraftTreeLoadDraft",
            display_name="Load Draft Model",
            category=CATEGORY,
            **found_by("small model", "distilled"),
            description=(
                "Loads a smaller model that drafts steps for the main one. It must share the main model's latent "
                "format and kind of noise schedule, as models of one family do."
            ),
            inputs=[
                io.Combo.Input(
                    "unet_name",
                    options=folder_paths.get_filename_list("diffusion_models"),
                    tooltip="A file of the models/diffusion_models folder.",
                ),
                io.Combo.Input(
                    "weight_dtype",
                    options=WEIGHT_DTYPES,
                    default="default",
                    tooltip="The precision the weights are kept in, as in Load Diffusion Model. fp8 takes less memory.",
                ),
            ],
            outputs=[DraftModel.Output(display_name="draft", tooltip=_OUTPUT_TOOLTIP)],
        )

    @classmethod
    def execute(cls, unet_name: str, weight_dtype: str) -> io.NodeOutput:
        from .host import draft

        return io.NodeOutput(draft.load(unet_name, weight_dtype))


class DraftFromModel(io.ComfyNode):
    """Any MODEL -> DRAFT_MODEL."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="DraftTreeFromModel",
            display_name="Draft from Model",
            category=CATEGORY,
            **found_by("small model", "distilled"),
            description="Uses any loaded model, with its LoRAs, to draft steps for the main one.",
            inputs=[
                io.Model.Input(
                    "model",
                    tooltip=(
                        "A smaller or distilled model of the main model's family, loaded from a file of its own. "
                        "The main model itself, with or without a LoRA, cannot draft for itself."
                    ),
                )
            ],
            outputs=[DraftModel.Output(display_name="draft", tooltip=_OUTPUT_TOOLTIP)],
        )

    @classmethod
    def execute(cls, model: ModelPatcher) -> io.NodeOutput:
        return io.NodeOutput(model)
