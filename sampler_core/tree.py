"""Topology: which nodes a round evaluates, and how they lie in the rows of one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .errors import InputError

MAX_ROWS = 4096


@dataclass(frozen=True)
class Node:
    """One evaluated node: its parent's index (-1: the root), which child of it this is, and its depth."""

    parent: int
    child: int
    depth: int


@dataclass(frozen=True)
class Tree:
    """Evaluated nodes in level order. The root is node 0; a tree of one node is the plain sampler."""

    nodes: tuple[Node, ...]

    @classmethod
    def from_widths(cls, widths: Sequence[int]) -> Tree:
        """widths[d] children for every node at depth d: (2, 2, 1, 1) has 1 + 2 + 4 + 4 + 4 rows; () has one row.

        Raises InputError for a width that is not a whole number of 1 or more, or a tree of over 4096 rows.
        """
        nodes = [Node(-1, 0, 0)]
        level = [0]
        for depth, width in enumerate(widths, start=1):
            if isinstance(width, bool) or not isinstance(width, (int, np.integer)) or width < 1:
                raise InputError(
                    f"tree: width {width!r} is not possible; use whole numbers of 1 or more, e.g. (2, 2, 1, 1)."
                )
            if len(nodes) + len(level) * int(width) > MAX_ROWS:
                raise InputError(f"tree: {tuple(widths)} has more than {MAX_ROWS} rows; use smaller widths.")
            fresh = [Node(parent, child, depth) for parent in level for child in range(width)]
            level = list(range(len(nodes), len(nodes) + len(fresh)))
            nodes += fresh
        return cls(tuple(nodes))

    @property
    def rows(self) -> int:
        return len(self.nodes)

    @property
    def depth(self) -> int:
        return self.nodes[-1].depth


class Layout:
    """The rows of one call for several images that grow the same tree, each cut at a depth of its own.

    Rows are node-major (all images of node 0, then all of node 1, ...), so they are level by level too.

    reach: [images] the greatest depth each image may evaluate.
    image, depth, parent, child: [rows]; image counts within `reach`, parent is a row (-1 for roots).
    inner: rows that have children; inner_of: [rows] the place of a row in `inner`, or -1.
    kids: [len(inner), K] the rows of the children, -1 where there is none; n_kids: [len(inner)].
    levels: a slice of the rows for each depth.
    """

    def __init__(self, tree: Tree, reach: np.ndarray) -> None:
        images: list[np.ndarray] = []
        parents: list[np.ndarray] = []
        starts: list[int] = []
        total = 0
        for node in tree.nodes:
            here = np.flatnonzero(reach >= node.depth)
            if node.parent < 0:
                parents.append(np.full(len(here), -1))
            else:
                parents.append(starts[node.parent] + np.searchsorted(images[node.parent], here))
            images.append(here)
            starts.append(total)
            total += len(here)
        counts = [len(i) for i in images]
        self.rows = total
        self.image = np.concatenate(images)
        self.parent = np.concatenate(parents)
        self.depth = np.repeat([n.depth for n in tree.nodes], counts)
        self.child = np.repeat([n.child for n in tree.nodes], counts)
        edges = np.searchsorted(self.depth, np.arange(self.depth[-1] + 2))
        self.levels = [slice(int(a), int(b)) for a, b in zip(edges, edges[1:], strict=False)]

        n_kids = np.bincount(self.parent[self.parent >= 0], minlength=total)
        self.inner = np.flatnonzero(n_kids)
        self.n_kids = n_kids[self.inner]
        self.inner_of = np.full(total, -1)
        self.inner_of[self.inner] = np.arange(len(self.inner))
        self.kids = np.full((len(self.inner), int(n_kids.max(initial=0))), -1)
        born = np.flatnonzero(self.parent >= 0)
        self.kids[self.inner_of[self.parent[born]], self.child[born]] = born
