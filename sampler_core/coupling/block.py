"""Block verification: judges the drafted steps of a chain together instead of one after the other."""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr, ndtr

from .residual import draw_residual
from .rule import DELTA_MIN, Array, Draws, crossing, settle, usable


class Block:
    """Commits the longest prefix of a chain that the ratios of all its steps allow.

    P_0 = 1, P_i = min(1, P_{i-1} rho_i): what the target asks for of the first i drafted states. A lucky step (rho > 1)
    pays for an unlucky one after it, so more steps pass than one by one. Source: arXiv 2606.13426, after Sun et al.
    (arXiv 2403.10444).

    A chain passes step i with probability P_i, given its first i states, and so it stops at step i + 1 with probability
    h_i (1 − P_{i+1}): of that step's noise this looks at u_{i+1} alone, and what lies across may be kept. The noises of
    the steps beyond do have a say in the stop: they are conditioned by it and must never be used again.

    As a `Rule` it judges a chain of one step: the first candidate, like reflection, with a residual of its own.
    """

    name = "block"

    def judge(self, delta: Array, u: Array, drafted: Array, uniform: Array) -> tuple[Array, Array]:
        """How many steps each chain commits [n], and ln P there [n], which `rest` needs.

        delta, u: [n, L] of the steps of each chain, of which the first `drafted` [n] exist; uniform: [n, L] in [0, 1).
        A delta that is not finite ends the chain before its step.
        """
        n, longest = delta.shape
        real = np.arange(longest) < drafted[:, None]
        finite = np.isfinite(delta)
        safe = np.where(finite, delta, 1.0)
        log_rho = np.where(safe < DELTA_MIN, 0.0, safe * (u - 0.5 * safe))
        log_rho = np.where(finite, log_rho, -np.inf)
        log_p = np.zeros((n, longest + 1))
        for i in range(longest):
            log_p[:, i + 1] = np.minimum(0.0, log_p[:, i] + log_rho[:, i])
        left = np.where(finite, _left(log_p[:, :-1], safe), np.exp(log_p[:, :-1]))
        keep = np.where(log_p[:, :-1] == 0.0, 1.0, left / np.maximum(left - np.expm1(log_p[:, :-1]), 1e-300))
        # h_1…h_L: `left` looks one step ahead, and the last step of a chain has nothing ahead.
        last = np.arange(1, longest + 1) == drafted[:, None]
        keep = np.where(last, np.exp(log_p[:, 1:]), np.concatenate([keep[:, 1:], np.zeros((n, 1))], axis=1))
        taken = np.max(np.where(real & (uniform < keep), np.arange(1, longest + 1), 0), axis=1, initial=0)
        return taken, log_p[np.arange(n), taken]

    def rest(self, delta: Array, log_p: Array, draws: Draws) -> Array:
        """Draw the coordinate of the step where a chain stopped from (P q − p)₊ normalised: [n]."""
        safe = np.where(np.isfinite(delta), delta, 1.0)
        taken = np.exp(np.minimum(-log_p, 700.0))[:, None]
        return draw_residual(safe, lambda v, ratio, rows: taken[rows], draws, crossing(safe, -log_p))

    def select(self, delta: Array, u: Array, draws: Draws) -> Array:
        """0 where candidate 0 is accepted, else -1: int64 [n]. Takes 1 uniform per row."""
        one = np.ones(len(delta), dtype=np.int64)
        taken, _ = self.judge(usable(delta)[:, None], u[:, :1], one, draws.uniform(1))
        return settle(delta, taken - 1)

    def residual(self, delta: Array, u: Array, draws: Draws) -> Array:
        """Draw from (q − p)₊ normalised: [n]."""
        return self.rest(usable(delta), np.zeros(len(delta)), draws)


def _left(log_p: Array, delta: Array) -> Array:
    """Z = ∫ (P q − p)₊ for q = N(delta, 1), p = N(0, 1): the density is positive above theta + delta/2."""
    delta = np.maximum(delta, DELTA_MIN)
    theta = -log_p / delta
    return np.maximum(np.exp(log_p + log_ndtr(0.5 * delta - theta)) - ndtr(-theta - 0.5 * delta), 0.0)
