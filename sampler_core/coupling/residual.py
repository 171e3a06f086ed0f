"""Draws from what a rule left of the target."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import ndtr, ndtri

from .rule import Array, Draws, likelihood

# Trials per chunk: they never depend on the other rows, so that trial t of a row is always the same draw.
_FIRST_CHUNK = 32
_LARGEST_CHUNK = 4096
_MAX_TRIALS = 1 << 20


def draw_residual(
    delta: Array, taken: Callable[[Array, Array, Array], Array], draws: Draws, floor: Array | None = None
) -> Array:
    """Draw from (q − h)₊ normalised, q = N(delta, 1), by rejection from q, or from its part above `floor` [n]: [n].

    taken(v [m, k], ratio [m, k], rows [m]) is h/phi at coordinates v of these rows, whose likelihood ratios q/phi are
    `ratio`. A trial v ~ q is kept with probability (1 − h(v)/q(v))₊, whatever shape the support has. A row needs
    1/P(rejection) trials on average and is drawn with probability P(rejection), so a verification costs one trial on
    average; where (q − h)₊ is known to be 0 below `floor`, fewer.
    A row that keeps none of 2²⁰ trials returns the last one: this moves the law by at most 4·10⁻⁷ in total
    variation, at the worst delta (about 10⁻⁶), and ends the search where the residual is numerically empty.
    """
    chosen = np.zeros_like(delta)
    rows = np.arange(len(delta))
    chunk, trials = _FIRST_CHUNK, 0
    while len(rows):
        own = delta[rows, None]
        z = draws.normal(chunk) if floor is None else _above(floor[rows, None] - own, draws.uniform(chunk))
        uniform = draws.uniform(chunk)
        ratio = likelihood(own, own + z)
        kept = uniform < 1.0 - taken(own + z, ratio, rows) / ratio
        trials += chunk
        if trials >= _MAX_TRIALS:
            kept[:, -1] = True
        found = kept.any(axis=1)
        chosen[rows[found]] = z[found, kept[found].argmax(axis=1)]
        rows, draws = rows[~found], draws.only(np.flatnonzero(~found))
        chunk = min(4 * chunk, _LARGEST_CHUNK)
    return delta + chosen


def _above(a: Array, uniform: Array) -> Array:
    """Standard normals [n, k] above a [n, 1], or above 5 where a is larger."""
    return -ndtri((1.0 - uniform) * ndtr(-np.minimum(a, 5.0)))
