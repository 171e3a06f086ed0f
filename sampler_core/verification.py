"""Verification: what the rule says at every node of a drafted tree, and the path it leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .coupling import Draws, Rule
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
    norm_rows, along_rows, total_rows = np.split(scalars, [len(norm), len(norm) + len(along)])
    usable = (norm_rows > 0) & np.isfinite(norm_rows)
    over = np.where(usable, norm_rows, np.inf)
    u_rows = np.zeros(layout.rows)
    u_rows[layout.born] = np.where(np.isfinite(along_rows), along_rows, 0.0) / over[layout.born_inner]
    delta = kernel.deltas(draft.steps[layout.inner], norm_rows)
    return difference, norm_rows, delta, u_rows, np.isfinite(total_rows)


def verify(draft: Draft, denoised: Tensor, kernel: Kernel, rule: Rule, noise: Noise) -> Path:
    """Walk each image's tree from the root through accepted children to a leaf or a rejection.

    The rule is asked at every inner node at once; its draws are keyed by (image, step), so nodes of one depth share
    them, of which the walk reaches at most one. What it says elsewhere is never used.
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
    nodes = np.flatnonzero(measured)
    picked = np.full(len(delta), -1)
    picked[nodes] = _ask(rule.select, draft, delta, u, nodes, noise, "accept")

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

    shift = np.zeros(n)
    stopped = layout.inner_of[at]
    rejected = np.flatnonzero((stopped >= 0) & measured[stopped])
    stopped = stopped[rejected]
    if len(rejected):
        y = _ask(rule.residual, draft, delta, u, stopped, noise, "residual")
        # m_p + r(z_1 - u_1 e + y e) = m_q + r(z_1 + (y - delta - u_1) e).
        shift[rejected] = y - delta[stopped] - u[stopped, 0]
    along = _directions(difference, norm, rejected, stopped, n) if len(rejected) else None
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


def _ask(
    ask: Callable[[Tensor, Tensor, Draws], Tensor],
    draft: Draft,
    delta: np.ndarray,
    u: np.ndarray,
    nodes: np.ndarray,
    noise: Noise,
    purpose: str,
) -> np.ndarray:
    """Put the scalar problems of some inner nodes before the rule, those of one width together."""
    layout = draft.layout
    answer = np.zeros(len(nodes))
    widths = layout.n_kids[nodes]
    for width in np.unique(widths):
        some = np.flatnonzero(widths == width)
        chosen = nodes[some]
        rows = layout.inner[chosen]
        draws = noise.draws(draft.images[rows], draft.steps[rows], purpose)
        said = ask(torch.from_numpy(delta[chosen]), torch.from_numpy(u[chosen][:, :width]), draws)
        answer[some] = said.numpy()
    return answer


def require_finite(finite: bool) -> None:
    """NonFiniteError unless what the target said is finite."""
    if not finite:
        raise NonFiniteError(
            "target: the model returned NaN or infinity. Try another weight or VAE precision (fp16 models often need "
            "bf16 or fp32), a lower cfg, or remove the last patch or LoRA added."
        )
