"""Planning: which tree an image grows in a round.

Two passes, as Tsubame plans token trees: the topology is frozen first, from verified history alone, and only then are
its nodes sampled. A plan for the transitions from step j on never sees a noise of step j or later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Protocol

import numpy as np

from .coupling.expected import chain_passes, expected_acceptance
from .errors import InputError
from .tree import Tree, chain

NEW_STEPS = 15  # look-ahead: steps a round may draft that no earlier round has evaluated
WORTH = 0.12  # look-ahead: steps that a free evaluation saves later on, reached or not, by what it teaches
HOPE = 0.9  # how much of what has been seen is still believed after a round that drafted nothing
MAX_CHILDREN = 8
FORGET = 0.5  # weight of a new delta in the running mean


class Plan(Protocol):
    """depth: the deepest tree it may choose. width: the most children of a node."""

    depth: int
    width: int

    def trees(self, images: np.ndarray, steps: np.ndarray) -> list[Tree]:
        """A tree for each of these images [n] at these steps [n]."""
        ...

    def observe(self, images: np.ndarray, steps: np.ndarray, depths: np.ndarray, deltas: np.ndarray) -> None:
        """Verified transitions [v]: image, step, depth in the tree and delta."""
        ...

    def evaluated(self, images: np.ndarray, steps: np.ndarray) -> None:
        """Every step of these images before `steps` [n] has been evaluated."""
        ...


class Fixed:
    """The same tree in every round."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.depth, self.width = tree.depth, tree.width

    def trees(self, images: np.ndarray, steps: np.ndarray) -> list[Tree]:
        return [self._tree] * len(images)

    def observe(self, images: np.ndarray, steps: np.ndarray, depths: np.ndarray, deltas: np.ndarray) -> None:
        pass

    def evaluated(self, images: np.ndarray, steps: np.ndarray) -> None:
        pass


class Auto:
    """The tree of at most `rows` rows with the best expected progress, or progress per second where costs are known.

    cost[w - 1]: the time of a call on w rows, relative to one row; None counts calls alone. draft_cost: the time of a
    draft model's call in the same units; levels are drafted one after the other, with a call for each.
    ahead: look-ahead drafts, whose plans are chains (a sibling with noise of its own lies far from everything the
    target has been asked about; even a single one at the root loses, see the method "side branches" of
    benchmarks/calls.py) that reach NEW_STEPS past what has been evaluated.

    Deltas are predicted from this run alone. Beginning with those of an earlier run brought nothing on the demo model
    (33.1 +- 0.5 against 33.0 +- 0.3 calls' time at 50 steps), and a seed would no longer give the same picture twice.
    """

    def __init__(
        self,
        rows: int,
        rule: str,
        images: int,
        ahead: bool,
        cost: Sequence[float] | None = None,
        draft_cost: float = 0.0,
    ) -> None:
        if isinstance(rows, bool) or not isinstance(rows, (int, np.integer)) or rows < 1:
            raise InputError(f"rows: {rows!r} is not possible; use a whole number of 1 or more, e.g. 8.")
        if cost is not None and len(cost) < rows:
            raise InputError(f"cost: has {len(cost)} values for {rows} rows; give one for every number of rows.")
        self._rows, self._rule, self._ahead = int(rows), rule, ahead
        self._cost = tuple(float(c) for c in cost[:rows]) if cost is not None else (1.0,) * self._rows
        self._draft_cost = float(draft_cost)
        self.depth = self._rows - 1
        self.width = 1 if ahead or rule == "block" else min(MAX_CHILDREN, self._rows - 1)
        # The running mean of ln delta by depth, NaN where nothing has been verified.
        self._log = np.full((images, self._rows), math.nan)
        self._known = np.zeros(images, dtype=np.int64)
        self._idle = np.zeros(images, dtype=np.int64)  # rounds since something was drafted

    def trees(self, images: np.ndarray, steps: np.ndarray) -> list[Tree]:
        return [self._tree(int(b), int(i)) for b, i in zip(images, steps, strict=True)]

    def observe(self, images: np.ndarray, steps: np.ndarray, depths: np.ndarray, deltas: np.ndarray) -> None:
        for b, d, delta in zip(images, depths, deltas, strict=True):
            new, old = math.log(min(max(float(delta), 1e-3), 1e3)), self._log[b, d]
            self._log[b, d] = new if math.isnan(old) else old + FORGET * (new - old)

    def evaluated(self, images: np.ndarray, steps: np.ndarray) -> None:
        np.maximum.at(self._known, images, steps)

    def _tree(self, image: int, step: int) -> Tree:
        seen = self._log[image]
        first = float(np.nanmean(seen[:2])) if not np.isnan(seen[:2]).all() else 0.0
        first *= HOPE ** self._idle[image]
        found = np.flatnonzero(~np.isnan(seen))
        growth = 0.0
        if len(found) > 2:
            growth = float(np.clip(np.polyfit(found, seen[found], 1)[0], 0.0, 0.5))
        key = (round(first / 0.1), round(growth / 0.05))
        if self._ahead:
            longest = min(self.depth, max(0, int(self._known[image]) - step) + NEW_STEPS)
            tree = chain(_best_depth(*key, longest, self._cost))
        elif self._rule == "block":
            tree = chain(_best_block(*key, self._cost, self._draft_cost))
        else:
            tree = _best_tree(*key, self._rows, self._rule, self._cost, self._draft_cost)
        self._idle[image] = 0 if tree.depth else self._idle[image] + 1
        return tree


def _deltas(first: int, growth: int, depth: int) -> list[float]:
    return [math.exp(0.1 * first + 0.05 * growth * d) for d in range(depth)]


@lru_cache(maxsize=4096)
def _best_depth(first: int, growth: int, longest: int, cost: tuple[float, ...]) -> int:
    """The chain depth with the best expected progress per cost, where every evaluation teaches something."""
    progress, reached, best, depth = 1.0, 1.0, 1.0 / cost[0], 0
    # Nothing is hoped for where a second row costs as much as a second call.
    worth = WORTH * max(0.0, 2.0 - cost[min(1, longest)] / cost[0])
    for d, delta in enumerate(_deltas(first, growth, longest), start=1):
        reached *= expected_acceptance("reflection", delta, 1)
        progress += reached + worth
        if progress / cost[d] > best * (1 + 1e-9):
            best, depth = progress / cost[d], d
    return depth


@lru_cache(maxsize=1024)
def _best_block(first: int, growth: int, cost: tuple[float, ...], draft_cost: float) -> int:
    """The chain depth with the best expected progress per cost where chains are judged as a block."""
    passes = chain_passes(_deltas(first, growth, len(cost) - 1))
    progress, depth = 1.0 + np.concatenate([[0.0], np.cumsum(passes)]), np.arange(len(cost))
    return int(np.argmax(progress / (np.array(cost) + draft_cost * depth) - 1e-9 * depth))


@lru_cache(maxsize=1024)
def _best_tree(first: int, growth: int, rows: int, rule: str, cost: tuple[float, ...], draft_cost: float = 0.0) -> Tree:
    """The tree of at most `rows` rows with the best expected progress per cost; subtrees of a node are near even.

    Candidates are alike to a rule that accepts as often as any can. One that prefers the first of them, so that its
    subtree may be larger, gives away more acceptance than the larger subtree brings (2 to 5 % at 16 and 32 rows).
    """
    deltas = _deltas(first, growth, rows)
    # Where drafting a level is not free, shallower trees of the same number of rows compete with the best one.
    limits = [d for d in range(rows) if d < 8 or d % 4 == 0 or d == rows - 1] if draft_cost else [rows - 1]
    choices = []
    for limit in limits:
        value = _values(rows, rule, deltas, limit)
        for r in range(1, rows + 1):
            time = cost[r - 1] + draft_cost * min(limit, r - 1)
            choices.append((value(r, 0)[0] / time - 1e-9 * r, -r, limit))
    _, negative, limit = max(choices)
    value = _values(rows, rule, deltas, limit)
    paths: list[tuple[int, ...]] = []

    def build(path: tuple[int, ...], budget: int) -> None:
        paths.append(path)
        for child, share in enumerate(_shares(budget - 1, value(budget, len(path))[1])):
            build((*path, child), share)

    build((), -negative)
    return Tree(tuple(sorted(paths, key=lambda path: (len(path), path))))


def _values(rows: int, rule: str, deltas: list[float], limit: int) -> Callable[[int, int], tuple[float, int]]:
    @cache
    def value(budget: int, depth: int) -> tuple[float, int]:
        """Expected progress of a subtree of `budget` rows at `depth`, and the number of its root's children."""
        best = (1.0, 0)
        for children in range(1, min(MAX_CHILDREN, budget - 1) + 1) if depth < limit else ():
            each = expected_acceptance(rule, deltas[depth], children) / children
            total = 1.0 + each * sum(value(share, depth + 1)[0] for share in _shares(budget - 1, children))
            if total > best[0] + 1e-9:
                best = (total, children)
        return best

    return value


def _shares(rows: int, children: int) -> list[int]:
    """`rows` split over the children as evenly as possible, the first ones larger."""
    return [rows // children + (c < rows % children) for c in range(children)] if children else []
