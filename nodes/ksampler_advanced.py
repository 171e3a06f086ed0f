"""Speculative KSampler (Advanced): a drop-in for KSampler (Advanced)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from comfy_api.v0_0_2 import io

from .ksampler import draft_inputs, model_input, noise_inputs, run_inputs, seed_input
from .types import CATEGORY, DraftReport, TreeSettings, found_by

if TYPE_CHECKING:
    from comfy.model_patcher import ModelPatcher

NAME = "Speculative KSampler (Advanced)"


class SpeculativeKSamplerAdvanced(io.ComfyNode):
    """KSampler (Advanced)'s inputs in its order, then what speculation adds."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="DraftTreeKSamplerAdvanced",
            display_name=NAME,
            category=CATEGORY,
            **found_by("k sampler", "advanced", "start step", "end step"),
            description=(
                "A faster KSampler (Advanced) by speculative decoding: a part of the steps if you like, the same "
                "kind of result in fewer model calls. Where a graph cannot be sped up it samples plainly and says why."
            ),
            inputs=[
                model_input(),
                io.Combo.Input(
                    "add_noise",
                    options=["enable", "disable"],
                    tooltip="Disable it where the latent comes from another sampler with its noise left over.",
                ),
                seed_input("noise_seed"),
                *run_inputs(),
                io.Int.Input(
                    "start_at_step",
                    default=0,
                    min=0,
                    max=10000,
                    tooltip="The step of the schedule to begin with; 0 is the first.",
                ),
                io.Int.Input(
                    "end_at_step",
                    default=10000,
                    min=0,
                    max=10000,
                    tooltip="The step of the schedule to stop before; a large number runs to the end.",
                ),
                io.Combo.Input(
                    "return_with_leftover_noise",
                    options=["disable", "enable"],
                    tooltip=(
                        "Enable it where another sampler goes on from end_at_step; "
                        "disabled, the last step removes all the noise."
                    ),
                ),
                *noise_inputs(),
                *draft_inputs(),
            ],
            outputs=[
                io.Latent.Output(display_name="latent", tooltip="The latent, denoised as far as end_at_step."),
                DraftReport.Output(display_name="report", tooltip="What speculation did, for Preview as Text."),
            ],
        )

    @classmethod
    def execute(
        cls,
        model: ModelPatcher,
        add_noise: str,
        noise_seed: int,
        steps: int,
        cfg: float,
        sampler_name: str,
        scheduler: str,
        positive: Any,
        negative: Any,
        latent_image: dict[str, Any],
        start_at_step: int,
        end_at_step: int,
        return_with_leftover_noise: str,
        eta: float,
        s_noise: float,
        draft: ModelPatcher | None = None,
        tree: TreeSettings | None = None,
    ) -> io.NodeOutput:
        from .host.ksampler import Part, sample
        from .host.sampler import Settings

        settings = Settings(NAME, sampler_name, eta, s_noise, tree or TreeSettings(), draft)
        part = Part(add_noise == "enable", start_at_step, end_at_step, return_with_leftover_noise == "enable")
        latent, report = sample(
            settings, model, noise_seed, steps, cfg, scheduler, positive, negative, latent_image, part=part
        )
        return io.NodeOutput(latent, report, ui={"text": [report["summary"]], "drafttree_report": [report]})
