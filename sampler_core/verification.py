"""Verification: what the rule says at every node of a drafted tree, and the path it leaves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .coupling import Block, Draws, Rule
from .errors import NonFiniteError
from .growth import Draft
from .kernels import Kernel
from .noise import Noise
from .rows import as_slice, inner_products, pick, which


@dataclass(frozen=True)
class Path:
    """The verified path of every image in a round.

    stop: [n] the row where each path ends; length: [n] its rows, which is the steps the round has finished.
    shift: [n] what the residual adds to the first candidate, in units of the miss at the path's end; 0 at leaves.
    missed: [n] the place in layout.inner of that miss, or -1.
    inner: [v] places in layout.inner of the verified nodes, accepted: [v] whether a candidate was taken there.
    last: [n] the place in layout.inner of the last verified node, or -1. delta: [inner] of every inner row.
    line: [l] the rows where the paths end and of the first children below: states built from the kept noises.
    miss: [inner, ...] denoised - guess.
    """

    stop: np.ndarray
    length: np.ndarray
    shift: np.ndarray
    missed: np.ndarray
    inner: np.ndarray
    accepted: np.ndarray
    last: np.ndarray
    delta: np.ndarray
    line: np.ndarray
    miss: Tensor


def measure(draft: Draft, denoised: Tensor, kernel: Kernel) -> tuple[Tensor, np.ndarray, np.ndarray, np.ndarray]:
    """The one scalar problem of every inner node.

    Kernels are linear, so the means of target and draft differ by b (denoised - guess). Returns denoised - guess
    [inner, ...], which takes the guess's place, its norm [inner], delta [inner], u [rows] = e . z of every child row (0
    for roots), e the unit vector along that difference.
    """
    layout = draft.layout
    miss = torch.sub(pick(denoised, layout.inner_rows), draft.guess, out=draft.guess)
    flat = miss.flatten(1)
    # One transfer a round: everything that follows is scalar work on the CPU.
    square, along = inner_products((flat, flat), (pick(flat, layout.born_inner), draft.noise.flatten(1)))
    norm = np.sqrt(square)
    over = np.where(norm > 0, norm, np.inf)
    u = np.zeros(layout.rows)
    u[layout.born] = np.where(np.isfinite(along), along, 0.0) / over[layout.born_inner]
    return miss, norm, kernel.deltas(draft.steps[layout.inner], norm), u


def verify(draft: Draft, denoised: Tensor, kernel: Kernel, rule: Rule, noise: Noise) -> Path:
    """Walk each image's tree from the root through accepted children to a leaf or a rejection.

    The rule is asked at every inner node at once, or at every chain; its draws are keyed by (image, step), so nodes of
    one depth share them, of which the walk reaches at most one. What it says elsewhere is never used.
    draft.guess is overwritten.
    """
    layout = draft.layout
    n = len(draft.active)
    if not len(layout.inner):
        require_finite(denoised, np.arange(n))
        none, all_rows, nowhere = np.zeros(0, dtype=np.int64), np.arange(n), np.full(n, -1)
        ones = np.ones(n, dtype=np.int64)
        return Path(all_rows, ones, np.zeros(n), nowhere, none, none, nowhere, np.zeros(0), all_rows, draft.guess)

    miss, norm, delta, u_rows = measure(draft, denoised, kernel)
    # -1 in kids picks the last row's u, which no rule of that node's width looks at.
    u = u_rows[layout.kids]
    given = draft, delta, u, noise
    judge = _Chains(rule, *given) if isinstance(rule, Block) else _Nodes(rule, *given)

    picked, inner_of, kids = judge.picked.tolist(), layout.inner_of_row, layout.kids_of_inner
    stop, length, last, visited, line = [], [], [], [], []
    for row in range(n):
        steps, node, before = 1, inner_of[row], -1
        while node >= 0:
            visited.append(node)
            before = node
            if picked[node] < 0:
                break
            row = kids[node][picked[node]]
            steps, node = steps + 1, inner_of[row]
        stop.append(row)
        length.append(steps)
        last.append(before)
        line.append(row)
        while (below := inner_of[line[-1]]) >= 0:
            line.append(kids[below][0])
    at, inner = np.array(stop), np.array(visited)

    stopped = layout.inner_of[at]
    # Only verified states count: a draft may have led unverified rows anywhere. The norm of a miss is finite unless the
    # target's prediction is not, or only the guess was far off; leaves have none.
    leaves, odd = at[stopped < 0], inner[~np.isfinite(norm[inner])]
    if leaves.size or odd.size:
        require_finite(denoised, np.concatenate([leaves, layout.inner[odd]]))
    judge.stop(at[stopped >= 0])
    # A draft too far off to measure is a rejection: the next state comes straight from the target's kernel.
    missed = np.where(np.isfinite(delta)[stopped], stopped, -1)
    shift = np.zeros(n)
    rejected = which(missed >= 0)
    if len(rejected):
        nodes = missed[rejected]
        # m_p + r(z_1 - u_1 e + y e) = m_q + r(z_1 + (y - delta - u_1) e).
        along = judge.rest(nodes) - delta[nodes] - u[nodes, 0]
        shift[rejected] = along * kernel.noise[draft.steps[at[rejected]]] / np.maximum(norm[nodes], 1e-300)
    taken = judge.picked[inner] >= 0
    return Path(at, np.array(length), shift, missed, inner, taken, np.array(last), delta, np.array(line), miss)


class _Nodes:
    """A rule that judges node by node.

    picked: [inner] the place of the candidate that is taken at each node, -1 for none.
    """

    def __init__(self, rule: Rule, draft: Draft, delta: np.ndarray, u: np.ndarray, noise: Noise) -> None:
        self._rule, self._draft, self._delta, self._u, self._noise = rule, draft, delta, u, noise
        self.picked = np.zeros(len(delta), dtype=np.int64) - 1
        nodes = which(np.isfinite(delta))
        self.picked[nodes] = self._ask(rule.select, nodes, "accept")

    def stop(self, rows: np.ndarray) -> None:
        """Paths end at a rejection in these rows. No noise of a later step has been looked at."""

    def rest(self, nodes: np.ndarray) -> np.ndarray:
        """The coordinates of the next states of rejected nodes: [len(nodes)]."""
        return self._ask(self._rule.residual, nodes, "residual")

    def _ask(
        self, ask: Callable[[np.ndarray, np.ndarray, Draws], np.ndarray], nodes: np.ndarray, purpose: str
    ) -> np.ndarray:
        """Put the scalar problems of some inner nodes before the rule, those of one width together."""
        layout = self._draft.layout
        if len(layout.widths) == 1:
            return self._ask_alike(ask, nodes, purpose, layout.widths[0])
        answer = np.zeros(len(nodes))
        for width in layout.widths:
            some = which(layout.n_kids[nodes] == width)
            if len(some):
                answer[some] = self._ask_alike(ask, nodes[some], purpose, width)
        return answer

    def _ask_alike(
        self, ask: Callable[[np.ndarray, np.ndarray, Draws], np.ndarray], nodes: np.ndarray, purpose: str, width: int
    ) -> np.ndarray:
        draft = self._draft
        rows = draft.layout.inner[nodes]
        draws = self._noise.draws(draft.images[rows], draft.steps[rows], purpose)
        return ask(self._delta[nodes], self._u[nodes, :width], draws)


class _Chains:
    """Block verification, which judges every chain at once. picked: [inner] 0 where a chain goes on, -1 elsewhere."""

    def __init__(self, rule: Block, draft: Draft, delta: np.ndarray, u: np.ndarray, noise: Noise) -> None:
        self._rule, self._draft, self._delta, self._noise = rule, draft, delta, noise
        inner, n = draft.layout.inner, len(draft.active)
        image, depth = draft.layout.image[inner], draft.layout.depth[inner]
        uniform = noise.draws(draft.images[inner], draft.steps[inner], "accept").uniform(1)[:, 0]
        table = np.zeros((3, n, int(depth.max()) + 1))
        table[:, image, depth] = delta, u[:, 0], uniform
        taken, log_p = rule.judge(table[0], table[1], np.bincount(image, minlength=n), table[2])
        self.picked = np.where(depth < taken[image], 0, -1)
        self._log_p = log_p[image]

    def stop(self, rows: np.ndarray) -> None:
        """Where a chain stops depends on its noises beyond: the next round must not meet them."""
        self._noise.renew(self._draft.images[rows], self._draft.steps[rows] + 1)

    def rest(self, nodes: np.ndarray) -> np.ndarray:
        """The coordinates of the next states of the nodes where chains stop: [len(nodes)]."""
        rows = self._draft.layout.inner[nodes]
        draws = self._noise.draws(self._draft.images[rows], self._draft.steps[rows], "residual")
        return self._rule.rest(self._delta[nodes], self._log_p[nodes], draws)


def require_finite(denoised: Tensor, rows: np.ndarray) -> None:
    """NonFiniteError unless what the target said of these rows is finite."""
    some = pick(denoised, as_slice(rows))
    # A sum is finite but for values that are not, or are too many and too large.
    if len(rows) and not math.isfinite(some.sum()) and not bool(torch.isfinite(some).all()):
        raise NonFiniteError(
            "target: the model returned NaN or infinity. Try another weight or VAE precision (fp16 models often need "
            "bf16 or fp32), a lower cfg, or remove the last patch or LoRA added."
        )
