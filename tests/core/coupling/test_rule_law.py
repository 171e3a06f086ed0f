"""Every rule returns the target's law, whatever delta and width; and these tests would notice if it did not.

Seeded. 146 p-values are held against 5e-6, so a correct rule would fail under fewer than 1 in 1000 seeds (8e-4).
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from sampler_core import coupling
from sampler_core.coupling import optimal, ranked

N = 200_000
ALARM = 5e-6
DELTAS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
WIDTHS = (1, 2, 3, 4, 8)
CASES = [
    (name, delta, width)
    for name in coupling.NAMES
    for delta in DELTAS
    for width in (WIDTHS if name != "reflection" else (1, 4))
]


def verify(rule, delta: np.ndarray, u: np.ndarray, shared, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The selected index and the coordinate of the new state, both [n]."""
    chosen = rule.select(delta, u, shared(len(u), seed + 1))
    y = u[np.arange(len(u)), np.maximum(chosen, 0)]
    lost = chosen < 0
    y[lost] = rule.residual(delta[lost], u[lost], shared(int(lost.sum()), seed + 2))
    return chosen, y


def candidates(shared, width: int, seed: int) -> np.ndarray:
    return shared(N, seed).normal(width)


def p_value(y: np.ndarray) -> float:
    return stats.kstest(y, "norm").pvalue


@pytest.mark.parametrize(("name", "delta", "width"), CASES)
def test_output_law(name, delta, width, shared):
    u = candidates(shared, width, 11)
    _, y = verify(coupling.get(name), np.full(N, delta), u, shared, 21)
    assert p_value(y - delta) > ALARM


@pytest.mark.parametrize("name", coupling.NAMES)
@pytest.mark.parametrize("width", [2, 16])
def test_output_law_with_a_delta_for_every_verification(name, width, shared):
    delta = 0.2 + 2.8 * shared(N, 31).uniform(1)[:, 0]
    u = candidates(shared, width, 32)
    _, y = verify(coupling.get(name), delta, u, shared, 33)
    assert p_value(y - delta) > ALARM
    # Not only on average over delta: also where it is small.
    small = delta < 0.5
    assert p_value((y - delta)[small]) > ALARM


@pytest.mark.parametrize("name", coupling.NAMES)
@pytest.mark.parametrize(("delta", "width"), [(0.7, 2), (1.3, 4)])
def test_the_rest_of_the_noise_is_untouched(name, delta, width, shared):
    """In two dimensions: the new state z_c, or z_1 + (y - u_1) e, is N(delta e, I)."""
    e = np.array([0.6, -0.8])
    z = shared(N, 41).normal(2 * width).reshape(N, width, 2)
    u = z @ e
    chosen, y = verify(coupling.get(name), np.full(N, delta), u, shared, 42)
    kept = z[np.arange(N), np.maximum(chosen, 0)]
    moved = z[:, 0] + (y - u[:, 0])[:, None] * e
    state = np.where((chosen >= 0)[:, None], kept, moved) - delta * e
    across = np.array([-e[1], e[0]])
    for direction in (across, (e + across) / 2**0.5, (e - across) / 2**0.5):
        assert p_value(state @ direction) > ALARM
    assert stats.kstest((state**2).sum(axis=1), "chi2", args=(2,)).pvalue > ALARM


def run(rule, shared, width: int = 2, delta: float = 1.0) -> float:
    _, y = verify(rule, np.full(N, delta), candidates(shared, width, 51), shared, 52)
    return p_value(y - delta)


@pytest.mark.parametrize("name", coupling.NAMES)
@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_a_residual_at_the_wrong_delta_is_noticed(name, factor, shared):
    class Fault(type(coupling.get(name))):
        def residual(self, delta, u, draws):
            return super().residual(factor * delta, u, draws)

    # Where rejections are common: a fault in one draw of ten would hide behind the other nine.
    assert run(Fault(), shared, delta=2.0) < ALARM


@pytest.mark.parametrize("name", coupling.NAMES)
def test_a_residual_straight_from_the_target_is_noticed(name, shared):
    class Fault(type(coupling.get(name))):
        def residual(self, delta, u, draws):
            return delta + draws.normal(1)[:, 0]

    assert run(Fault(), shared) < ALARM


@pytest.mark.parametrize("descending", [False, True])
def test_sorted_candidates_in_greedy_are_noticed(descending, shared):
    class Fault(type(coupling.get("greedy"))):
        def select(self, delta, u, draws):
            order = (-u if descending else u).argsort(axis=1)
            place = super().select(delta, np.take_along_axis(u, order, axis=1), draws)
            return np.where(place < 0, -1, order[np.arange(len(u)), place])

    assert run(Fault(), shared) < ALARM


def test_weights_that_look_at_the_draws_are_noticed(shared, monkeypatch):
    honest = ranked.rank_weights
    u = candidates(shared, 2, 51)

    def peeking(delta: np.ndarray, width: int) -> np.ndarray:
        weights = honest(delta, width)
        if len(delta) == N:
            weights[u[:, 0] > 1] = 1 / width
        return weights

    monkeypatch.setattr(ranked, "rank_weights", peeking)
    assert run(coupling.get("rass"), shared) < ALARM


def test_a_selected_density_of_other_weights_is_noticed(shared, monkeypatch):
    honest = ranked.density
    monkeypatch.setattr(ranked, "density", lambda u, weights: honest(u, np.roll(weights, 1, axis=1)))
    assert run(coupling.get("rass"), shared) < ALARM


@pytest.mark.parametrize("levels", [(1.7, 1.1, 0.3), (3.0, 2.9, 0.01), (1.1, 0.9)])
@pytest.mark.parametrize(("delta", "width"), [(0.6, 3), (1.5, 4)])
def test_any_levels_are_exact_in_optimal(levels, delta, width, shared, monkeypatch):
    """Far from the best ones, so that rejections and their residual carry much of the law."""
    table = np.log(np.array([levels] * 194))
    monkeypatch.setattr(optimal, "_log_levels", lambda width: table)
    assert run(coupling.get("optimal"), shared, width, delta) > ALARM


def test_levels_that_look_at_the_draws_are_noticed(shared, monkeypatch):
    honest = optimal.tent
    u = candidates(shared, 2, 51)

    def peeking(delta, width):
        levels, heights = honest(delta, width)
        other = honest(np.full_like(delta, 3.0), width)
        if len(delta) == N:
            levels[u[:, 0] > 0], heights[u[:, 0] > 0] = (part[u[:, 0] > 0] for part in other)
        return levels, heights

    monkeypatch.setattr(optimal, "tent", peeking)
    assert run(coupling.get("optimal"), shared) < ALARM


def test_heights_of_another_delta_are_noticed(shared, monkeypatch):
    """The levels may be those of another delta; what is computed from them may not."""
    honest = optimal._heights
    monkeypatch.setattr(optimal, "_heights", lambda delta, *rest: honest(1.2 * delta, *rest))
    assert run(coupling.get("optimal"), shared) < ALARM
