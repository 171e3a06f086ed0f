"""D-GRS: greedy rejection over K candidates in drafting order."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from .residual import draw_residual
from .rule import DELTA_MIN, Array, Draws, crossing, likelihood, settle, usable


class Greedy:
    """Try candidates one after another, each against what the earlier ones left of the target.

    Accepts with probability 1 − G_{K+1}. Source: D-GRS, arXiv 2609.17691.
    """

    name = "greedy"

    def select(self, delta: Array, u: Array, draws: Draws) -> Array:
        """First accepted candidate, or -1: int64 [n]. Takes K uniforms per row."""
        safe = usable(delta)
        width = u.shape[1]
        covered, left = _levels(safe, width)
        ratio = likelihood(safe[:, None], u)
        # U·G < (ratio − covered)₊ is U < p without a division by a vanishing G.
        accepted = draws.uniform(width) * left[:, :width] < ratio - covered[:, :width]
        first = accepted.argmax(axis=1)
        return settle(delta, np.where(accepted[np.arange(len(first)), first], first, -1))

    def residual(self, delta: Array, u: Array, draws: Draws) -> Array:
        """Draw from (q − covered·p)₊ / left, q the target's and p the draft's density: [n]."""
        safe = usable(delta)
        covered = _levels(safe, u.shape[1])[0][:, -1:]
        return draw_residual(safe, lambda v, ratio, rows: covered[rows], draws, crossing(safe, np.log(covered[:, 0])))


def _levels(delta: Array, width: int) -> tuple[Array, Array]:
    """lambda_0…lambda_K and G_1…G_{K+1} for delta [n]: both [n, K + 1].

    lambda_k·p is what k candidates can cover of the target; G_{k+1} is the mass they leave.
    """
    delta = np.maximum(np.asarray(delta), DELTA_MIN)
    half = 0.5 * delta
    covered, left = np.zeros((width + 1, len(delta))), np.ones((width + 1, len(delta)))
    for k in range(width):
        covered[k + 1] = covered[k] + left[k]
        cut = np.log(covered[k + 1]) / delta
        rest = ndtr(half - cut) - covered[k + 1] * ndtr(-half - cut)
        left[k + 1] = np.maximum(rest, 0.0)
    return covered.T, left.T
