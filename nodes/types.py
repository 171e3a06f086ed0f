"""The pack's own socket types and the values that travel on them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from comfy_api.v0_0_2 import io

CATEGORY = "sampling/drafttree"

SAMPLERS = ["euler_ancestral", "lcm", "ddpm"]
"""The stock samplers that are one Gaussian step from the state, by their stock names."""

SAMPLER_TOOLTIP = (
    "The stock samplers that can be speculated on: those that add fresh noise at every step. ddpm: not for flow models."
)

WORDS = ("faster", "speed up", "fewer steps", "turbo", "accelerate", "speculative decoding", "draft")
"""What artists type when they look for these nodes."""


def found_by(*words: str) -> dict[str, Any]:
    """The argument of io.Schema that names search words, in the releases of ComfyUI that know it."""
    known = {field.name for field in fields(io.Schema)}
    return {"search_aliases": [*WORDS, *words]} if "search_aliases" in known else {}


DraftModel = io.Custom("DRAFT_MODEL")
"""A ModelPatcher that proposes steps for another one."""

DraftTree = io.Custom("DRAFT_TREE")
"""TreeSettings."""

DraftReport = io.Custom("DRAFT_REPORT")
"""A dict of plain JSON values: what a sampling run did."""


AUTO = "auto"


@dataclass(frozen=True)
class TreeSettings:
    """widths: children of every node, depth by depth, () for none, or AUTO: planned anew for every call.

    rule: the name of a coupling rule. drafter: how steps are drafted where no draft model is. most_rows: the most
    latents AUTO may put into a call, for each image.
    """

    widths: tuple[int, ...] | str = AUTO
    rule: str = "optimal"
    drafter: str = "look_ahead"
    most_rows: int = 8

    @property
    def rows(self) -> int:
        """The most latents one call of the target evaluates for each image."""
        if isinstance(self.widths, str):
            return self.most_rows
        rows = level = 1
        for width in self.widths:
            level *= width
            rows += level
        return rows
