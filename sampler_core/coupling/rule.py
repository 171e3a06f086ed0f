"""What every acceptance rule offers, and the edge cases they all treat alike."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

# Below this the two kernels agree to far more digits than a latent holds: the first candidate is taken.
DELTA_MIN = 1e-9


class Draws(Protocol):
    """Fresh random numbers for n verifications, float64 on the CPU; row i depends on verification i alone."""

    def uniform(self, k: int) -> Tensor: ...  # [n, k] in [0, 1)

    def normal(self, k: int) -> Tensor: ...  # [n, k]


class Rule(Protocol):
    """A coupling of K iid draft candidates with one draw from the target.

    delta [n] is the distance of the two means in units of the kernel's spread (>= 0), u [n, K] the candidates'
    coordinates in drafting order; both float64 on the CPU. Rows are independent verifications.
    A delta that is not finite never accepts, and its residual is a finite number without meaning.
    """

    name: str

    def select(self, delta: Tensor, u: Tensor, draws: Draws) -> Tensor:
        """Index of the accepted candidate, 0…K-1, or -1 if all are rejected: int64 [n]."""
        ...

    def residual(self, delta: Tensor, u: Tensor, draws: Draws) -> Tensor:
        """Coordinate to use after a rejection (target's law given that all were rejected): [n]."""
        ...


def usable(delta: Tensor) -> Tensor:
    """delta [n] with values that are not finite replaced by 1, so that no nan spreads through the formulas."""
    return torch.where(torch.isfinite(delta), delta, 1.0)


def settle(delta: Tensor, chosen: Tensor) -> Tensor:
    """Applies the edge cases to chosen [n]: equal kernels take candidate 0, a non-finite delta rejects."""
    chosen = chosen.masked_fill(delta < DELTA_MIN, 0)
    return chosen.masked_fill(~torch.isfinite(delta), -1)


def log_ratio(delta: Tensor, u: Tensor) -> Tensor:
    """ln of the likelihood ratio target/draft at coordinate u: delta·u − delta²/2, without inf − inf."""
    return delta * (u - 0.5 * delta)
