"""The most that any rule can accept."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr, ndtr

from ..errors import InputError


def bound(delta: float, K: int) -> float:
    """alpha* = min over c of Phi(c − delta) + 1 − Phi(c)^K: no rule with K iid candidates accepts more often.

    The minimum cut of the coupling problem; for Gaussians the cut is a half-line. Good to 1e-9.
    InputError unless delta is finite and >= 0 and K >= 1.
    """
    if not (math.isfinite(delta) and delta >= 0):
        raise InputError(f"delta: {delta!r} is not a distance; give a finite number of at least 0")
    if K < 1:
        raise InputError(f"K: {K!r} candidates; give at least 1")
    # The minimum lies left of delta + 9 and right of -9; beyond 30 the accepted mass is 0 in float64.
    low, high = -9.0, min(delta, 30.0) + 9.0
    value = 1.0
    for _ in range(3):
        c = np.linspace(low, high, 1001)
        cut = ndtr(c - delta) - np.expm1(K * log_ndtr(c))
        best = int(cut.argmin())
        value = float(cut[best])
        low, high = float(c[max(best - 1, 0)]), float(c[min(best + 1, 1000)])
    return min(value, 1.0)
