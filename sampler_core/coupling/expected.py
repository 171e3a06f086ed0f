"""How often a rule accepts, for planning: closed forms where there are any, a quadrature for RASS."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from .bound import bound
from .greedy import _levels
from .ranked import density, rank_weights
from .rule import likelihood


@lru_cache(maxsize=4096)
def expected_acceptance(rule: str, delta: float, width: int) -> float:
    """The probability that `rule` accepts one of `width` candidates at this delta; reflection and block look at one.

    Of block it is that of a chain of one step: the steps of a longer chain pass more often.
    """
    one = np.array([delta])
    if rule == "greedy":
        return 1.0 - float(_levels(one, width)[1][0, -1])
    if rule == "rass" and width > 1:
        u = np.linspace(-9.0, 9.0 + delta, 721)[None]
        taken = np.minimum(density(u, rank_weights(one, width)), likelihood(one[:, None], u)) * np.exp(-0.5 * u**2)
        return float(taken.sum() * (u[0, 1] - u[0, 0]) / math.sqrt(2 * math.pi))
    return bound(delta, 1 if rule in ("reflection", "block") else width)


def chain_passes(deltas: Sequence[float]) -> np.ndarray:
    """The probability that block verification commits each step of a chain, to about 1 %: E P_i, over 4,096 chains."""
    u = np.random.default_rng(0).standard_normal((len(deltas), 4096))
    log_p, passes = np.zeros(4096), np.zeros(len(deltas))
    for i, delta in enumerate(deltas):
        log_p = np.minimum(0.0, log_p + delta * (u[i] - 0.5 * delta))
        passes[i] = np.exp(log_p).mean()
    return passes
