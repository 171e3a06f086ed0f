"""Same seed, nearly the same picture: ours against the stock sampler on the demo model, in dB, and as a sheet.

    bash scripts/run.sh benchmarks/same_seed.py [--seeds 64] [--steps 28] [--picture OUT.png] [--json]

PSNR of the decoded pictures (64 x 64) of one seed and prompt, the plain sampler's against each method's; and, as a
scale, of the plain sampler's pictures of two different seeds. Identical pictures count as 99 dB.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import statistics
from pathlib import Path
from typing import Any

from _host import demo_model, encode, load_host, load_pack

PROMPTS = ["face", "heart", "clock", "book", "person", "hand", "flower", "animal"]
CELL, LABEL, GAP = 96, 150, 4


def main() -> None:
    options = _options()
    load_host()
    pack = load_pack()
    logging.disable(logging.INFO)
    import torch

    model, vae = demo_model()
    settings = pack.nodes.types.TreeSettings
    methods = {
        "look-ahead chain of 8 rows": settings((1,) * 7),
        "look-ahead, auto": settings("auto"),
        "frozen tree 2,2,1,1": settings((2, 2, 1, 1), drafter="frozen"),
    }
    negative = encode(pack, "")
    latent = {"samples": torch.zeros(1, 16, 8, 8)}

    def picture(tree: Any, seed: int) -> tuple[Any, dict[str, Any]]:
        positive = encode(pack, PROMPTS[seed % len(PROMPTS)])
        common = (seed, options.steps, options.cfg, "euler_ancestral", "simple", positive, negative, latent, 1.0)
        out, report = pack.nodes.ksampler.SpeculativeKSampler.execute(model, *common, 1.0, 1.0, tree=tree).args
        return vae.decode(out["samples"])[0].detach().clamp(0, 1), report

    seeds = range(options.seeds)
    plain = [picture(settings(()), seed)[0] for seed in seeds]
    others = [plain[(seed + len(PROMPTS)) % options.seeds] for seed in seeds]  # the same prompt, another seed
    rows, sheets = [], {"plain sampler": plain}
    for name, tree in methods.items():
        drawn = [picture(tree, seed) for seed in seeds]
        sheets[name] = [image for image, _ in drawn]
        calls = statistics.mean(report["calls"] for _, report in drawn)
        rows.append(_row(name, options, calls, plain, sheets[name]))
    rows.append(_row("two different seeds", options, None, plain, others))
    sheets["another seed"] = others
    if options.picture:
        _sheet(sheets).save(options.picture)
    if options.json:
        print(json.dumps(rows))
        return
    for row in rows:
        low, high = row["psnr_quartiles"]
        calls = f", {row['calls']:.1f} calls for {row['steps']} steps" if row["calls"] else ""
        print(f"{row['method']:28} {row['psnr']:5.1f} dB (quartiles {low:.1f} to {high:.1f}){calls}")


def _row(name: str, options: argparse.Namespace, calls: float | None, a: list[Any], b: list[Any]) -> dict[str, Any]:
    low, median, high = statistics.quantiles(map(_psnr, a, b), n=4)
    return {
        "method": name,
        "steps": options.steps,
        "seeds": options.seeds,
        "calls": round(calls, 2) if calls else None,
        "psnr": round(median, 2),
        "psnr_quartiles": [round(low, 2), round(high, 2)],
    }


def _psnr(a: Any, b: Any) -> float:
    error = float((a - b).square().mean())
    return min(99.0, -10 * math.log10(max(error, 1e-12)))


def _sheet(sheets: dict[str, list[Any]]) -> Any:
    """A row for each method, a column for each of the first seeds."""
    import numpy
    from PIL import Image, ImageDraw

    columns = len(PROMPTS)
    page = Image.new("RGB", (LABEL + columns * (CELL + GAP), len(sheets) * (CELL + GAP)), "white")
    for y, (name, pictures) in enumerate(sheets.items()):
        ImageDraw.Draw(page).multiline_text((6, y * (CELL + GAP) + CELL // 3), name.replace(", ", ",\n"), fill="black")
        for x, image in enumerate(pictures[:columns]):
            pixels = Image.fromarray((image * 255).round().numpy().astype(numpy.uint8))
            cell = pixels.resize((CELL, CELL), Image.Resampling.LANCZOS)
            page.paste(cell, (LABEL + x * (CELL + GAP), y * (CELL + GAP)))
    return page


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=64)
    parser.add_argument("--steps", type=int, default=28)
    parser.add_argument("--cfg", type=float, default=4.0)
    parser.add_argument("--picture", type=Path, help="a sheet of the first seeds")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
