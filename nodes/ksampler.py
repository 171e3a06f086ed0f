"""Speculative KSampler: a drop-in for KSampler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from comfy_api.v0_0_2 import io

from .types import CATEGORY, SAMPLER_TOOLTIP, SAMPLERS, DraftModel, DraftReport, DraftTree, TreeSettings, found_by

if TYPE_CHECKING:
    from comfy.model_patcher import ModelPatcher

NAME = "Speculative KSampler"


class SpeculativeKSampler(io.ComfyNode):
    """KSampler's inputs in KSampler's order, then what speculation adds."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="DraftTreeKSampler",
            display_name=NAME,
            category=CATEGORY,
            **found_by("k sampler"),
            description=(
                "A faster KSampler by speculative decoding: the same kind of result in fewer model calls. "
                "Several steps are drafted ahead, judged in one call, and kept or replaced without bias. "
                "Where a graph cannot be sped up it samples plainly and says why."
            ),
            inputs=[
                model_input(),
                seed_input("seed"),
                *run_inputs(),
                io.Float.Input(
                    "denoise",
                    default=1.0,
                    min=0.0,
                    max=1.0,
                    step=0.01,
                    tooltip="Lower values keep more of the input image, for image to image sampling.",
                ),
                *noise_inputs(),
                *draft_inputs(),
            ],
            outputs=[
                io.Latent.Output(display_name="latent", tooltip="The denoised latent."),
                DraftReport.Output(display_name="report", tooltip="What speculation did, for Preview as Text."),
            ],
        )

    @classmethod
    def execute(
        cls,
        model: ModelPatcher,
        seed: int,
        steps: int,
        cfg: float,
        sampler_name: str,
        scheduler: str,
        positive: Any,
        negative: Any,
        latent_image: dict[str, Any],
        denoise: float,
        eta: float,
        s_noise: float,
        draft: ModelPatcher | None = None,
        tree: TreeSettings | None = None,
    ) -> io.NodeOutput:
        from .host.ksampler import sample
        from .host.sampler import Settings

        settings = Settings(NAME, sampler_name, eta, s_noise, tree or TreeSettings(), draft)
        latent, report = sample(settings, model, seed, steps, cfg, scheduler, positive, negative, latent_image, denoise)
        return io.NodeOutput(latent, report, ui={"text": [report["summary"]], "drafttree_report": [report]})


def model_input() -> Any:
    """The target."""
    return io.Model.Input("model", tooltip="The model used for denoising the input latent.")


def seed_input(name: str) -> Any:
    """The seed, with the widget that changes it after every run."""
    return io.Int.Input(
        name,
        default=0,
        min=0,
        max=0xFFFFFFFFFFFFFFFF,
        control_after_generate=True,
        tooltip="The random seed used for creating the noise.",
    )


def run_inputs() -> list[Any]:
    """From steps to latent_image, as both stock KSamplers have them."""
    import comfy.samplers

    return [
        io.Int.Input(
            "steps", default=20, min=1, max=10000, tooltip="The number of steps used in the denoising process."
        ),
        io.Float.Input(
            "cfg",
            default=8.0,
            min=0.0,
            max=100.0,
            step=0.1,
            round=0.01,
            tooltip=(
                "The Classifier-Free Guidance scale balances creativity and adherence to the prompt. "
                "Higher values follow the prompt more closely; too high values spoil the picture."
            ),
        ),
        io.Combo.Input(
            "sampler_name",
            options=SAMPLERS,
            default=SAMPLERS[0],
            tooltip=SAMPLER_TOOLTIP,
        ),
        io.Combo.Input(
            "scheduler",
            options=comfy.samplers.KSampler.SCHEDULERS,
            tooltip="How the noise is gradually removed to form the image.",
        ),
        io.Conditioning.Input("positive", tooltip="The attributes you want to include in the image."),
        io.Conditioning.Input("negative", tooltip="The attributes you want to exclude from the image."),
        io.Latent.Input("latent_image", tooltip="The latent image to denoise; batches and masks work as usual."),
    ]


def noise_inputs() -> list[Any]:
    """eta and s_noise, as every speculative sampler has them."""
    return [
        io.Float.Input(
            "eta",
            default=1.0,
            min=0.0,
            max=1.0,
            step=0.01,
            round=False,
            tooltip=(
                "How much fresh noise euler_ancestral adds at each step; 1 is the stock sampler. "
                "At 0 nothing can be speculated on. lcm and ddpm have no such setting."
            ),
        ),
        io.Float.Input(
            "s_noise",
            default=1.0,
            min=0.0,
            max=100.0,
            step=0.01,
            round=False,
            tooltip="Multiplies the fresh noise of each step; 1 is the stock sampler.",
        ),
    ]


def draft_inputs() -> list[Any]:
    """The optional draft model and tree."""
    return [
        DraftModel.Input(
            "draft",
            optional=True,
            tooltip="A smaller model that drafts the steps. Without one, the model's own earlier answers draft them.",
        ),
        DraftTree.Input(
            "tree",
            optional=True,
            tooltip="How far ahead to draft and how to accept, from Configure Draft Tree. Default: auto, up to 8 rows.",
        ),
    ]
