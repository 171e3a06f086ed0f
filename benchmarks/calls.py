"""Steps per call of every method, side by side: same target, same seeds, same budget of rows.

    bash scripts/run.sh benchmarks/calls.py [--steps 50] [--rows 16] [--tiles 1] [--model demo|analytic] [--json]

T independent tiles that are accepted or rejected together stand for a large latent. The demo model runs with CFG 4 and
one-word prompts that leave the picture open; `--model analytic` is a mixture with a closed-form denoiser, no weights.
The papers' methods draft by the frozen prediction. Widths of a tree are those with the best expected progress at the
median delta of a pilot run; chains fill the budget (block verification's, which has to look at every row, ends where
the pilot says that one draft in a thousand survives). Evaluations off the verified path that no draft is made from are
counted but left out (see _lazy.py), so that 64 tiles take less than ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import _lazy
import torch
from _models import Analytic, Network, Tiles, sigmas
from _pack import load_core
from torch import Tensor


@dataclass(frozen=True)
class Method:
    name: str
    rule: str
    drafter: str  # "frozen", "look_ahead" or "model"
    tree: str  # "chain", "tree" (fixed widths, planned once), "side" (a chain and one more child of the root) or "auto"
    asked: bool = False  # measured only where --only names it


METHODS = (
    Method("reflection chain", "reflection", "frozen", "chain"),
    Method("greedy tree", "greedy", "frozen", "tree"),
    Method("rass tree", "rass", "frozen", "tree"),
    Method("block chain", "block", "frozen", "chain"),
    Method("draft model", "reflection", "model", "chain"),
    Method("ours, frozen", "optimal", "frozen", "auto"),
    Method("ours, chain", "reflection", "look_ahead", "chain"),
    Method("ours", "optimal", "look_ahead", "auto"),
    Method("side branches", "greedy", "look_ahead", "side", True),
)


def main() -> None:
    options = _options()
    core = load_core()
    target, draft = _targets(options)
    rows = []
    for method in METHODS:
        if method.name not in options.only if options.only else method.asked:
            continue
        if (method.drafter == "model" and draft is None) or method.rule not in core.coupling.NAMES:
            continue
        rows.append(measure(core, method, target, draft, options))
        if not options.json:
            row = rows[-1]
            print(
                f"{row['method']:17} {row['steps_per_call']:5.2f} +- {row['stderr']:.2f} steps a call, "
                f"{row['rows_per_step']:5.2f} rows a step, delta {row['median_delta']:.2f}, "
                f"accepted {row['acceptance']:.2f}  ({row['seconds']:.0f} s)",
                flush=True,
            )
        else:
            print(f"{method.name}: {rows[-1]['steps_per_call']}", file=sys.stderr, flush=True)
    if options.json:
        print(json.dumps(rows))


def measure(
    core: Any, method: Method, target: Tiles, draft: Tiles | None, options: argparse.Namespace
) -> dict[str, Any]:
    """One method over all seeds."""
    schedule = sigmas(options.steps)
    tree: Any = "auto"
    if method.tree == "chain":
        tree = (1,) * (_survival(core, target, options) if method.rule == "block" else options.rows - 1)
    elif method.tree == "side":
        chain = [(0,) * depth for depth in range(options.rows - 1)]
        tree = core.tree.Tree(tuple(sorted([*chain, (1,)], key=lambda path: (len(path), path))))
    elif method.tree == "tree":
        tree = _widths(core, method, target, options)
    started = time.perf_counter()
    reports = []
    for seed in range(options.seeds):
        x, drafter = _noise(options.tiles, seed), draft if method.drafter == "model" else method.drafter
        choice = {"tree": tree, "rule": method.rule, "drafter": drafter, "seed": 1000 + seed, "rows": options.rows}
        if method.drafter == "look_ahead" or method.rule == "block":
            _, report = core.sample(target, x, schedule, kernel="flow_ancestral", **choice)
        else:
            _, report = _lazy.sample(core, target, x, schedule, **choice)
        reports.append(report)
    ratios = [r.calls_ratio for r in reports]
    return {
        "method": method.name,
        "steps": options.steps,
        "rows_budget": options.rows,
        "tiles": options.tiles,
        "elements": options.tiles * 1024,
        "steps_per_call": round(statistics.mean(ratios), 4),
        "stderr": round(statistics.stdev(ratios) / len(ratios) ** 0.5, 4) if len(ratios) > 1 else None,
        "rows_per_step": round(statistics.mean(r.rows_ratio for r in reports), 3),
        "median_delta": round(statistics.median(d for r in reports for d in r.deltas if d is not None), 4),
        "acceptance": round(sum(r.accepted for r in reports) / max(1, sum(r.proposed for r in reports)), 4),
        "model": target.name,
        "seeds": options.seeds,
        "tree": list(tree) if isinstance(tree, tuple) else method.tree,
        "draft_calls": sum(r.draft_calls for r in reports),
        "seconds": round(time.perf_counter() - started, 1),
    }


def _pilot(core: Any, target: Tiles, options: argparse.Namespace) -> list[float]:
    """The deltas of frozen drafts, one step ahead, on a seed of its own."""
    x = _noise(options.tiles, 10_000)
    choice = {"tree": (1,), "rule": "reflection", "drafter": "frozen", "seed": 10_000, "rows": 2}
    _, report = _lazy.sample(core, target, x, sigmas(options.steps), **choice)
    return [d for d in report.deltas if d is not None]


def _survival(core: Any, target: Tiles, options: argparse.Namespace) -> int:
    """The depth that fewer than one draft in a thousand reaches from any step, at the pilot's deltas."""
    kept = [math.erfc(d / 8**0.5) for d in _pilot(core, target, options)]
    for depth in range(1, options.rows):
        if max(math.prod(kept[i : i + depth]) for i in range(len(kept))) < 1e-3:
            return depth
    return options.rows - 1


def _widths(core: Any, method: Method, target: Tiles, options: argparse.Namespace) -> tuple[int, ...]:
    """The widths with the best expected progress at the median delta of the pilot."""
    from sampler_core.coupling.expected import expected_acceptance

    delta = statistics.median(_pilot(core, target, options))

    def best(budget: int, nodes: int) -> tuple[float, tuple[int, ...]]:
        """Progress below a level of `nodes` nodes with `budget` rows left, per node reached."""
        found: tuple[float, tuple[int, ...]] = (0.0, ())
        for width in range(1, min(8, budget // nodes) + 1):
            below, widths = best(budget - nodes * width, nodes * width)
            value = expected_acceptance(method.rule, delta, width) * (1 + below)
            if value > found[0]:
                found = (value, (width, *widths))
        return found

    return best(options.rows - 1, 1)[1]


def _noise(tiles: int, seed: int) -> Tensor:
    return torch.randn(1, 16, 8, 8 * tiles, generator=torch.Generator().manual_seed(seed))


def _targets(options: argparse.Namespace) -> tuple[Tiles, Tiles | None]:
    if options.model == "analytic":
        return Analytic(options.tiles), None
    from _host import ROOT, demo_model, load_host, load_pack

    load_host()
    pack = load_pack()
    import comfy.model_management
    import comfy.sd

    words = __import__("importlib").import_module(f"{pack.__name__}.demo.words")
    model, _ = demo_model()
    draft = comfy.sd.load_diffusion_model(str(ROOT / "demo/models/diffusion_models/drafttree-demo-draft.safetensors"))
    comfy.model_management.load_models_gpu([model, draft])
    make: Callable[[Any], Tiles] = lambda m: Network(m.model, words.encode, options.tiles, options.cfg)  # noqa: E731
    return make(model), make(draft)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--tiles", type=int, default=1)
    parser.add_argument("--seeds", type=int, help="default: 16 for one tile, 8 for 16, 3 for 64")
    parser.add_argument("--cfg", type=float, default=4.0)
    parser.add_argument("--model", choices=("demo", "analytic"), default="demo")
    parser.add_argument("--only", action="append", help="a method's name; may be repeated")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.seeds = options.seeds or (16 if options.tiles < 4 else 8 if options.tiles < 64 else 3)
    return options


if __name__ == "__main__":
    main()
