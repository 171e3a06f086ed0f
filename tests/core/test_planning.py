"""Plans: what they maximise, what they cost to make, and that they follow verified history alone."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest

from sampler_core import InputError
from sampler_core.coupling.expected import expected_acceptance
from sampler_core.planning import Auto, Fixed
from sampler_core.tree import Tree

FREE, FULL = None, [float(w) for w in range(1, 17)]


def plan(auto: Auto, step: int = 0) -> Tree:
    return auto.trees(np.array([0]), np.array([step]))[0]


def told(auto: Auto, delta: float, times: int = 6, depth: int = 0) -> Auto:
    for _ in range(times):
        auto.observe(np.array([0]), np.array([1]), np.array([depth]), np.array([delta]))
    return auto


@pytest.mark.parametrize("delta", [0.05, 0.5, 2.0, 8.0])
def test_free_rows_make_the_longest_chain_of_look_ahead_drafts(delta: float) -> None:
    auto = told(Auto(16, "optimal", 1, True, FREE), delta)
    tree = plan(auto)
    assert tree.rows == 16 and tree.width == 1


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("delta", [0.05, 0.5, 2.0])
def test_rows_as_dear_as_calls_make_the_plain_sampler(ahead: bool, delta: float) -> None:
    auto = told(Auto(16, "optimal", 1, ahead, FULL), delta)
    assert plan(auto).rows == 1


def test_depth_falls_with_delta_and_cost() -> None:
    def depth(delta: float, slope: float) -> int:
        return plan(told(Auto(16, "optimal", 1, True, [1 + slope * w for w in range(16)]), delta)).depth

    by_delta = [depth(delta, 0.25) for delta in (0.1, 0.5, 1.0, 3.0)]
    by_cost = [depth(0.5, slope) for slope in (0.0, 0.1, 0.25, 0.6)]
    assert by_delta == sorted(by_delta, reverse=True) and by_delta[0] > by_delta[-1]
    assert by_cost == sorted(by_cost, reverse=True) and by_cost[0] > by_cost[-1]


@pytest.mark.parametrize("rule", ["greedy", "rass", "optimal"])
def test_trees_of_frozen_drafts_make_the_published_progress(rule: str) -> None:
    """At constant delta 1 and 16 rows: 2.82 (D-GRS), 3.07 (RASS) and 3.09 (the bound) expected steps a call."""
    tree = plan(told(Auto(16, rule, 1, False, FREE), 1.0))
    kids = {path: sum(1 for p in tree.paths if p[:-1] == path and p) for path in tree.paths}

    def progress(path: tuple[int, ...]) -> float:
        if not kids[path]:
            return 1.0
        each = expected_acceptance(rule, 1.0, kids[path]) / kids[path]
        return 1.0 + each * sum(progress((*path, c)) for c in range(kids[path]))

    expected = {"greedy": 2.82, "rass": 3.07, "optimal": 3.09}[rule]
    assert progress(()) == pytest.approx(expected, abs=0.02) and tree.rows <= 16


@pytest.mark.parametrize("rule", ["optimal", "block"])
def test_a_dear_draft_model_drafts_less(rule: str) -> None:
    """Levels are drafted one after the other; a draft as dear as the target is not worth one of them."""
    depths = [plan(told(Auto(16, rule, 1, False, FREE, dear), 0.5)).depth for dear in (0.0, 0.02, 0.1, 0.4, 1.0)]
    assert depths == sorted(depths, reverse=True) and depths[0] > depths[3] and depths[-1] == 0


def test_a_cheap_draft_model_makes_the_tree_of_the_best_rate() -> None:
    """Against every tree of fixed widths of up to 8 rows: none has a better expected progress per time."""
    cost, dear, delta = [1 + 0.1 * w for w in range(8)], 0.05, 1.0

    def rate(widths: tuple[int, ...]) -> float:
        rows = reached = progress = nodes = 1
        for width in widths:
            nodes *= width
            rows += nodes
            reached *= expected_acceptance("optimal", delta, width)
            progress += reached
        return progress / (cost[rows - 1] + dear * len(widths)) if rows <= 8 else 0.0

    best = max(rate(w) for n in range(8) for w in itertools.product(range(1, 8), repeat=n) if math.prod(w) <= 8)
    tree = plan(told(Auto(8, "optimal", 1, False, cost, dear), delta))
    kids = {path: sum(1 for p in tree.paths if p and p[:-1] == path) for path in tree.paths}

    def progress(path: tuple[int, ...]) -> float:
        share = expected_acceptance("optimal", delta, kids[path]) / kids[path] if kids[path] else 0.0
        return 1.0 + share * sum(progress((*path, c)) for c in range(kids[path]))

    assert progress(()) / (cost[tree.rows - 1] + dear * tree.depth) >= best - 1e-9


def test_hope_returns_after_single_rows() -> None:
    """A run of bad drafts ends drafting, and is not believed for ever."""
    auto = told(Auto(8, "optimal", 1, True, [1 + 0.4 * w for w in range(8)]), 20.0)
    depths = [plan(auto).depth for _ in range(40)]
    assert depths[0] == 0 and max(depths) > 0
    full = told(Auto(8, "optimal", 1, True, FULL), 20.0)
    assert not any(plan(full).depth for _ in range(200))


def test_planning_takes_less_than_a_millisecond() -> None:
    rng = np.random.default_rng(1)
    auto = Auto(16, "optimal", 1, True, [1 + 0.2 * w for w in range(16)])
    times = []
    for step in range(300):
        auto.observe(np.array([0, 0]), np.array([1, 2]), np.array([0, 1]), rng.lognormal(0, 1, 2))
        auto.evaluated(np.array([0]), np.array([step + 4]))
        started = time.perf_counter()
        plan(auto, step)
        times.append(time.perf_counter() - started)
    assert np.median(times) < 1e-3


def test_images_are_planned_alone() -> None:
    together = Auto(8, "optimal", 2, True, [1 + 0.3 * w for w in range(8)])
    together.observe(np.array([1] * 4), np.array([1] * 4), np.array([0] * 4), np.array([9.0] * 4))
    alone = Auto(8, "optimal", 1, True, [1 + 0.3 * w for w in range(8)])
    first, second = together.trees(np.array([0, 1]), np.array([0, 0]))
    assert first == plan(alone) and second != first


def test_fixed_is_fixed() -> None:
    tree = Tree.from_widths((2, 1))
    assert Fixed(tree).trees(np.array([0, 3]), np.array([5, 6])) == [tree, tree]


@pytest.mark.parametrize(("rows", "cost"), [(0, None), (2.5, None), (True, None), (4, [1.0, 2.0])])
def test_impossible_budgets(rows: object, cost: list[float] | None) -> None:
    with pytest.raises(InputError, match="rows|cost"):
        Auto(rows, "optimal", 1, True, cost)  # type: ignore[arg-type]
