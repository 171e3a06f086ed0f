"""Configure Draft Tree: how much is drafted ahead, and how drafts are judged."""

from __future__ import annotations

from comfy_api.v0_0_2 import io

from .types import CATEGORY, DraftTree, TreeSettings

# Names of sampler_core.coupling, most successful first: the first is the default.
RULES = ["rass", "greedy", "reflection"]
MAX_ROWS = 256


class ConfigureDraftTree(io.ComfyNode):
    """Text widths and a rule -> DRAFT_TREE."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        default = TreeSettings()
        return io.Schema(
            node_id="DraftTreeConfigure",
            display_name="Configure Draft Tree",
            category=CATEGORY,
            description=(
                "Chooses how far ahead the speculative samplers draft, and how drafted steps are accepted. "
                "No setting changes the kind of picture you get, only how many model calls it takes."
            ),
            inputs=[
                io.String.Input(
                    "widths",
                    default=",".join(map(str, default.widths)),
                    tooltip=(
                        "How many next steps are drafted from each drafted step, one number per step ahead. "
                        "2,2,1,1 looks four steps ahead with two choices for the first two (15 latents per call); "
                        "1,1,1,1 is a plain chain of four (5 latents per call); empty drafts nothing. "
                        "More latents per call cost more memory and time per call."
                    ),
                ),
                io.Combo.Input(
                    "rule",
                    options=RULES,
                    default=default.rule,
                    tooltip=(
                        "How a drafted step is accepted or replaced. Every rule is exact. "
                        "rass: ranks the choices before judging, accepts most often. "
                        "greedy: judges the choices one after the other (D-GRS). "
                        "reflection: judges only the first choice; for chains of width 1."
                    ),
                ),
            ],
            outputs=[
                DraftTree.Output(display_name="tree", tooltip="Connect to the tree input of a speculative sampler.")
            ],
        )

    @classmethod
    def validate_inputs(cls, widths: str | None = None) -> bool | str:
        # None: the text comes from another node and is checked when the node runs.
        if widths is not None:
            try:
                parse_widths(widths)
            except ValueError as error:
                return str(error)
        return True

    @classmethod
    def execute(cls, widths: str, rule: str) -> io.NodeOutput:
        return io.NodeOutput(TreeSettings(parse_widths(widths), rule))


def parse_widths(text: str) -> tuple[int, ...]:
    """ "2,2,1,1" -> (2, 2, 1, 1); empty -> (). ValueError names the node, the input, the value and what works."""
    parts = [part.strip() for part in text.replace(";", ",").split(",")]
    if parts == [""]:
        return ()
    hint = "Use whole numbers of 1 or more with commas between them, for example 2,2,1,1."
    if not all(part.isascii() and part.isdigit() and int(part) >= 1 for part in parts):
        raise ValueError(f"Configure Draft Tree: widths is {text!r}. {hint}")
    widths = tuple(int(part) for part in parts)
    rows = TreeSettings(widths).rows
    if rows > MAX_ROWS:
        raise ValueError(
            f"Configure Draft Tree: widths {text!r} makes {rows} latents per call, more than {MAX_ROWS}. "
            "Use fewer or smaller numbers, for example 2,2,1,1 (15 latents)."
        )
    return widths
