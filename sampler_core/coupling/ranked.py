"""RASS: pick a rank by fixed odds, then couple the picked order statistic with the target."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from .residual import draw_residual
from .rule import Array, Draws, likelihood, settle, usable

# Any weights are exact, so they are solved for on a grid of deltas and interpolated: within 3e-4 of the acceptance
# of weights solved for each delta, K up to 16 (step 1/8: 9e-4). Past the last knot the largest candidate is the best.
_KNOT = 1.0 / 16.0
_LAST_KNOT = 96  # delta 6
_GRID = 160


class Ranked:
    """Draw a rank whose odds depend on (delta, K) only, then accept that candidate against its exact density.

    Source: RASS, arXiv 2610.02251 (rank-aware list coupling, weights by linear programme).
    """

    name = "rass"

    def select(self, delta: Tensor, u: Tensor, draws: Draws) -> Tensor:
        """The candidate of the drawn rank where it is accepted, else -1: int64 [n]. Takes 2 uniforms per row."""
        safe = usable(delta)
        weights = rank_weights(torch.from_numpy(safe), u.shape[1])
        uniform = draws.uniform(2)
        rank = (uniform[:, :1] >= weights.cumsum(dim=1)[:, :-1]).sum(dim=1, keepdim=True)
        picked = u.argsort(dim=1).gather(1, rank)  # [n, 1]
        v = u.gather(1, picked)
        selected = log_selected(v, weights).exp()
        accepted = (uniform[:, 1:] * selected).numpy() < likelihood(safe[:, None], v.numpy())
        return settle(delta, np.where(accepted, picked.numpy(), -1)[:, 0])

    def residual(self, delta: Tensor, u: Tensor, draws: Draws) -> Tensor:
        """Draw from (q − g)₊ normalised, q the target's density and g the selected candidate's: [n]."""
        safe = usable(delta)
        weights = rank_weights(torch.from_numpy(safe), u.shape[1])

        def taken(v: Array, ratio: Array, rows: Array) -> Array:
            return log_selected(torch.from_numpy(v), weights[rows]).exp().numpy()

        return draw_residual(safe, taken, draws)


def log_selected(u: Tensor, weights: Tensor) -> Tensor:
    """ln g(u)/phi(u), g the density of the selected coordinate: u [n, m], weights [n, K] -> [n, m].

    g/phi is a Bernstein polynomial in Phi(u) with coefficients K·w_j; logarithms keep both tails.
    """
    width = weights.shape[1]
    j = torch.arange(width, dtype=torch.float64)
    choose = torch.tensor([math.comb(width - 1, k) for k in range(width)], dtype=torch.float64)
    terms = (width * choose * weights).log()[:, None, :]  # [n, 1, K]
    below, above = torch.special.log_ndtr(u)[..., None], torch.special.log_ndtr(-u)[..., None]
    return (terms + j * below + (width - 1 - j) * above).logsumexp(dim=-1)


def rank_weights(delta: Tensor, width: int) -> Tensor:
    """Odds of the ranks 1…K (smallest first) for delta [n]: [n, K], rows sum to 1.

    They never look at the candidates: exactness needs that.
    """
    if width == 1:
        return torch.ones(delta.shape[0], 1, dtype=torch.float64)
    place = (delta / _KNOT).clamp(min=0.0, max=float(_LAST_KNOT))
    knot = place.floor()
    share = (place - knot)[:, None]
    knots, where = torch.unique(knot, return_inverse=True)
    left = np.stack([_solve(int(k), width) for k in knots.tolist()])
    right = np.stack([_solve(int(k) + 1, width) for k in knots.tolist()])
    return torch.lerp(torch.from_numpy(left)[where], torch.from_numpy(right)[where], share)


@lru_cache(maxsize=1024)
def _solve(knot: int, width: int) -> np.ndarray:
    """Weights [K] that maximise the accepted mass ∫ min(q, g) at delta = knot/16."""
    if knot == 0:
        return np.full(width, 1.0 / width)  # draft and target agree, and so must g
    if knot > _LAST_KNOT:
        return np.eye(width)[-1]
    from scipy.optimize import linprog  # slow to import, and only this rule needs it

    delta = knot * _KNOT
    edge = torch.linspace(-5.0, 5.0 + delta, _GRID + 1, dtype=torch.float64)
    middle, cell = 0.5 * (edge[1:] + edge[:-1]), edge[1] - edge[0]
    draft = torch.exp(-0.5 * middle**2) * cell / math.sqrt(2 * math.pi)
    each = log_selected(middle.expand(width, -1), torch.eye(width, dtype=torch.float64)).exp().T * draft[:, None]
    target = torch.special.ndtr(edge[1:] - delta) - torch.special.ndtr(edge[:-1] - delta)

    # Unknowns: the weights, then the accepted mass of every cell, at most the target's and at most g's.
    solution = linprog(
        np.concatenate([np.zeros(width), -np.ones(_GRID)]),
        A_ub=np.hstack([-each.numpy(), np.eye(_GRID)]),
        b_ub=np.zeros(_GRID),
        A_eq=np.concatenate([np.ones(width), np.zeros(_GRID)])[None],
        b_eq=np.ones(1),
        bounds=[(0.0, 1.0)] * width + [(0.0, float(mass)) for mass in target],
        method="highs",
    )
    if solution.x is None:
        raise RuntimeError(f"rass: no weights for delta {delta}, K {width}: {solution.message}")
    weights = np.clip(solution.x[:width], 0.0, None)
    return weights / weights.sum()
