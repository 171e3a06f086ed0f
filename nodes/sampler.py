"""Speculative Sampler: a SAMPLER for SamplerCustom and SamplerCustomAdvanced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comfy_api.v0_0_2 import io

from .ksampler import draft_inputs, noise_inputs
from .types import CATEGORY, SAMPLER_TOOLTIP, SAMPLERS, DraftReport, TreeSettings, found_by

if TYPE_CHECKING:
    from comfy.model_patcher import ModelPatcher

NAME = "Speculative Sampler"


class SpeculativeSampler(io.ComfyNode):
    """Settings -> SAMPLER, and the report that it fills."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="DraftTreeSampler",
            display_name=NAME,
            category=CATEGORY,
            **found_by("custom sampler"),
            description=(
                "A faster sampler for SamplerCustom and SamplerCustomAdvanced by speculative decoding: the same "
                "kind of result as the stock sampler of that name, in fewer model calls."
            ),
            inputs=[
                io.Combo.Input(
                    "sampler_name",
                    options=SAMPLERS,
                    default=SAMPLERS[0],
                    tooltip=SAMPLER_TOOLTIP,
                ),
                *noise_inputs(),
                *draft_inputs(),
            ],
            # Two nodes with the same settings must not share one cached sampler: each shows its own run.
            hidden=[io.Hidden.unique_id],
            not_idempotent=True,
            outputs=[
                io.Sampler.Output(
                    display_name="sampler", tooltip="For the sampler input of SamplerCustom or SamplerCustomAdvanced."
                ),
                DraftReport.Output(
                    display_name="report",
                    tooltip="What speculation did. Filled when the sampler has run; logged as one line besides.",
                ),
            ],
        )

    @classmethod
    def execute(
        cls,
        sampler_name: str,
        eta: float,
        s_noise: float,
        draft: ModelPatcher | None = None,
        tree: TreeSettings | None = None,
    ) -> io.NodeOutput:
        from .host.sampler import Settings
        from .host.sampler import SpeculativeSampler as Sampler

        node_id = str(getattr(cls.hidden, "unique_id", None) or "")
        sampler = Sampler(
            Settings(NAME, sampler_name, eta, s_noise, tree or TreeSettings(), draft, node_id=node_id, late=True)
        )
        # The very dict that the run fills later: the prompt's record ends up with the whole report.
        return io.NodeOutput(sampler, sampler.report, ui={"drafttree_report": [sampler.report]})
