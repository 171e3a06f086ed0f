"""Demo Prompt: words for the tiny model that ships with the pack."""

from __future__ import annotations

from comfy_api.v0_0_2 import io

from .types import CATEGORY


class DemoPrompt(io.ComfyNode):
    """Text -> CONDITIONING of the demo model; stands in for a text encoder."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="DraftTreeDemoPrompt",
            display_name="Demo Prompt (tiny model)",
            category=CATEGORY,
            description=(
                "Turns words into conditioning for drafttree-demo, the tiny emoji model that ships with this pack. "
                "It is a word table, not a text encoder, and works with no other model."
            ),
            inputs=[
                io.String.Input(
                    "text",
                    default="red heart",
                    multiline=True,
                    tooltip=(
                        "Words from the Unicode names of emoji, for example: red heart, dog face, slice of pizza, "
                        "rocket. At most eight words count and their order does not matter. "
                        "Empty text is the negative prompt."
                    ),
                ),
            ],
            outputs=[
                io.Conditioning.Output(
                    display_name="conditioning",
                    tooltip="For the positive or negative input of a sampler with the tiny model.",
                )
            ],
        )

    @classmethod
    def execute(cls, text: str) -> io.NodeOutput:
        from ..demo.words import encode

        context, pooled = encode(text)
        return io.NodeOutput([[context, {"pooled_output": pooled}]])
