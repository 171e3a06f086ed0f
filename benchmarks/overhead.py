"""What the sampler itself takes, outside the model's calls: milliseconds a round on one core, and where they go.

    bash scripts/run.sh benchmarks/overhead.py [--latents 16x8x8,16x64x64] [--rows 2,4,8,16] [--images 1] [--json]

Look-ahead chains on a cheap target. Medians over runs of the mean over a run's rounds. noise: fresh noise, as the stock
sampler draws it too, here for every step that a round finishes; layout: latents from blocks and back for a call; draft:
growing the chain; verify; learn: what the drafter keeps of a round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from _pack import load_core

PARTS = ("noise", "layout", "draft", "verify", "learn")


class Clock:
    """Time within parts; time within a part inside another counts for the inner one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._open: list[str] = []
        self._last = 0.0

    def around(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._turn(part)
            try:
                return function(*args, **kwargs)
            finally:
                self._turn(None)

        return timed

    def _turn(self, part: str | None) -> None:
        now = time.perf_counter()
        if self._open:
            self.seconds[self._open[-1]] += now - self._last
        self._last = now
        if part is None:
            self._open.pop()
        else:
            self._open.append(part)


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    core = load_core()
    clock = Clock()
    engine, look_ahead, noise = core.engine, core.look_ahead, core.noise
    engine.grow = clock.around("draft", engine.grow)
    engine.verify = clock.around("verify", engine.verify)
    look_ahead.LookAhead.observe = clock.around("learn", look_ahead.LookAhead.observe)
    noise.Streams.normal = clock.around("noise", noise.Streams.normal)
    core.target.Target.of_blocks = clock.around("layout", core.target.Target.of_blocks)

    table = []
    for shape in options.latents:
        for rows in options.rows:
            row = _measure(core, clock, shape, rows, options)
            table.append(row)
            if not options.json:
                parts = ", ".join(f"{part} {row[part + '_ms']:.2f}" for part in (*PARTS, "rest"))
                print(
                    f"{'x'.join(map(str, shape)):>10} {rows:3d} rows: {row['ms_per_round']:.2f} ms a round ({parts}), "
                    f"{row['steps_per_round']:.1f} steps a round",
                    flush=True,
                )
    if options.json:
        print(json.dumps(table))


def _measure(core: Any, clock: Clock, shape: tuple[int, ...], rows: int, options: argparse.Namespace) -> dict[str, Any]:
    t = torch.linspace(1, 0, options.steps + 1)
    sigmas = 3 * t / (1 + 2 * t)
    x = torch.randn(options.images, *shape, generator=torch.Generator().manual_seed(1))
    scale = (shape[-1] / 8) ** -0.5  # larger latents are not let fall behind

    def denoise(x: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
        s = sigma.reshape(-1, 1, 1, 1)
        return torch.tanh(x * (1 - s) * 2) + scale * 0.3 * torch.sin(4 * x)

    target = clock.around("model", denoise)
    runs = []
    for seed in range(options.runs):
        clock.seconds.clear()
        start = time.perf_counter()
        _, report = core.sample(
            target,
            x,
            sigmas,
            kernel="flow_ancestral",
            tree=(1,) * (rows - 1),
            rule="optimal",
            drafter="look_ahead",
            seed=seed,
        )
        outside = time.perf_counter() - start - clock.seconds["model"]
        split = {part: clock.seconds[part] for part in PARTS}
        split["rest"] = outside - sum(split.values())
        runs.append(({k: 1e3 * v / report.calls for k, v in split.items()}, 1e3 * outside / report.calls, report))
    return {
        "latent": list(shape),
        "elements": x[0].numel(),
        "rows": rows,
        "images": options.images,
        "steps": options.steps,
        "steps_per_round": round(statistics.mean(report.calls_ratio for *_, report in runs), 3),
        "ms_per_round": round(statistics.median(total for _, total, _ in runs), 4),
        **{f"{k}_ms": round(statistics.median(split[k] for split, *_ in runs), 4) for k in (*PARTS, "rest")},
    }


def _options() -> argparse.Namespace:
    def numbers(text: str) -> list[int]:
        return [int(part) for part in text.split(",")]

    def shapes(text: str) -> list[tuple[int, ...]]:
        return [tuple(int(side) for side in part.split("x")) for part in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latents", type=shapes, default=shapes("16x8x8,16x64x64"), help="C x H x W, comma separated")
    parser.add_argument("--rows", type=numbers, default=[2, 4, 8, 16], help="latents a call")
    parser.add_argument("--images", type=int, default=1)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of lines")
    return parser.parse_args()


if __name__ == "__main__":
    main()
