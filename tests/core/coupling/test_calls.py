"""How the rules behave as functions: company, edge cases, names."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sampler_core import InputError, coupling
from sampler_core.coupling import ranked

pytestmark = pytest.mark.filterwarnings("error")
ODD = [0.0, 1e-12, 1e-6, 0.3, 1.0, 40.0, 1e4, 1e30, math.inf, math.nan]


@pytest.mark.parametrize("name", coupling.NAMES)
@pytest.mark.parametrize("width", [1, 2, 4, 16])
def test_a_verification_does_not_depend_on_its_company(name, width, shared, streams):
    rule, n = coupling.get(name), 60
    delta = 2.5 * shared(n, 1).uniform(1)[:, 0]
    u = shared(n, 2).normal(width)
    seeds = list(range(100, 100 + n))
    chosen = rule.select(delta, u, streams(seeds))
    y = rule.residual(delta, u, streams(seeds))
    assert 0 < int((chosen < 0).sum()) < n
    for i in range(n):
        alone = slice(i, i + 1)
        assert np.array_equal(rule.select(delta[alone], u[alone], streams(seeds[alone])), chosen[alone])
        assert np.array_equal(rule.residual(delta[alone], u[alone], streams(seeds[alone])), y[alone])


@pytest.mark.parametrize("name", coupling.NAMES)
@pytest.mark.parametrize("u", [-40.0, -3.0, 0.0, 3.0, 40.0])
def test_equal_kernels_accept_the_first_candidate(name, u, constant):
    delta = np.array([0.0, 1e-12, 9e-10])
    all_u = np.full((3, 4), u)
    assert coupling.get(name).select(delta, all_u, constant(3, 1 - 2**-53)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", coupling.NAMES)
@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53])
def test_a_delta_without_value_rejects_and_leaves_no_nan(name, uniform, constant, shared):
    delta = np.array([math.nan, math.inf])
    u = shared(2, 3).normal(3)
    rule = coupling.get(name)
    assert rule.select(delta, u, constant(2, uniform)).tolist() == [-1, -1]
    assert np.isfinite(rule.residual(delta, u, shared(2, 4))).all()


@pytest.mark.parametrize("name", coupling.NAMES)
@pytest.mark.parametrize("width", [1, 3, 16])
@pytest.mark.parametrize("u", [-40.0, 40.0, None])
def test_odd_values_give_valid_answers(name, width, u, constant, shared):
    n = len(ODD)
    delta = np.array(ODD)
    all_u = shared(n, 6).normal(width) if u is None else np.full((n, width), u)
    rule = coupling.get(name)
    for draws in (constant(n, 0.0), constant(n, 1 - 2**-53), shared(n, 7)):
        chosen = rule.select(delta, all_u, draws)
        assert chosen.dtype == np.int64 and chosen.shape == (n,)
        assert ((chosen >= -1) & (chosen < width)).all()
    y = rule.residual(delta[3:], all_u[3:], shared(n - 3, 8))
    assert y.dtype == np.float64 and np.isfinite(y).all()
    if name != "reflection" and (name, width) != ("optimal", 1):  # the mirror image lies where u puts it
        assert (abs(y - delta[3:])[:-2] < 7).all()


@pytest.mark.parametrize("name", coupling.NAMES)
def test_far_kernels_never_accept(name, shared):
    n = 1000
    delta = np.full(n, 1e4)
    u = shared(n, 9).normal(4)
    assert (coupling.get(name).select(delta, u, shared(n, 10)) == -1).all()
    y = coupling.get(name).residual(delta, u, shared(n, 11)) - delta
    assert abs(float(y.mean())) < 0.2 and abs(float(y.std()) - 1) < 0.2


@pytest.mark.parametrize("name", coupling.NAMES)
def test_a_certain_rejection_is_never_undone_by_a_uniform_of_zero(name, constant):
    """U comes from [0, 1): with p = 0 even U = 0 rejects."""
    delta = np.full(2, 60.0)
    u = np.full((2, 3), -40.0)
    assert coupling.get(name).select(delta, u, constant(2, 0.0)).tolist() == [-1, -1]


@pytest.mark.parametrize("name", ["greedy", "rass", "optimal"])
def test_an_empty_residual_ends(name, shared):
    """Rejections that float64 cannot tell from impossible still return a draw near the target."""
    delta = np.array([1e-12, 2e-9])
    y = coupling.get(name).residual(delta, shared(2, 12).normal(8), shared(2, 13))
    assert (abs(y) < 7).all()


@pytest.mark.parametrize("width", [2, 4, 16])
def test_rank_weights_are_odds(width):
    delta = np.array([0.0, 1e-6, 0.03, 0.5, 1.0, 5.99, 6.0, 7.0, 1e4])
    weights = ranked.rank_weights(delta, width)
    assert weights.shape == (len(delta), width) and (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    assert weights[0].tolist() == pytest.approx([1 / width] * width)
    assert weights[-1].tolist() == [0.0] * (width - 1) + [1.0]


def test_rules_are_found_by_name():
    assert coupling.NAMES == ("reflection", "greedy", "rass", "optimal", "block")
    for name in coupling.NAMES:
        assert coupling.get(name).name == name


@pytest.mark.parametrize("name", ["Greedy", "", "best", None, ["rass"]])
def test_an_unknown_rule_lists_the_known_ones(name):
    with pytest.raises(InputError, match="reflection, greedy, rass, optimal, block"):
        coupling.get(name)
