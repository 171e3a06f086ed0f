"""How often each rule accepts a draft, measured with the rule's own code, beside the bound no rule can pass.

usage: acceptance.py [--json] [--delta 0.25,1] [--width 2,8]
       acceptance.py --chain 4,8 [--json] [--delta 0.25,1]
With --chain: the steps a call finishes on chains of these many drafted steps, all at one delta, judged step by step
(reflection) and as a block. 2^20 verifications a row on a scrambled Sobol sequence, seeded: acceptances right to about
0.0001, steps to 0.001. About a minute on one core.
"""

from __future__ import annotations

import argparse
import json
import sys
from types import ModuleType

import numpy as np
import torch
from _pack import load_coupling
from scipy.special import ndtri

PARTS, PART = 8, 1 << 17
DELTAS, WIDTHS = "0.25,0.5,0.75,1,1.5,2,3", "1,2,3,4,8"


class Draws:
    """The coordinates of the next PART points of a sequence, handed out in order."""

    def __init__(self, sequence: torch.quasirandom.SobolEngine) -> None:
        # The sequence has 30 bits; the half keeps it off 0, whose normal is infinite.
        self._left = sequence.draw(PART, dtype=torch.float64).numpy() + 2.0**-31

    def uniform(self, k: int) -> np.ndarray:
        handed, self._left = self._left[:, :k], self._left[:, k:]
        return np.ascontiguousarray(handed)

    def normal(self, k: int) -> np.ndarray:
        return ndtri(self.uniform(k))


def acceptance(coupling: ModuleType, name: str, delta: float, width: int) -> float:
    """Share of verifications in which one of `width` candidates is accepted."""
    # The candidates, and as many uniforms as any rule asks for.
    sequence = torch.quasirandom.SobolEngine(3 * width + 1, scramble=True, seed=2024)
    rule, deltas, accepted = coupling.get(name), np.full(PART, delta), 0
    for _ in range(PARTS):
        draws = Draws(sequence)
        accepted += int((rule.select(deltas, draws.normal(width), draws) >= 0).sum())
    return accepted / (PARTS * PART)


def progress(coupling: ModuleType, name: str, delta: float, length: int) -> float:
    """Mean steps that a call finishes on a chain of `length` drafted steps: those committed, and one more."""
    sequence = torch.quasirandom.SobolEngine(2 * length, scramble=True, seed=2024)
    rule, deltas, committed = coupling.get(name), np.full((PART, length), delta), 0
    drafted = np.full(PART, length)
    for _ in range(PARTS):
        draws = Draws(sequence)
        u = draws.normal(length)
        if name == "block":
            committed += int(rule.judge(deltas, u, drafted, draws.uniform(length))[0].sum())
        else:
            taken = [rule.select(deltas[:, i], u[:, i : i + 1], draws) >= 0 for i in range(length)]
            committed += int(np.stack(taken, axis=1).cumprod(axis=1).sum())
    return 1 + committed / (PARTS * PART)


def chain_table(coupling: ModuleType, deltas: list[float], lengths: list[int]) -> list[dict[str, float | int]]:
    """One row per delta and length."""
    rows: list[dict[str, float | int]] = []
    for delta in deltas:
        for length in lengths:
            steps, block = (progress(coupling, name, delta, length) for name in ("reflection", "block"))
            gain = round(100 * (block / steps - 1), 2)
            rows.append(
                {"delta": delta, "length": length, "steps": round(steps, 4), "block": round(block, 4), "gain": gain}
            )
    return rows


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
        for name in coupling.NODE_NAMES
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
    parser.add_argument("--chain", type=_widths, metavar="LIST", help="drafted steps; the table of chains instead")
    return parser.parse_args()


def main() -> None:
    options = _arguments()
    torch.set_num_threads(1)  # small operations: more threads only wait for each other
    coupling = load_coupling()
    rows = (
        chain_table(coupling, options.delta, options.chain)
        if options.chain
        else table(coupling, options.delta, options.width)
    )
    if options.json:
        json.dump(rows, sys.stdout)
        print()
    elif options.chain:
        print("steps a call finishes")
        print(f"{'delta':>6} {'drafted':>8} {'step by step':>13} {'block':>8} {'gain, %':>8}")
        for row in rows:
            print("{delta:6g} {length:8d} {steps:13.3f} {block:8.3f} {gain:8.1f}".format(**row))
    else:
        names = coupling.NODE_NAMES
        print(f"{'delta':>6} {'K':>3}" + "".join(f" {name:>10}" for name in names) + f" {'bound':>10}")
        for first in range(0, len(rows), len(names)):
            group = rows[first : first + len(names)]
            accepted = "".join(f" {row['acceptance']:10.4f}" for row in group)
            print(f"{group[0]['delta']:6g} {group[0]['K']:3d}{accepted} {group[0]['bound']:10.4f}")


if __name__ == "__main__":
    main()
