"""Reflection coupling: the maximal coupling of two Gaussians, for one candidate."""

from __future__ import annotations

import numpy as np

from .rule import Array, Draws, likelihood, settle, usable


class Reflection:
    """Accept candidate 0 or mirror it; other candidates are ignored.

    Accepts with probability 2·Phi(−delta/2), the most that one candidate allows.
    Source: De Bortoli et al., arXiv 2501.05370 (reflection maximal coupling).
    """

    name = "reflection"

    def select(self, delta: Array, u: Array, draws: Draws) -> Array:
        """0 where candidate 0 is accepted, else -1: int64 [n]. Takes 1 uniform per row."""
        accepted = draws.uniform(1)[:, 0] < likelihood(usable(delta), u[:, 0])
        return settle(delta, np.where(accepted, 0, -1))

    def residual(self, delta: Array, u: Array, draws: Draws) -> Array:
        """The mirror image delta − u of the rejected candidate: [n]. Takes no draws."""
        return usable(delta) - u[:, 0]
