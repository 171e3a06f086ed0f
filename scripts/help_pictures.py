"""Draw the pictures of the help pages into web/docs/images: draft trees, and the report of a run of the demo model.

    bash scripts/run.sh scripts/help_pictures.py

The third one, graph.webp, is cut from docs/demo_graph.png, the screenshot that scripts/graph_picture.py takes.
"""

from __future__ import annotations

import importlib
import pathlib
import sys
from typing import Any

import matplotlib
import numpy as np
from PIL import Image

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.backends.backend_agg import FigureCanvasAgg

ROOT = pathlib.Path(__file__).resolve().parent.parent
IMAGES = ROOT / "web" / "docs" / "images"
INK, QUIET, KEPT, DRAFTED = "#1f2933", "#66727f", "#d1495b", "#f3cdd2"
TREES = {"1,1,1,1": (1, 1, 1, 1), "2,2,1,1": (2, 2, 1, 1)}


def trees() -> np.ndarray:
    """A chain and a tree: the rows of one call, and a path that was kept."""
    figure, axes = plt.subplots(1, len(TREES), figsize=(10.24, 3.9), dpi=100, facecolor="white")
    for axis, (name, widths) in zip(axes, TREES.items(), strict=True):
        level, rows = [(0.0, True)], 1
        axis.scatter(0, 0, s=420, color=KEPT, zorder=3)
        for depth, width in enumerate(widths):
            rows += len(level) * width
            height = 1.9 / (len(level) * width)
            below = []
            for place, (y, kept) in enumerate(level):
                for child in range(width):
                    number = place * width + child
                    here = y if len(level) * width == len(level) else (number + 0.5) * height - 0.95
                    taken = kept and child == width - 1 and depth < 3
                    below.append((here, taken))
                    colour = KEPT if taken else DRAFTED
                    axis.plot([depth, depth + 1], [y, here], color=colour, lw=3 if taken else 2, zorder=1)
                    axis.scatter(depth + 1, here, s=420, color=colour, zorder=3)
            level = below
        axis.set_title(f"widths {name}: {rows} latents in one call", fontsize=15, color=INK, weight="bold", pad=14)
        for depth in range(len(widths) + 1):
            label = "now" if depth == 0 else f"step {depth}"
            axis.text(depth, -1.3, label, ha="center", fontsize=12, color=QUIET)
        axis.set_xlim(-0.4, len(widths) + 0.4)
        axis.set_ylim(-1.45, 1.15)
        axis.axis("off")
    figure.text(
        0.5, 0.02, "dark: kept in this call     light: drafted, judged, not kept", ha="center", fontsize=12, color=QUIET
    )
    figure.subplots_adjust(left=0.02, right=0.98, top=0.86, bottom=0.06, wspace=0.08)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]


def report() -> np.ndarray:
    """A run of the demo model with a chain of five."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import torch
    from _host import demo_model, encode, load_host, load_pack

    load_host()
    pack = load_pack()

    def module(name: str) -> Any:
        return importlib.import_module(f"{pack.__name__}.nodes.{name}")

    model, _ = demo_model()
    tree = module("types").TreeSettings((1, 1, 1, 1, 1))
    latent = {"samples": torch.zeros(1, 16, 8, 8)}
    prompts = encode(pack, "red heart"), encode(pack, "")
    output = module("ksampler").SpeculativeKSampler.execute(
        model, 7, 28, 4.0, "euler_ancestral", "simple", *prompts, latent, 1.0, 1.0, 1.0, tree=tree
    )
    return module("picture").draw(output.args[1])


def save(name: str, picture: Image.Image) -> None:
    picture.convert("RGB").save(IMAGES / name, quality=82, method=6)
    print(IMAGES.relative_to(ROOT) / name, f"{(IMAGES / name).stat().st_size / 1000:.0f} KB")


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    save("trees.webp", Image.fromarray(trees()))
    save("report.webp", Image.fromarray(report()).resize((768, 768), Image.Resampling.LANCZOS))
    graph = Image.open(ROOT / "docs" / "demo_graph.png")
    save("graph.webp", graph.resize((1024, round(graph.height * 1024 / graph.width)), Image.Resampling.LANCZOS))


if __name__ == "__main__":
    main()
