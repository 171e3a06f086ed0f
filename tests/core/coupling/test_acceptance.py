"""Acceptance against closed forms, the published table and the bound that no rule can pass."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from sampler_core import InputError, coupling
from sampler_core.coupling import optimal, ranked

N = 1_500_000  # standard error at most 0.00041
# delta, K: reflection, greedy (D-GRS), rass, the bound, which is also what "optimal" accepts.
# Papers: arXiv 2501.05370, 2609.17691, 2610.02251.
TABLE = {
    (0.25, 2): (0.9005, 0.9379, 0.9804, 0.9997),
    (0.5, 2): (0.8026, 0.8682, 0.9406, 0.9705),
    (0.5, 4): (0.8026, 0.9182, 0.9772, 0.9992),
    (1.0, 2): (0.6171, 0.7136, 0.7903, 0.7920),
    (1.0, 4): (0.6171, 0.7978, 0.8959, 0.9242),
    (1.0, 8): (0.6171, 0.8643, 0.9464, 0.9817),
    (2.0, 4): (0.3173, 0.4968, 0.5460, 0.5464),
}
RULES = ("reflection", "greedy", "rass", "optimal")


def accepted(name: str, delta: float, width: int, shared, n: int = N, seed: int = 5) -> float:
    rule, count, part = coupling.get(name), 0, 250_000
    for start in range(0, n, part):
        u = shared(part, seed + start).normal(width)
        chosen = rule.select(np.full(part, delta), u, shared(part, seed + start + 1))
        count += int((chosen >= 0).sum())
    return count / n


@pytest.mark.parametrize(("delta", "width"), TABLE)
@pytest.mark.parametrize("name", RULES)
def test_published_acceptance(name, delta, width, shared):
    measured = accepted(name, delta, width, shared)
    assert measured == pytest.approx(TABLE[delta, width][RULES.index(name)], abs=0.002)
    assert measured <= coupling.bound(delta, width) + 5 * math.sqrt(0.25 / N)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("delta", [0.1, 1.0, 4.0])
def test_one_candidate_reaches_the_maximal_coupling(name, delta, shared):
    assert accepted(name, delta, 1, shared) == pytest.approx(2 * stats.norm.cdf(-delta / 2), abs=0.002)


def overlap(delta: float, selected) -> float:
    """The mass of min(target, g) by quadrature; selected(u [m], ratio [m]) is g/phi, g the selected density."""
    u = np.linspace(-9, delta + 9, 20_001)
    ratio = np.exp(delta * u - delta**2 / 2)
    g = selected(u, ratio)
    draft = np.exp(-u * u / 2) * (u[1] - u[0]) / math.sqrt(2 * math.pi)
    assert float((draft * g).sum()) == pytest.approx(1, abs=2e-3)  # g jumps at the edge of its tail
    return float((draft * np.minimum(g, ratio)).sum())


@pytest.mark.parametrize("width", [2, 3, 4, 5, 6, 7, 8, 16])
def test_optimal_reaches_the_bound_and_never_falls_below_rass(width):
    for delta in (1e-6, 0.001, 0.01, 0.03, *(0.05 + 0.0367 * i for i in range(83)), 3.5, 4.7, 6.0, 6.5, 8.0, 12.0):
        one = np.array([delta])
        levels, heights = optimal.tent(one, width)
        weights = ranked.rank_weights(one, width)

        def tent(u, ratio, levels=levels, heights=heights):
            return optimal.density(u[None], ratio[None], levels, heights, width)[0]

        def order(u, ratio, weights=weights):
            return ranked.density(u[None], weights)[0]

        reached, best = overlap(delta, tent), coupling.bound(delta, width)
        assert best - 2e-4 < reached < best + 1e-5
        assert reached > overlap(delta, order) - 1e-5


@pytest.mark.parametrize("width", [2, 3, 5, 8])
def test_optimal_reaches_the_bound_in_practice(width, shared):
    """The selection itself, not its density, at deltas from 0.1 to 3, each of 30 with 50,000 verifications."""
    deltas = [0.1 * i for i in range(1, 31)]
    delta = np.tile(deltas, N // 30)
    chosen = coupling.get("optimal").select(delta, shared(N, 61).normal(width), shared(N, 62))
    each = (chosen >= 0).reshape(-1, 30).mean(axis=0)
    best = np.array([coupling.bound(d, width) for d in deltas])
    assert float((each - best).mean()) == pytest.approx(0, abs=0.001)
    assert (abs(each - best) < 4.5 * np.sqrt(best * (1 - best) * 30 / N) + 0.0005).all()


@pytest.mark.parametrize(("delta", "width"), [(0.3, 3), (1.0, 4), (2.5, 6)])
def test_greedy_accepts_what_it_covers(delta, width, shared):
    """1 - G_{K+1}, each G by quadrature of (q - covered p)+ instead of the closed form."""
    covered = 0.0
    left = 1.0
    for _ in range(width):
        covered += left

        def lost(u: float, covered: float = covered) -> float:
            return max(stats.norm.pdf(u - delta) - covered * stats.norm.pdf(u), 0.0)

        left = integrate.quad(lost, -9, delta + 9, limit=400, points=[math.log(covered) / delta + delta / 2])[0]
    assert accepted("greedy", delta, width, shared) == pytest.approx(1 - left, abs=0.002)


@pytest.mark.parametrize("width", [1, 2, 5, 16])
@pytest.mark.parametrize("delta", [0.0, 0.01, 0.4, 1.0, 3.0, 9.0])
def test_bound_is_the_smallest_cut(delta, width):
    def cut(c: float) -> float:
        return stats.norm.cdf(c - delta) - math.expm1(width * stats.norm.logcdf(c))

    starts = [-6 + 0.05 * i for i in range(int(20 * (12 + delta)))]
    best = min(starts, key=cut)
    found = optimize.minimize_scalar(cut, bounds=(best - 0.1, best + 0.1), method="bounded", options={"xatol": 1e-10})
    assert coupling.bound(delta, width) == pytest.approx(min(found.fun, 1.0), abs=1e-9)


def test_bound_of_the_table_and_of_far_kernels():
    for (delta, width), row in TABLE.items():
        assert coupling.bound(delta, width) == pytest.approx(row[3], abs=0.0001)
    assert coupling.bound(1e4, 16) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("delta", "width"), [(-1.0, 2), (math.nan, 2), (math.inf, 2), (1.0, 0)])
def test_bound_refuses_what_has_no_meaning(delta, width):
    with pytest.raises(InputError, match="delta" if width else "K"):
        coupling.bound(delta, width)
