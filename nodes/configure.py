"""Configure Draft Tree: how much is drafted ahead, and how drafts are judged."""

from __future__ import annotations

from comfy_api.v0_0_2 import io

from .types import AUTO, CATEGORY, DraftTree, TreeSettings, found_by

# Names of sampler_core.coupling, most successful first: the first is the default.
RULES = ["optimal", "rass", "greedy", "reflection", "block"]
DRAFTERS = ["look_ahead", "frozen"]
MAX_ROWS = 256


class ConfigureDraftTree(io.ComfyNode):
    """Text widths, a rule, a drafter and a bound of rows -> DRAFT_TREE."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        default = TreeSettings()
        return io.Schema(
            node_id="DraftTreeConfigure",
            display_name="Configure Draft Tree",
            category=CATEGORY,
            **found_by("tree", "widths", "rows"),
            description=(
                "Chooses how far ahead the speculative samplers draft, and how drafted steps are accepted. "
                "No setting changes the kind of picture you get, only how many model calls it takes."
            ),
            inputs=[
                io.String.Input(
                    "widths",
                    default=str(default.widths),
                    tooltip=(
                        "auto plans every call anew from how well drafting has gone and what a call costs on this "
                        "machine, up to the number of rows below; it samples plainly where drafting would lose time. "
                        "Or fix it: how many next steps are drafted from each drafted step, one number per step "
                        "ahead. 1,1,1,1 is a chain of four (5 latents per call); 2,2,1,1 has two choices for the first "
                        "two (15 latents per call); empty drafts nothing."
                    ),
                ),
                io.Combo.Input(
                    "rule",
                    options=RULES,
                    default=default.rule,
                    tooltip=(
                        "How a drafted step is accepted or replaced. Every rule is exact. "
                        "optimal: accepts as often as any rule can. "
                        "rass: ranks the choices before judging. "
                        "greedy: judges the choices one after the other (D-GRS). "
                        "reflection: judges only the first choice; for chains of width 1. "
                        "block: judges a whole chain at once; for chains and auto, with frozen drafts or a draft model."
                    ),
                ),
                io.Combo.Input(
                    "drafter",
                    options=DRAFTERS,
                    default=default.drafter,
                    tooltip=(
                        "How steps are drafted when no draft model is connected. "
                        "look_ahead: from what the model said about later steps in earlier calls; best with auto or "
                        "chains (1,1,1,1), and the only one that works on large latents. "
                        "frozen: from the last prediction, as in the papers."
                    ),
                ),
                io.Int.Input(
                    "rows",
                    default=default.most_rows,
                    min=1,
                    max=64,
                    tooltip=(
                        "With auto: the most latents in a call, for each image. Each needs as much memory as one more "
                        "picture. 8 suits up to 30 steps, 16 suits 50 and more."
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
    def execute(cls, widths: str, rule: str, drafter: str, rows: int) -> io.NodeOutput:
        return io.NodeOutput(TreeSettings(parse_widths(widths), rule, drafter, rows))


def parse_widths(text: str) -> tuple[int, ...] | str:
    """ "2,2,1,1" -> (2, 2, 1, 1); empty -> (); "auto" as it is.

    ValueError names the node, the input, the value and what works.
    """
    if text.strip().lower() == AUTO:
        return AUTO
    parts = [part.strip() for part in text.replace(";", ",").split(",")]
    if parts == [""]:
        return ()
    hint = "Use auto, or whole numbers of 1 or more with commas between them, for example 2,2,1,1."
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
