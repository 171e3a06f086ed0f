"""Pictures of what calls.py, wallclock.py and acceptance.py measured.

    bash scripts/run.sh benchmarks/plots.py FOLDER RESULT.json [RESULT.json ...]

Reads the JSON lists of those benchmarks, any number of each, and writes calls.png, wallclock.png, acceptance.png into
the folder, as far as there are figures for them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PAPERS, OURS = "#9aa5b1", "#d1495b"
METHODS = {
    "reflection chain": PAPERS,
    "greedy tree": PAPERS,
    "rass tree": PAPERS,
    "block chain": "#7d8793",
    "draft model": "#5b8fb9",
    "ours, frozen": "#e8a0a9",
    "ours, chain": "#dd7280",
    "ours": OURS,
}
RULES = {"reflection": "#9aa5b1", "greedy": "#5b8fb9", "rass": "#edae49", "optimal": OURS}

Rows = list[dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path, nargs="+")
    options = parser.parse_args()
    rows = [row for file in options.results for row in json.loads(file.read_text(encoding="utf-8"))]
    options.folder.mkdir(parents=True, exist_ok=True)
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    for name, key, draw in (("calls", "tiles", calls), ("wallclock", "speedup", wallclock), ("acceptance", "K", rules)):
        mine = [row for row in rows if key in row]
        if mine:
            figure = draw(mine)
            figure.savefig(options.folder / f"{name}.png", dpi=110, bbox_inches="tight")
            print(options.folder / f"{name}.png")


def calls(rows: Rows) -> Any:
    """Steps per call, a panel for each size of latent and number of steps."""
    panels = sorted(
        {(row["model"], row["tiles"], row["steps"]) for row in rows}, key=lambda p: (p[0] != "demo", *p[1:])
    )
    figure, axes = plt.subplots(1, len(panels), figsize=(1.0 + 2.5 * len(panels), 3.2), sharey=True, squeeze=False)
    names = [name for name in METHODS if any(row["method"] == name for row in rows)][::-1]
    for axis, (model, tiles, steps) in zip(axes[0], panels, strict=True):
        for y, name in enumerate(names):
            for row in rows:
                if (row["model"], row["tiles"], row["steps"], row["method"]) == (model, tiles, steps, name):
                    axis.barh(y, row["steps_per_call"], xerr=row["stderr"], color=METHODS[name], height=0.7)
                    axis.text(row["steps_per_call"] + 0.15, y, f"{row['steps_per_call']:.2f}", va="center", fontsize=9)
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set_yticks(range(len(names)), names)
        axis.set_xlim(0, 1.25 * max(row["steps_per_call"] for row in rows))
        axis.set_title(
            f"{tiles * 1024:,} elements, {steps} steps" + ("" if model == "demo" else f"\n{model}"), fontsize=10
        )
        axis.set_xlabel("steps per call")
    return figure


def wallclock(rows: Rows) -> Any:
    """Speed-up over the stock sampler against the number of latents a call may hold."""
    figure, axis = plt.subplots(figsize=(6.0, 3.4))
    for steps, colour in zip(sorted({row["steps"] for row in rows}), ("#5b8fb9", "#edae49", OURS), strict=False):
        chains = [r for r in rows if r["steps"] == steps and r["method"].startswith("ours, chain")]
        chains.sort(key=lambda r: r["rows_budget"])
        x, y = [r["rows_budget"] for r in chains], [r["speedup"] for r in chains]
        low, high = zip(*(r["speedup_quartiles"] for r in chains), strict=True)
        axis.plot(x, y, "o-", color=colour, label=f"{steps} steps")
        axis.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        for auto in (r for r in rows if r["steps"] == steps and "auto" in r["method"]):
            axis.plot([max(x) + 0.8], [auto["speedup"]], "*", markersize=12, color=colour)
    axis.axhline(1, color="black", linewidth=0.8)
    axis.text(0.02, 1.01, "stock euler_ancestral", fontsize=9, transform=axis.get_yaxis_transform())
    axis.set_xlabel("latents a call (star: auto)")
    axis.set_ylabel("times as fast")
    axis.legend(frameon=False)
    return figure


def rules(rows: Rows) -> Any:
    """Acceptance of every rule against delta, a panel for each number of candidates, with the bound."""
    widths = sorted({row["K"] for row in rows} - {1})
    figure, axes = plt.subplots(1, len(widths), figsize=(2.6 * len(widths) + 0.6, 2.8), sharey=True, squeeze=False)
    for axis, width in zip(axes[0], widths, strict=True):
        here = [row for row in rows if row["K"] == width]
        bound = sorted({(row["delta"], row["bound"]) for row in here})
        axis.plot(*zip(*bound, strict=True), color="black", linewidth=3, alpha=0.25, label="bound")
        for rule, colour in RULES.items():
            line = sorted((row["delta"], row["acceptance"]) for row in here if row["rule"] == rule)
            if line:
                axis.plot(*zip(*line, strict=True), "o-", markersize=3, linewidth=1.2, color=colour, label=rule)
        axis.set_title(f"{width} candidates", fontsize=10)
        axis.set_xlabel("delta")
    axes[0][0].set_ylabel("accepted")
    axes[0][-1].legend(frameon=False, fontsize=8)
    return figure


if __name__ == "__main__":
    main()
