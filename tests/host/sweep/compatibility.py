"""The table of docs/compatibility.md."""

from __future__ import annotations

import pathlib

FILE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "compatibility.md"

Row = tuple[str, str, str]
"""feature, modes, results."""

HEAD = """# What works with what

Written by the tests (`bash scripts/run.sh scripts/compatibility.py`), with small networks of random weights in a real
ComfyUI 0.3.75 on the CPU; every run of the tests holds it against what it finds.

How the latents of a drafted tree reach the model (`call_mode` in the report, with the reason in `call_reason`):

* **vector**: all in one call, each at its own noise level.
* **by sigma**: one call, divided only where something begins or ends between the noise levels of its latents.
* **by node**: one call for each, as the stock sampler would make it. That is right but saves nothing, so `auto`
  samples plainly; fixed widths draft all the same.
* **plain**: the stock sampler, and the report and the log say why.
* **declined**: an error that names the input and what works, before anything is sampled.

Anything unknown is called by node, after a trial whether it keeps values, is random, or mixes images; if so it is
plain.
"""


class Results:
    """What was recorded, by theme."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, tuple[dict[str, None], dict[str, None]]]] = {}

    def add(self, theme: str, feature: str, mode: str, result: str) -> None:
        """Note one case of a feature."""
        for name, text in (("theme", theme), ("feature", feature), ("mode", mode), ("result", result)):
            if not text.strip() or "|" in text or "\n" in text:
                raise ValueError(f"{name} is {text!r}: write one line of text without |")
        modes, results = self._rows.setdefault(theme, {}).setdefault(feature, ({}, {}))
        modes[mode] = None
        results[result] = None

    def rows(self) -> dict[str, dict[str, Row]]:
        """theme -> feature -> row, in order."""
        return {
            theme: {name: (name, ", ".join(sorted(m)), "; ".join(sorted(r))) for name, (m, r) in sorted(rows.items())}
            for theme, rows in sorted(self._rows.items())
        }

    def markdown(self) -> str:
        """The whole page."""
        parts = [HEAD]
        for theme, rows in self.rows().items():
            lines = [f"\n## {theme}\n", "| feature | mode | result |", "| --- | --- | --- |"]
            lines += [f"| {' | '.join(row)} |" for row in rows.values()]
            parts.append("\n".join(lines) + "\n")
        return "".join(parts)


def read(text: str) -> dict[str, dict[str, Row]]:
    """The rows of a page."""
    found: dict[str, dict[str, Row]] = {}
    theme = ""
    for line in text.splitlines():
        if line.startswith("## "):
            theme = line[3:]
            found[theme] = {}
        elif theme and line.startswith("| ") and not line.startswith(("| feature |", "| --- |")):
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            found[theme][cells[0]] = (cells[0], cells[1], cells[2])
    return found
