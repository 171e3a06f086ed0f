"""RASS: pick a rank by fixed odds, then couple the picked order statistic with the target."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.special import comb, ndtr

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

    def select(self, delta: Array, u: Array, draws: Draws) -> Array:
        """The candidate of the drawn rank where it is accepted, else -1: int64 [n]. Takes 2 uniforms per row."""
        safe, all_u = usable(delta), u
        weights = rank_weights(safe, u.shape[1])
        uniform = draws.uniform(2)
        rank = (uniform[:, :1] >= weights.cumsum(axis=1)[:, :-1]).sum(axis=1)
        row = np.arange(len(rank))
        picked = all_u.argsort(axis=1)[row, rank]
        v = all_u[row, picked]
        accepted = uniform[:, 1] * density(v[:, None], weights)[:, 0] < likelihood(safe, v)
        return settle(delta, np.where(accepted, picked, -1))

    def residual(self, delta: Array, u: Array, draws: Draws) -> Array:
        """Draw from (q − g)₊ normalised, q the target's and g the selected candidate's density: [n]."""
        safe = usable(delta)
        weights = rank_weights(safe, u.shape[1])
        return draw_residual(safe, lambda v, ratio, rows: density(v, weights[rows]), draws)


def density(u: Array, weights: Array) -> Array:
    """g/phi, g the density of the selected coordinate: u [n, m], weights [n, K] -> [n, m].

    A Bernstein polynomial in Phi(u) with coefficients K·w_j: by Horner's rule in the smaller of Phi and 1 − Phi over
    the larger, which keeps both tails.
    """
    width = weights.shape[1]
    terms = (width * comb(width - 1, np.arange(width)) * weights)[:, None, :]
    below, above = ndtr(u), ndtr(-u)
    left = below < above
    odds = np.minimum(below, above) / np.maximum(below, above)
    ordered = np.where(left[..., None], terms, terms[..., ::-1])
    total = ordered[..., -1]
    for j in range(width - 2, -1, -1):
        total = total * odds + ordered[..., j]
    return np.maximum(below, above) ** (width - 1) * total


def rank_weights(delta: Array, width: int) -> Array:
    """Odds of the ranks 1…K (smallest first) for delta [n]: [n, K], rows sum to 1.

    They never look at the candidates: exactness needs that.
    """
    if width == 1:
        return np.ones((len(delta), 1))
    place = np.minimum(delta / _KNOT, float(_LAST_KNOT))
    knot = place.astype(np.int64)
    share = (place - knot)[:, None]
    knots, where = np.unique(knot, return_inverse=True)
    pairs = np.array([(_solve(k, width), _solve(k + 1, width)) for k in knots.tolist()])[where]
    return (1.0 - share) * pairs[:, 0] + share * pairs[:, 1]


@lru_cache(maxsize=1024)
def _solve(knot: int, width: int) -> Array:
    """Weights [K] that maximise the accepted mass ∫ min(q, g) at delta = knot/16."""
    if knot == 0:
        return np.full(width, 1.0 / width)  # draft and target agree, and so must g
    if knot > _LAST_KNOT:
        return np.eye(width)[-1]
    from scipy.optimize import linprog  # slow to import, and only this rule needs it

    delta = knot * _KNOT
    edge = np.linspace(-5.0, 5.0 + delta, _GRID + 1)
    middle, cell = 0.5 * (edge[1:] + edge[:-1]), edge[1] - edge[0]
    draft = np.exp(-0.5 * middle**2) * cell / np.sqrt(2 * np.pi)
    each = density(np.tile(middle, (width, 1)), np.eye(width)).T * draft[:, None]
    target = np.diff(ndtr(edge - delta))

    # Unknowns: the weights, then the accepted mass of every cell, at most the target's and at most g's.
    solution = linprog(
        np.concatenate([np.zeros(width), -np.ones(_GRID)]),
        A_ub=np.hstack([-each, np.eye(_GRID)]),
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
