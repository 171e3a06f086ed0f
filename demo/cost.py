"""Time a step of both models at several batch sizes, with CFG, through the stock KSampler. Prints a Markdown table.

usage: bash scripts/run.sh demo/cost.py [--threads 1]
"""

from __future__ import annotations

import argparse
import pathlib
import time

import torch

from stock import Stock

HERE = pathlib.Path(__file__).resolve().parent
SHORT, LONG = 5, 25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=pathlib.Path, default=HERE / "models")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    stock = Stock(options.models)

    def seconds(model: object, count: int, steps: int) -> float:
        start = time.perf_counter()
        stock.sample(model, "red heart", 1, count, steps, sampler="euler")
        return time.perf_counter() - start

    print(
        f"Milliseconds a step, {options.threads} thread(s), best of {options.repeats}; in brackets: against one image\n"
    )
    print("| images (rows are twice as many) | model | draft |\n| --- | --- | --- |")
    first: list[float] = []
    for count in (1, 2, 4, 8, 16):
        cells = []
        for i, model in enumerate((stock.model, stock.draft)):
            # The best long run less the best short one: start-up cancels, other work on the machine counts least.
            best = [min(seconds(model, count, steps) for _ in range(options.repeats)) for steps in (SHORT, LONG)]
            step = (best[1] - best[0]) / (LONG - SHORT)
            first.append(step)
            cells.append(f"{1000 * step:.1f} ({step / first[i]:.2f})")
        print(f"| {count} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
