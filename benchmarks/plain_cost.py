"""What our node costs when it does not speculate: a one-row tree against the stock KSampler, same seeds, paired runs.

    bash scripts/run.sh benchmarks/plain_cost.py [--pairs 20] [--steps 28] [--json]

Prints the median of the paired ratios (1.00: no cost) with its quartiles, on the demo model in ComfyUI on the CPU.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import time
from typing import Any

from _host import demo_model, encode, load_host, load_pack


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=28)
    parser.add_argument("--cfg", type=float, default=4.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    load_host()
    pack = load_pack()
    logging.disable(logging.INFO)

    import torch

    import nodes

    model, _ = demo_model()
    positive, negative = encode(pack, "red heart"), encode(pack, "")
    latent = {"samples": torch.zeros(1, 16, 8, 8)}
    plain = pack.nodes.types.TreeSettings(())
    common = (options.steps, options.cfg, "euler_ancestral", "simple", positive, negative, latent, 1.0)

    def stock(seed: int) -> Any:
        return nodes.KSampler().sample(model, seed, *common)

    def ours(seed: int) -> Any:
        return pack.nodes.ksampler.SpeculativeKSampler.execute(model, seed, *common, 1.0, 1.0, tree=plain)

    for warm in (stock, ours):
        warm(0)
    times: dict[str, list[float]] = {"stock": [], "ours": []}
    for pair in range(options.pairs):
        order = (("stock", stock), ("ours", ours))
        for name, run in order if pair % 2 else reversed(order):
            started = time.perf_counter()
            run(pair)
            times[name].append(time.perf_counter() - started)
    ratios = [o / s for o, s in zip(times["ours"], times["stock"], strict=True)]
    low, median, high = statistics.quantiles(ratios, n=4)
    row = {
        "pairs": options.pairs,
        "steps": options.steps,
        "ratio": round(median, 4),
        "ratio_quartiles": [round(low, 4), round(high, 4)],
        "stock_seconds": round(statistics.median(times["stock"]), 4),
        "seconds": round(statistics.median(times["ours"]), 4),
    }
    if options.json:
        print(json.dumps(row))
    else:
        print(
            f"one-row tree / stock KSampler: {median:.3f} ({low:.3f} to {high:.3f}) in {options.pairs} pairs, "
            f"{row['seconds']:.3f} s against {row['stock_seconds']:.3f} s"
        )


if __name__ == "__main__":
    main()
