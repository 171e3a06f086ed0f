"""Seconds beside calls: the stock samplers and ours on this machine, in paired runs on the demo model.

    bash scripts/run.sh benchmarks/wallclock.py [--steps 28,50,100] [--pairs 12] [--rows 2,3,4,6,8] [--json]

Through the nodes, as an artist runs them, in ComfyUI on the CPU: KSampler with euler_ancestral, KSampler with euler at
28 steps, and the Speculative KSampler with look-ahead chains of fixed length and with `auto`. Every round runs all of
them on one seed, in turning order; `speedup` is the median over the rounds of stock euler_ancestral's seconds of the
same steps divided by the method's. overhead_ms: time a round spends outside the model's calls.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from _host import demo_model, encode, load_host, load_pack

PROMPTS = ["face", "heart", "clock", "book", "person", "hand", "flower", "animal"]


@dataclass
class Method:
    """run(seed, prompt): its report, or None for a stock sampler."""

    name: str
    rows: int | None
    run: Callable[[int, str], dict[str, Any] | None]
    seconds: list[float] = field(default_factory=list)
    reports: list[dict[str, Any]] = field(default_factory=list)
    outside: list[float] = field(default_factory=list)


def main() -> None:
    options = _options()
    load_host()
    pack = load_pack()
    logging.disable(logging.INFO)
    inside = _time_model_calls(pack)
    model, _ = demo_model()
    rows = []
    for steps in options.steps:
        methods = _methods(pack, model, steps, options)
        _run(methods, options.pairs, inside)
        rows += _rows(methods, steps)
        if not options.json:
            for row in rows[-len(methods) - 1 :]:
                print(_line(row), flush=True)
        else:
            print(f"{steps} steps done", file=sys.stderr, flush=True)
    if options.json:
        print(json.dumps(rows))


def _methods(pack: Any, model: Any, steps: int, options: argparse.Namespace) -> list[Method]:
    import torch

    import nodes

    latent = {"samples": torch.zeros(1, 16, 8, 8)}
    prompts = {word: encode(pack, word) for word in PROMPTS}
    negative = encode(pack, "")

    def stock(sampler: str, count: int) -> Callable[[int, str], None]:
        def run(seed: int, word: str) -> None:
            common = (model, seed, count, options.cfg, sampler, "simple", prompts[word], negative, latent, 1.0)
            nodes.KSampler().sample(*common)

        return run

    def ours(tree: Any) -> Callable[[int, str], dict[str, Any]]:
        def run(seed: int, word: str) -> dict[str, Any]:
            common = (
                model,
                seed,
                steps,
                options.cfg,
                "euler_ancestral",
                "simple",
                prompts[word],
                negative,
                latent,
                1.0,
            )
            report: dict[str, Any] = pack.nodes.ksampler.SpeculativeKSampler.execute(*common, 1.0, 1.0, tree=tree).args[
                1
            ]
            return report

        return run

    settings = pack.nodes.types.TreeSettings
    methods = [
        Method("stock euler_ancestral", None, stock("euler_ancestral", steps)),
        Method("stock euler, 28 steps", None, stock("euler", 28)),
    ]
    for count in options.rows:
        methods.append(Method(f"ours, chain of {count} rows", count, ours(settings((1,) * (count - 1)))))
    most = max(options.rows)
    methods.append(Method(f"ours, auto up to {most} rows", most, ours(settings("auto", most_rows=most))))
    return methods


def _run(methods: list[Method], pairs: int, inside: list[float]) -> None:
    for method in methods:
        method.run(0, PROMPTS[0])
    for pair in range(pairs):
        turn = pair % len(methods)
        for method in methods[turn:] + methods[:turn]:
            inside.clear()
            started = time.perf_counter()
            report = method.run(pair + 1, PROMPTS[pair % len(PROMPTS)])
            method.seconds.append(time.perf_counter() - started)
            if report is not None:
                method.reports.append(report)
                if inside:
                    method.outside.append((report["seconds"] - sum(inside)) / report["calls"])


def _rows(methods: list[Method], steps: int) -> list[dict[str, Any]]:
    base = methods[0].seconds
    rows = []
    for method in methods:
        ratios = sorted(b / s for b, s in zip(base, method.seconds, strict=True))
        low, median, high = statistics.quantiles(ratios, n=4)
        row = {
            "method": method.name,
            "steps": steps,
            "rows_budget": method.rows,
            "seconds": round(statistics.median(method.seconds), 4),
            "speedup": round(median, 4),
            "speedup_quartiles": [round(low, 4), round(high, 4)],
            "calls": None,
            "rows_per_step": None,
            "overhead_ms": None,
        }
        if method.reports:
            row["calls"] = round(statistics.mean(r["calls"] for r in method.reports), 2)
            row["rows_per_step"] = round(statistics.mean(r["rows_ratio"] for r in method.reports), 3)
        if method.outside:
            row["overhead_ms"] = round(1000 * statistics.median(method.outside), 3)
        rows.append(row)
    fixed = [row for row in rows if row["method"].startswith("ours, chain")]
    best = max(fixed, key=lambda row: row["speedup"])
    rows.append({**best, "method": "ours, best fixed rows"})
    return rows


def _line(row: dict[str, Any]) -> str:
    calls = f", {row['calls']:.1f} calls" if row["calls"] else ""
    overhead = f", {row['overhead_ms']:.2f} ms a round outside the model" if row["overhead_ms"] else ""
    low, high = row["speedup_quartiles"]
    return (
        f"{row['steps']:4} steps  {row['method']:26} {row['seconds']:6.3f} s  "
        f"{row['speedup']:5.2f}x ({low:.2f} to {high:.2f}){calls}{overhead}"
    )


def _time_model_calls(pack: Any) -> list[float]:
    """The seconds of every guided call from now on, in a list to be cleared at will."""
    from importlib import import_module

    sampler = import_module(f"{pack.__name__}.nodes.host.sampler")
    guided, inside = sampler.guided, []

    def timed(*args: Any) -> Callable[..., Any]:
        predict = guided(*args)

        def call(x: Any, sigma: Any) -> Any:
            started = time.perf_counter()
            out = predict(x, sigma)
            inside.append(time.perf_counter() - started)
            return out

        return call

    sampler.guided = timed
    return inside


def _options() -> argparse.Namespace:
    def numbers(text: str) -> list[int]:
        return [int(part) for part in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=numbers, default=[28, 50, 100])
    parser.add_argument("--rows", type=numbers, default=[2, 3, 4, 6, 8])
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--cfg", type=float, default=4.0)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
