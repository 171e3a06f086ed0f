"""How often each rule accepts a draft, measured with the rule's own code, beside the bound no rule can pass.

usage: acceptance.py [--json] [--delta 0.25,1] [--width 2,8]
Monte Carlo over 10^6 verifications a row, seeded: standard error at most 0.0005. About half a minute on one core.
"""

from __future__ import annotations

import argparse
import json
import sys
from types import ModuleType

import torch
from _pack import load_coupling
from torch import Tensor

SAMPLES, PART = 1_000_000, 100_000
DELTAS, WIDTHS = "0.25,0.5,0.75,1,1.5,2,3", "1,2,3,4,8"


class Draws:
    """n verifications fed from one generator."""

    def __init__(self, n: int, generator: torch.Generator) -> None:
        self._n, self._generator = n, generator

    def uniform(self, k: int) -> Tensor:
        return torch.rand(self._n, k, dtype=torch.float64, generator=self._generator)

    def normal(self, k: int) -> Tensor:
        return torch.randn(self._n, k, dtype=torch.float64, generator=self._generator)


def acceptance(coupling: ModuleType, name: str, delta: float, width: int) -> float:
    """Share of verifications in which one of `width` candidates is accepted."""
    rule, draws = coupling.get(name), Draws(PART, torch.Generator().manual_seed(2024))
    deltas, accepted = torch.full((PART,), delta, dtype=torch.float64), 0
    for _ in range(SAMPLES // PART):
        accepted += int((rule.select(deltas, draws.normal(width), draws) >= 0).sum())
    return accepted / SAMPLES


def table(coupling: ModuleType, deltas: list[float], widths: list[int]) -> list[dict[str, float | int | str]]:
    """One row per delta, width and rule."""
    return [
        {
            "delta": delta,
            "K": width,
            "rule": name,
            "acceptance": round(acceptance(coupling, name, delta, width), 5),
            "bound": round(coupling.bound(delta, width), 5),
        }
        for delta in deltas
        for width in widths
        for name in coupling.NAMES
    ]


def _deltas(text: str) -> list[float]:
    values = [float(part) for part in text.split(",")]
    if not all(0 <= value < float("inf") for value in values):
        raise ValueError
    return values


def _widths(text: str) -> list[int]:
    values = [int(part) for part in text.split(",")]
    if min(values) < 1:
        raise ValueError
    return values


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print a JSON list instead of a table")
    parser.add_argument("--delta", type=_deltas, default=DELTAS, metavar="LIST", help=f"default {DELTAS}")
    parser.add_argument("--width", type=_widths, default=WIDTHS, metavar="LIST", help=f"candidates K; {WIDTHS}")
    return parser.parse_args()


def main() -> None:
    options = _arguments()
    torch.set_num_threads(1)  # small operations: more threads only wait for each other
    coupling = load_coupling()
    rows = table(coupling, options.delta, options.width)
    if options.json:
        json.dump(rows, sys.stdout)
        print()
        return
    print(f"{'delta':>6} {'K':>3}" + "".join(f" {name:>10}" for name in coupling.NAMES) + f" {'bound':>10}")
    for first in range(0, len(rows), len(coupling.NAMES)):
        group = rows[first : first + len(coupling.NAMES)]
        accepted = "".join(f" {row['acceptance']:10.4f}" for row in group)
        print(f"{group[0]['delta']:6g} {group[0]['K']:3d}{accepted} {group[0]['bound']:10.4f}")


if __name__ == "__main__":
    main()
