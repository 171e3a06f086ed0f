"""Speculation Report: a picture and a text of what a sampler's draft trees did."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from comfy_api.v0_0_2 import io

from .types import CATEGORY, DraftReport, found_by

NAME = "Speculation Report"
MISSING = "The picture needs matplotlib, which is not installed. Run: python -m pip install matplotlib"


class SpeculationReport(io.ComfyNode):
    """DRAFT_REPORT -> IMAGE and text."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="DraftTreeReport",
            display_name=NAME,
            category=CATEGORY,
            **found_by("statistics", "chart", "benchmark"),
            description=(
                "Draws what speculation did: every model call with the steps it drafted and kept, how many drafts were "
                "accepted, and what the papers' rules would have accepted. The same as text."
            ),
            inputs=[
                DraftReport.Input("report", tooltip="The report of a speculative sampler."),
                io.AnyType.Input(
                    "after",
                    optional=True,
                    tooltip=(
                        "Only for the report of Speculative Sampler: the latent of the SamplerCustomAdvanced that uses "
                        "it, so that the report is drawn after the run."
                    ),
                ),
            ],
            outputs=[
                io.Image.Output(display_name="image", tooltip="The picture, 1024 pixels wide: save it, post it."),
                io.String.Output(display_name="text", tooltip="The figures as lines of text, for Preview as Text."),
            ],
        )

    @classmethod
    def execute(cls, report: dict[str, Any], after: Any = None) -> io.NodeOutput:
        from ..sampler_core.errors import InputError

        if report.get("late") and after is None:
            raise InputError(
                f"{NAME}: this report comes from Speculative Sampler, which fills it only when SamplerCustomAdvanced "
                "has run. Connect that node's output latent to `after`."
            )
        if "steps" not in report:
            raise InputError(
                f"{NAME}: report is empty: {report.get('reason', 'nothing has been sampled')}. "
                "Connect to `after` the output of the node that runs this sampler."
            )
        text = describe(report)
        try:
            from .picture import draw

            pixels = draw(report)
        except ImportError:
            text = f"{text}\n\n{MISSING}"
            pixels = _written(text)
        image = torch.from_numpy(pixels.astype(np.float32) / 255.0)[None]
        return io.NodeOutput(image, text, ui={"text": [text]})


def describe(report: dict[str, Any]) -> str:
    """The figures of a report, one a line."""
    lines = [report["summary"], ""]
    if not report["calls"]:
        return lines[0]
    lines.append(f"steps: {report['steps']}, images: {report['images']}, sampler: {report['kernel']}")
    lines.append(f"model calls: {report['calls']}, latents judged: {report['rows']}")
    if report["mode"] == "plain":
        lines.append(f"plain sampler: {report['reason']}")
    else:
        lines.append(f"steps per call: {report['calls_ratio']:.2f}, latents per step: {report['rows_ratio']:.2f}")
        lines.append(f"drafts accepted: {report['accepted']} of {report['proposed']}")
        lines.append(f"drafts: {report['drafter']}, rule: {report['rule']}, tree: {_tree(report['tree'])}")
        deltas = [delta for delta in report["deltas"] if delta is not None]
        if deltas:
            lines.append(f"delta, the error of a draft in units of noise: median {float(np.median(deltas)):.2f}")
        if report["draft_calls"]:
            lines.append(f"calls of the draft model: {report['draft_calls']}")
        if report.get("call_mode", "vector") != "vector":
            lines.append(f"calls {report['call_mode']}: {report['call_reason']} ({report['model_calls']} in all)")
    seconds = f"seconds: {report['seconds']:.2f}"
    if stock := report.get("stock_seconds"):
        seconds += f", stock would take about {stock:.2f}"
    lines.append(seconds)
    return "\n".join(lines)


def _tree(tree: str | list[int]) -> str:
    return tree if isinstance(tree, str) else ",".join(map(str, tree)) or "none"


def _written(text: str) -> np.ndarray:
    """The text on paper, [H, W, 3]."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(20)
    page = Image.new("RGB", (1024, 60 + 30 * text.count("\n") + 30), "white")
    ImageDraw.Draw(page).multiline_text((30, 30), text, fill="#1f2933", font=font, spacing=10)
    return np.asarray(page)
