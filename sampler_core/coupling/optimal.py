"""The optimal list rule: reaches, to 1e-4, the most that any rule can accept of K candidates."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.special import log_ndtr, ndtr

from .reflection import Reflection
from .residual import draw_residual
from .rule import DELTA_MIN, Array, Draws, crossing, likelihood, settle, usable

# Any levels are exact, so they are solved for on a grid of deltas and interpolated.
_KNOT = 1.0 / 32.0
_LAST_KNOT = 192  # delta 6: from there on the tail is all that counts
_CLASSES = 4
_LOWEST, _ITERATIONS, _DAMPING = 0.3, 200, 0.3


class Optimal:
    """Candidates in the far tail win, the largest first; the others draw lots weighted by their likelihood ratio.

    Levels l_0 > l_1 > … > l_M of the ratio. At l_0 and above, the largest candidate is selected. Otherwise each
    candidate draws one of M classes, the two whose levels enclose its ratio, with the odds of linear interpolation,
    and a random member of the best class present is selected. The selected density g is a closed form, piecewise
    linear in the ratio below l_0; at the best levels it equals the target's density between l_1 and l_M, and the
    tail is the minimum cut of `bound`. One candidate: reflection. Source: this project.
    """

    name = "optimal"

    def __init__(self) -> None:
        self._single = Reflection()

    def select(self, delta: Array, u: Array, draws: Draws) -> Array:
        """The selected candidate where it is accepted, else -1: int64 [n]. Takes 2 K + 1 uniforms per row, K > 1."""
        n, width = u.shape
        if width == 1:
            return self._single.select(delta, u, draws)
        safe, all_u = usable(delta), u
        levels, heights = tent(safe, width)
        uniform = draws.uniform(2 * width + 1)
        ratio = likelihood(safe[:, None], all_u)
        lot = np.floor(_steps(ratio, levels).sum(axis=2) + uniform[:, :width])
        order = np.where(ratio >= levels[:, :1], -all_u, 1.0 + lot + uniform[:, width:-1])
        picked = order.argmin(axis=1)
        row = np.arange(n)
        own = ratio[row, picked]
        selected = density(all_u[row, picked][:, None], own[:, None], levels, heights, width)[:, 0]
        return settle(delta, np.where(uniform[:, -1] * selected < own, picked, -1))

    def residual(self, delta: Array, u: Array, draws: Draws) -> Array:
        """Draw from (q − g)₊ normalised, q the target's density and g the selected candidate's: [n]."""
        width = u.shape[1]
        if width == 1:
            return self._single.residual(delta, u, draws)
        safe = usable(delta)
        levels, heights = tent(safe, width)

        def taken(v: Array, ratio: Array, rows: Array) -> Array:
            return density(v, ratio, levels[rows], heights[rows], width)

        return draw_residual(safe, taken, draws)


def density(u: Array, ratio: Array, levels: Array, heights: Array, width: int) -> Array:
    """g/phi at coordinates u [n, m] with likelihood ratios `ratio` [n, m], g the selected candidate's density."""
    steps = _steps(ratio, levels)
    below = heights[:, :1] + (steps @ np.diff(heights)[:, :, None])[..., 0]
    return np.where(ratio >= levels[:, :1], width * ndtr(u) ** (width - 1), below)


def _steps(ratio: Array, levels: Array) -> Array:
    """How far a ratio [n, m] has come from level m to level m + 1, for each m from 1 to M − 1: [n, m, M − 1] in 0…1."""
    upper, lower = levels[:, None, 1:-1], levels[:, None, 2:]
    below = upper - np.minimum(ratio, levels[:, :1])[..., None]
    return np.minimum(np.maximum(below / (upper - lower), 0.0), 1.0)


def tent(delta: Array, width: int) -> tuple[Array, Array]:
    """Levels l_0…l_M [n, M + 1] for delta [n] and the heights of g/phi at l_1…l_M [n, M]."""
    place = np.minimum(delta / _KNOT, float(_LAST_KNOT))
    knot = place.astype(np.int64)
    share = (place - knot)[:, None]
    table = _log_levels(width)
    log_levels = (1.0 - share) * table[knot] + share * table[knot + 1]
    return np.exp(log_levels), _heights(delta, log_levels, width)


def _heights(delta: Array, log_levels: Array, width: int) -> Array:
    """R_1…R_M [n, M]: a candidate of class m is selected with probability R_m / K, at the exact delta."""
    delta = np.maximum(delta, DELTA_MIN)[:, None]
    levels = np.exp(log_levels)
    y = crossing(delta, log_levels)
    draft, target = ndtr(y), ndtr(y - delta)
    upper, lower = levels[:, 1:-1], levels[:, 2:]
    mass = draft[:, 1:-1] - draft[:, 2:]
    better = (target[:, 1:-1] - target[:, 2:] - lower * mass) / (upper - lower)
    # worse[m]: the probability of a class after m; in the end (high^K − low^K) / (high − low) without cancellation.
    worse = np.zeros_like(levels)
    worse[:, 0] = draft[:, 0]
    worse[:, 1:-1] = draft[:, 1:-1] - np.minimum(np.maximum(better, 0.0), mass)
    high, low = worse[:, :-1], worse[:, 1:]
    total, power = np.ones_like(high), high
    for _ in range(width - 1):
        total = total * low + power
        power = power * high
    return total


@lru_cache(maxsize=64)
def _log_levels(width: int) -> Array:
    """Logarithms of the best levels at every knot: [knots + 1, M + 1], the last row twice.

    The tail starts at the largest root of ratio(t) = K Phi(t)^(K − 1), the minimum cut. The other levels solve
    l_m = R_m by damped iteration, which makes g equal to the target between them; many more iterations would drive
    levels together.
    """
    delta = np.maximum(np.arange(_LAST_KNOT + 1) * _KNOT, 0.01)  # the levels have a limit at 0
    t = 0.5 * delta + np.log(width) / delta
    for _ in range(30):  # Newton from the right of a convex function
        slope = np.exp(-0.5 * t * t - log_ndtr(t)) / np.sqrt(2 * np.pi)
        t = t - (delta * (t - 0.5 * delta) - np.log(width) - (width - 1) * log_ndtr(t)) / (delta - (width - 1) * slope)
    tail = delta * (t - 0.5 * delta)
    first = np.linspace(tail - 0.02, np.full_like(tail, np.log(_LOWEST)), _CLASSES, axis=1)
    levels = np.concatenate([tail[:, None], first], axis=1)
    for _ in range(_ITERATIONS):
        wanted = np.log(np.maximum(_heights(delta, levels, width), 1e-12))
        levels[:, 1:] += _DAMPING * (wanted - levels[:, 1:])
        for m in range(1, _CLASSES + 1):
            levels[:, m] = np.minimum(levels[:, m], levels[:, m - 1] - 1e-6)
    return np.concatenate([levels, levels[-1:]])
