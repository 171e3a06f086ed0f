"""Verification: what the rule says at every node of a drafted tree, and the path it leaves."""

from __future__ import annotations

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
from .rows import pick


@dataclass(frozen=True)
class Path:
    """The verified path of every image in a round.

    stop: [n] the row where each path ends; length: [n] its rows, which is the steps the round has finished.
    shift: [n] what the residual adds to the first candidate's noise along `direction` [n, ...]; 0 at leaves.
    inner: [v] places in layout.inner of the verified nodes, accepted: [v] whether a candidate was taken there.
    last: [n] the place in layout.inner of the last verified node, or -1. delta: [inner] of every inner row.
    line: [l] the rows of the path, and of the first children below its end: states built from the kept noises.
    """

    stop: np.ndarray
    length: np.ndarray
    shift: np.ndarray
    direction: Tensor | None
    inner: np.ndarray
    accepted: np.ndarray
    last: np.ndarray
    delta: np.ndarray
    line: np.ndarray


def measure(
    draft: Draft, denoised: Tensor, kernel: Kernel
) -> tuple[Tensor, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The one scalar problem of every inner node.

    Kernels are linear, so the means of target and draft differ by b (denoised - guess). Returns denoised - guess
    [inner, ...], its norm [inner], delta [inner], u [rows] = e . z of every child row (0 for roots), e the unit vector
    along that difference, and finite [rows].
    """
    layout = draft.layout
    difference = pick(denoised, layout.inner_rows) - draft.guess
    flat = difference.flatten(1)
    norm = torch.linalg.vector_norm(flat, dim=1)
    along = torch.linalg.vecdot(pick(flat, layout.born_inner), draft.noise.flatten(1), dim=1)
    # The sum of a row is finite unless one of its numbers is not (or far beyond any latent).
    total = denoised.flatten(1).sum(dim=1)
    # One transfer a round: everything that follows is scalar work on the CPU.
    scalars = torch.cat([norm, along, total]).cpu().to(torch.float64).numpy()
    norm_rows, along_rows = scalars[: len(norm)], scalars[len(norm) : -len(total)]
    total_rows = scalars[-len(total) :]
    usable = (norm_rows > 0) & np.isfinite(norm_rows)
    over = np.where(usable, norm_rows, np.inf)
    u_rows = np.zeros(layout.rows)
    u_rows[layout.born] = np.where(np.isfinite(along_rows), along_rows, 0.0) / over[layout.born_inner]
    delta = kernel.deltas(draft.steps[layout.inner], norm_rows)
    return difference, norm_rows, delta, u_rows, np.isfinite(total_rows)


def verify(draft: Draft, denoised: Tensor, kernel: Kernel, rule: Rule, noise: Noise) -> Path:
    """Walk each image's tree from the root through accepted children to a leaf or a rejection.

    The rule is asked at every inner node at once, or at every chain; its draws are keyed by (image, step), so nodes of
    one depth share them, of which the walk reaches at most one. What it says elsewhere is never used.
    """
    layout = draft.layout
    n = len(draft.active)
    if not len(layout.inner):
        require_finite(bool(torch.isfinite(denoised).all()))
        none = np.zeros(0, dtype=np.int64)
        rows = np.arange(n)
        return Path(rows, np.ones(n, np.int64), np.zeros(n), None, none, none, np.full(n, -1), np.zeros(0), rows)

    difference, norm, delta, u_rows, finite = measure(draft, denoised, kernel)
    # -1 in kids picks the last row's u, which no rule of that node's width looks at.
    u = u_rows[layout.kids]
    # A draft too far off to measure is a rejection: the next state comes straight from the target's kernel.
    measured = np.isfinite(delta)
    given = draft, delta, u, noise
    judge = _Chains(rule, *given) if isinstance(rule, Block) else _Nodes(rule, *given)
    picked = judge.picked

    at = np.arange(n)
    length = np.zeros(n, dtype=np.int64)
    last = np.full(n, -1)
    moving = np.arange(n)
    visited, line = [], []
    while len(moving):
        line.append(at[moving])
        # Only verified states count: a draft may have led unverified rows anywhere.
        require_finite(bool(finite[at[moving]].all()))
        length[moving] += 1
        inner = layout.inner_of[at[moving]]
        moving, inner = moving[inner >= 0], inner[inner >= 0]
        last[moving] = inner
        visited.append(inner)
        taken = picked[inner] >= 0
        moving, inner = moving[taken], inner[taken]
        at[moving] = layout.kids[inner, picked[inner]]
    inner = np.concatenate(visited)

    shift, along = np.zeros(n), None
    stopped = layout.inner_of[at]
    judge.stop(at[stopped >= 0])
    rejected = np.flatnonzero((stopped >= 0) & measured[stopped])
    stopped = stopped[rejected]
    if len(rejected):
        along = _directions(difference, norm, rejected, stopped, n)
        # m_p + r(z_1 - u_1 e + y e) = m_q + r(z_1 + (y - delta - u_1) e).
        shift[rejected] = judge.rest(stopped) - delta[stopped] - u[stopped, 0]
    below = layout.inner_of[at]
    while len(below := below[below >= 0]):
        line.append(layout.kids[below, 0])
        below = layout.inner_of[line[-1]]
    return Path(at, length, shift, along, inner, picked[inner] >= 0, last, delta, np.concatenate(line))


def _directions(difference: Tensor, norm: np.ndarray, rejected: np.ndarray, stopped: np.ndarray, n: int) -> Tensor:
    """The unit vectors [n, ...] of the rejected nodes; anything finite for the other images."""
    if len(stopped) == n == 1:
        return difference[int(stopped[0]) :][:1] * (1.0 / max(float(norm[stopped[0]]), 1e-300))
    where, scale = np.zeros(n, dtype=np.int64), np.zeros(n)
    where[rejected] = stopped
    scale[rejected] = 1.0 / np.maximum(norm[stopped], 1e-300)
    found = pick(difference, where)
    found = torch.where(torch.isfinite(found), found, 0.0)
    return found * torch.from_numpy(scale).to(found).reshape(-1, *[1] * (found.ndim - 1))


class _Nodes:
    """A rule that judges node by node.

    picked: [inner] the place of the candidate that is taken at each node, -1 for none.
    """

    def __init__(self, rule: Rule, draft: Draft, delta: np.ndarray, u: np.ndarray, noise: Noise) -> None:
        self._rule, self._draft, self._delta, self._u, self._noise = rule, draft, delta, u, noise
        nodes = np.flatnonzero(np.isfinite(delta))
        self.picked = np.full(len(delta), -1)
        self.picked[nodes] = self._ask(rule.select, nodes, "accept")

    def stop(self, rows: np.ndarray) -> None:
        """Paths end at a rejection in these rows. No noise of a later step has been looked at."""

    def rest(self, nodes: np.ndarray) -> np.ndarray:
        """The coordinates of the next states of rejected nodes: [len(nodes)]."""
        return self._ask(self._rule.residual, nodes, "residual")

    def _ask(self, ask: Callable[[Tensor, Tensor, Draws], Tensor], nodes: np.ndarray, purpose: str) -> np.ndarray:
        """Put the scalar problems of some inner nodes before the rule, those of one width together."""
        draft, layout = self._draft, self._draft.layout
        answer = np.zeros(len(nodes))
        widths = layout.n_kids[nodes]
        for width in np.unique(widths):
            some = np.flatnonzero(widths == width)
            chosen = nodes[some]
            rows = layout.inner[chosen]
            draws = self._noise.draws(draft.images[rows], draft.steps[rows], purpose)
            said = ask(torch.from_numpy(self._delta[chosen]), torch.from_numpy(self._u[chosen][:, :width]), draws)
            answer[some] = said.numpy()
        return answer


class _Chains:
    """Block verification, which judges every chain at once. picked: [inner] 0 where a chain goes on, -1 elsewhere."""

    def __init__(self, rule: Block, draft: Draft, delta: np.ndarray, u: np.ndarray, noise: Noise) -> None:
        self._rule, self._draft, self._delta, self._noise = rule, draft, delta, noise
        inner, n = draft.layout.inner, len(draft.active)
        image, depth = draft.layout.image[inner], draft.layout.depth[inner]
        uniform = noise.draws(draft.images[inner], draft.steps[inner], "accept").uniform(1).numpy()[:, 0]
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
        return self._rule.rest(self._delta[nodes], self._log_p[nodes], draws).numpy()


def require_finite(finite: bool) -> None:
    """NonFiniteError unless what the target said is finite."""
    if not finite:
        raise NonFiniteError(
            "target: the model returned NaN or infinity. Try another weight or VAE precision (fp16 models often need "
            "bf16 or fp32), a lower cfg, or remove the last patch or LoRA added."
        )
