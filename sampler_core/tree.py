"""Topology: which nodes a round evaluates, and how they lie in the rows of one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from .errors import InputError
from .rows import Rows, as_slice

MAX_ROWS = 4096

Path = tuple[int, ...]


@dataclass(frozen=True)
class Tree:
    """Evaluated nodes, each named by the child numbers that lead to it from the root (), in level order.

    A tree of one node is the plain sampler. The children of a node are numbered from 0 without gaps.
    """

    paths: tuple[Path, ...]

    @classmethod
    def from_widths(cls, widths: Sequence[int]) -> Tree:
        """widths[d] children for every node at depth d: (2, 2, 1, 1) has 1 + 2 + 4 + 4 + 4 rows; () has one row.

        Raises InputError for a width that is not a whole number of 1 or more, or a tree of over 4096 rows.
        """
        paths: list[Path] = [()]
        level: list[Path] = [()]
        for width in widths:
            if isinstance(width, bool) or not isinstance(width, (int, np.integer)) or width < 1:
                raise InputError(
                    f"tree: width {width!r} is not possible; use whole numbers of 1 or more, e.g. (2, 2, 1, 1)."
                )
            if len(paths) + len(level) * int(width) > MAX_ROWS:
                raise InputError(f"tree: {tuple(widths)} has more than {MAX_ROWS} rows; use smaller widths.")
            level = [(*parent, child) for parent in level for child in range(width)]
            paths += level
        return cls(tuple(paths))

    @cached_property
    def rows(self) -> int:
        return len(self.paths)

    @cached_property
    def depth(self) -> int:
        return len(self.paths[-1])

    @cached_property
    def width(self) -> int:
        """The most children any node has."""
        return max((path[-1] + 1 for path in self.paths[1:]), default=0)

    @cached_property
    def _layouts(self) -> dict[int, Layout]:
        return {}

    def layout(self, reach: int) -> Layout:
        """The layout of one image's tree, cut at `reach`."""
        if reach not in self._layouts:
            self._layouts[reach] = _layout_of_one(self, reach)
        return self._layouts[reach]


@lru_cache(maxsize=256)
def chain(depth: int) -> Tree:
    """A root and `depth` nodes below it, one under the other."""
    return Tree.from_widths((1,) * depth)


@dataclass(frozen=True)
class Level:
    """How a level's inner rows get their children.

    inner: their places among all inner rows. rows: the same among the rows of the level. above: whose guesses they take
    over, among the inner rows of the level before; of the roots, among the images. parents: of the rows of the next
    level, among these. None where it is row for row.
    """

    inner: slice
    rows: Rows | None
    above: Rows | None
    parents: np.ndarray | None


class Layout:
    """The rows of one call for several images, each with a tree of its own, cut at a depth of its own.

    Rows are node-major (all images of one node, then all of the next), so they are level by level too.

    trees: [images]; reach: [images] the greatest depth each image may evaluate.
    image, depth, parent, child: [rows]; image counts within `trees`, parent is a row (-1 for roots).
    inner: rows that have children (inner_rows: the same, as a slice if possible); inner_of: [rows] the place of a row
    in `inner`, or -1.
    kids: [len(inner), K] the rows of the children, -1 where there is none; n_kids: [len(inner)]; widths: its values.
    born: rows that have a parent. born_inner: [born] the place of their parents in `inner`.
    levels: a slice of the rows for each depth; growth: a Level for each but the last. sizes: the rows of each level;
    inner_sizes: those with children, of each but the last. distinct: no second children.
    deepest, widest: the depth of the last level, and the most children of a node.
    """

    def __init__(self, trees: Sequence[Tree], reach: np.ndarray) -> None:
        distinct = list(dict.fromkeys(trees))
        kind = np.array([distinct.index(tree) for tree in trees]) if len(distinct) > 1 else np.zeros(len(reach), int)
        members: dict[Path, list[int]] = {}
        for k, tree in enumerate(distinct):
            for path in tree.paths:
                members.setdefault(path, []).append(k)
        nodes = sorted(members, key=lambda path: (len(path), path))

        images: dict[Path, np.ndarray] = {}
        starts: dict[Path, int] = {}
        parents: list[np.ndarray] = []
        total = 0
        for path in nodes:
            here = reach >= len(path)
            if len(members[path]) < len(distinct):
                here = here & np.isin(kind, members[path])
            images[path] = np.flatnonzero(here)
            starts[path] = total
            total += len(images[path])
            if path:
                above = path[:-1]
                parents.append(starts[above] + np.searchsorted(images[above], images[path]))
            else:
                parents.append(np.full(len(images[path]), -1))
        counts = [len(images[path]) for path in nodes]
        self.rows = total
        self.image = np.concatenate([images[path] for path in nodes])
        self.parent = np.concatenate(parents)
        self.depth = np.repeat([len(path) for path in nodes], counts)
        self.child = np.repeat([path[-1] if path else 0 for path in nodes], counts)
        edges = np.searchsorted(self.depth, np.arange(self.depth[-1] + 2))
        self.levels = levels = [slice(int(a), int(b)) for a, b in zip(edges, edges[1:], strict=False)]

        n_kids = np.bincount(self.parent[self.parent >= 0], minlength=total)
        self.inner = np.flatnonzero(n_kids)
        self.n_kids = n_kids[self.inner]
        self.inner_of = np.full(total, -1)
        self.inner_of[self.inner] = np.arange(len(self.inner))
        self.kids = np.full((len(self.inner), int(n_kids.max(initial=0))), -1)
        born = np.flatnonzero(self.parent >= 0)
        place = self.inner_of[self.parent[born]]
        self.kids[place, self.child[born]] = born
        self.born, self.born_inner = as_slice(born), as_slice(place)
        self.inner_rows = as_slice(self.inner)
        self.widths = np.unique(self.n_kids).tolist()
        # The same for walking through in Python.
        self.inner_of_row, self.kids_of_inner = self.inner_of.tolist(), self.kids.tolist()
        self.deepest, self.widest = len(levels) - 1, self.kids.shape[1]
        self.distinct = self.widest <= 1
        self.growth = [self._level(depth) for depth in range(len(levels) - 1)]
        self.sizes = [level.stop - level.start for level in levels]
        self.inner_sizes = [level.inner.stop - level.inner.start for level in self.growth]

    def _level(self, depth: int) -> Level:
        above, here, below = self.levels[max(depth - 1, 0)], self.levels[depth], self.levels[depth + 1]
        before, rows = (self.inner[(self.inner >= s.start) & (self.inner < s.stop)] for s in (above, here))
        first = int(self.inner_of[rows[0]])
        if depth:
            over, among = self.inner_of[self.parent[rows]] - self.inner_of[before[0]], len(before)
        else:
            over, among = self.image[rows], here.stop
        return Level(
            slice(first, first + len(rows)),
            _none_if_all(rows - here.start, here.stop - here.start),
            _none_if_all(over, among),
            None if (order := self.inner_of[self.parent[below]] - first).tolist() == list(range(len(rows))) else order,
        )


def _none_if_all(rows: np.ndarray, count: int) -> Rows | None:
    return None if rows.tolist() == list(range(count)) else as_slice(rows)


@lru_cache(maxsize=512)
def _layout_of_one(tree: Tree, reach: int) -> Layout:
    """Kept from run to run; within one a tree keeps its own, because it takes time to compare trees."""
    return Layout((tree,), np.array([reach]))
