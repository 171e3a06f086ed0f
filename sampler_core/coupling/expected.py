"""How often a rule accepts, for planning: closed forms where there are any, a quadrature for RASS."""

from __future__ import annotations

import math
from functools import lru_cache

import torch

from .bound import bound
from .greedy import _levels
from .ranked import log_selected, rank_weights


@lru_cache(maxsize=4096)
def expected_acceptance(rule: str, delta: float, width: int) -> float:
    """The probability that `rule` accepts one of `width` candidates at this delta; reflection looks at one only."""
    one = torch.tensor([delta], dtype=torch.float64)
    if rule == "greedy":
        return 1.0 - float(_levels(one, width)[1][0, -1])
    if rule == "rass" and width > 1:
        u = torch.linspace(-9.0, 9.0 + delta, 721, dtype=torch.float64)[None]
        draft = log_selected(u, rank_weights(one, width)) - 0.5 * u**2
        target = -0.5 * (u - delta) ** 2
        return float(torch.minimum(draft, target).exp().sum() * (u[0, 1] - u[0, 0]) / math.sqrt(2 * math.pi))
    return bound(delta, width if rule != "reflection" else 1)
