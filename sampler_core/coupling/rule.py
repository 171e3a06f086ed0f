"""What every acceptance rule offers, and the edge cases they all treat alike."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]

# Below this the two kernels agree to far more digits than a latent holds: the first candidate is taken.
DELTA_MIN = 1e-9


class Draws(Protocol):
    """Fresh random numbers for n verifications, float64; row i depends on verification i alone."""

    def uniform(self, k: int) -> Array: ...  # [n, k] in [0, 1)

    def normal(self, k: int) -> Array: ...  # [n, k]

    def only(self, rows: Array) -> Draws: ...  # what these verifications would be given next


class Rule(Protocol):
    """A coupling of K iid draft candidates with one draw from the target.

    delta [n] is the distance of the two means in units of the kernel's spread (>= 0), u [n, K] the candidates'
    coordinates in drafting order; both float64. Rows are independent verifications.
    A delta that is not finite never accepts, and its residual is a finite number without meaning.
    The rules work in numpy: on a dozen numbers its calls cost a tenth of torch's.
    """

    name: str

    def select(self, delta: Array, u: Array, draws: Draws) -> Array:
        """Index of the accepted candidate, 0…K-1, or -1 if all are rejected: int64 [n]."""
        ...

    def residual(self, delta: Array, u: Array, draws: Draws) -> Array:
        """Coordinate to use after a rejection (target's law given that all were rejected): [n]."""
        ...


def usable(delta: Array) -> Array:
    """delta [n] with values that are not finite replaced by 1, so that no nan spreads through the formulas."""
    return np.where(np.isfinite(delta), delta, 1.0)


def settle(delta: Array, chosen: Array) -> Array:
    """Applies the edge cases to chosen [n]: equal kernels take candidate 0, a non-finite delta rejects."""
    chosen = np.where(delta < DELTA_MIN, 0, chosen)
    return np.where(np.isfinite(delta), chosen, -1)


def likelihood(delta: Array, u: Array) -> Array:
    """The likelihood ratio target/draft at coordinate u: exp(delta·u − delta²/2), without inf − inf, at most e⁷⁰⁰."""
    return np.exp(np.minimum(delta * (u - 0.5 * delta), 700.0))


def crossing(delta: Array, log_ratio: Array) -> Array:
    """The coordinate at which the likelihood ratio is exp(log_ratio)."""
    delta = np.maximum(delta, DELTA_MIN)
    return log_ratio / delta + 0.5 * delta
