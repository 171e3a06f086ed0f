"""Benchmarks that leave out evaluations nobody looks at count what the engine counts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import sampler_core

BENCHMARKS = str(Path(__file__).resolve().parents[2] / "benchmarks")


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield
    for name in ("_lazy", "_models"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    "tree,rule,drafter",
    [
        ((1,) * 7, "reflection", "frozen"),
        ((3, 2, 1), "greedy", "frozen"),
        ((4, 2), "rass", "frozen"),
        ("auto", "optimal", "frozen"),
        ((1,) * 5, "reflection", "model"),
    ],
)
@pytest.mark.usefixtures("benchmarks")
def test_lazy_rounds_are_the_engines(tree: tuple[int, ...] | str, rule: str, drafter: str) -> None:
    import _lazy
    import _models

    target, other = _models.Analytic(2), _models.Analytic(2, components=8)
    x = torch.randn(1, 16, 8, 16, generator=torch.Generator().manual_seed(1))
    choice = {"tree": tree, "rule": rule, "drafter": other if drafter == "model" else drafter, "seed": 3, "rows": 8}
    lazy, counted = _lazy.sample(sampler_core, target, x, _models.sigmas(20), **choice)
    full, report = sampler_core.sample(target, x, _models.sigmas(20), kernel="flow_ancestral", **choice)
    assert torch.allclose(lazy, full, atol=1e-3)
    names = ("calls", "rows", "proposed", "accepted", "draft_calls", "draft_rows")
    assert [getattr(counted, name) for name in names] == [getattr(report, name) for name in names]
    assert report.calls < 20
