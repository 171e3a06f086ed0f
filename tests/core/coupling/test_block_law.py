"""Block verification of one chain: the joint law of its steps, what it commits, and planted faults.

Seeded. About 170 p-values are held against 5e-6: a correct rule would fail under fewer than 1 in 1000 seeds.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from sampler_core.coupling import Block, block

N = 200_000
ALARM = 5e-6


def worst(rule, shared, delta: float, length: int, seed: int = 1) -> float:
    """The smallest p-value of a chain in two dimensions whose deltas and directions depend on the states before.

    Step i moves the state by z_i, which the target wants from N(delta_i e_i, I): what is left, z_i - delta_i e_i, must
    be independent standard normals, whatever was committed, redrawn, or drawn after the stop.
    """
    drawn = shared(N, seed)
    z = drawn.normal(2 * length).reshape(N, length, 2)
    here = np.zeros((N, 2))
    deltas, along, u = np.empty((N, length)), np.empty((N, length, 2)), np.empty((N, length))
    for i in range(length):
        angle = np.arctan(here[:, 1])
        along[:, i] = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        deltas[:, i] = delta * (0.5 + ndtr(here[:, 1])) if i else delta
        u[:, i] = (z[:, i] * along[:, i]).sum(axis=1)
        here = here + z[:, i]
    taken, log_p = rule.judge(deltas, u, np.full(N, length), drawn.uniform(length))
    stopped = np.flatnonzero(taken < length)
    at = taken[stopped]
    y = rule.rest(deltas[stopped, at], log_p[stopped], shared(len(stopped), seed + 1))
    z[stopped, at] += (y - u[stopped, at])[:, None] * along[stopped, at]
    left = z - deltas[..., None] * along
    beyond = np.arange(length) > taken[:, None]
    left[beyond] = shared(int(beyond.sum()), seed + 2).normal(2)

    flat = left.reshape(N, -1)
    across = np.stack([-along[..., 1], along[..., 0]], axis=-1)
    p = [
        stats.kstest((left[:, i] * e[:, i]).sum(axis=1), "norm").pvalue for i in range(length) for e in (along, across)
    ]
    p.append(stats.kstest(flat.sum(axis=1) / math.sqrt(2 * length), "norm").pvalue)
    p.append(stats.kstest((flat**2).sum(axis=1), "chi2", args=(2 * length,)).pvalue)
    if length > 1:  # neighbours together
        p.append(stats.kstest((left[:, 0] * left[:, 1]).sum(axis=1), "laplace").pvalue)
    return min(p)


@pytest.mark.parametrize("length", [1, 2, 3, 6])
@pytest.mark.parametrize("delta", [0.2, 0.6, 1.2, 2.5])
def test_joint_law(delta, length, shared):
    assert worst(Block(), shared, delta, length) > ALARM


class Smallest(Block):
    """Commits up to the first step at which the chain may stop."""

    def judge(self, delta, u, drafted, uniform):
        taken, log_p = np.zeros(len(delta), dtype=np.int64), np.zeros(len(delta))
        for steps in range(1, delta.shape[1] + 1):
            first = np.minimum(drafted, steps)
            found, log = super().judge(
                delta, u, drafted, np.where(np.arange(delta.shape[1]) < first[:, None], uniform, 1)
            )
            new = (taken == 0) & (found > 0)
            taken[new], log_p[new] = found[new], log[new]
        return taken, log_p


class WrongResidual(Block):
    """Redraws from (q - p)+, whatever the ratio up to the stop."""

    def rest(self, delta, log_p, draws):
        return super().rest(delta, np.zeros_like(log_p), draws)


class NoCap(Block):
    """Lets an early surplus pay in full for later steps: P may exceed 1."""

    def judge(self, delta, u, drafted, uniform):
        log_rho = np.cumsum(delta * (u - 0.5 * delta), axis=1)
        passes = np.log(np.maximum(uniform, 1e-300)) < log_rho
        taken = np.max(np.where(passes, np.arange(1, delta.shape[1] + 1), 0), axis=1)
        log = np.concatenate([np.zeros((len(delta), 1)), np.minimum(log_rho, 0)], axis=1)
        return taken, log[np.arange(len(delta)), taken]


@pytest.mark.parametrize("fault", [Smallest, WrongResidual, NoCap])
def test_a_faulty_rule_is_noticed(fault, shared):
    assert worst(fault(), shared, 1.2, 3) < ALARM


def test_a_look_at_the_step_itself_instead_of_the_next_is_noticed(shared, monkeypatch):
    """Planted: h_i from the delta of step i, not of step i + 1."""
    honest = block._left
    monkeypatch.setattr(block, "_left", lambda log_p, delta: honest(log_p, np.roll(delta, 1, axis=1)))
    assert worst(Block(), shared, 1.2, 3) < ALARM


def test_a_noise_beyond_the_stop_has_been_looked_at(shared):
    """Why it may not be used again: given the stop, it is no longer standard normal."""
    u = shared(N, 3).normal(2)
    delta = np.full((N, 2), 1.5)
    taken, _ = Block().judge(delta, u, np.full(N, 2), shared(N, 4).uniform(2))
    assert stats.kstest(u[taken == 0, 1], "norm").pvalue < ALARM


def reference(delta: float, length: int, n: int = 400_000) -> tuple[float, float]:
    """Mean steps of a call, as a block and one by one, by brute force in plain numpy: P(committed >= i) = E P_i."""
    generator = np.random.default_rng(5)
    p, passes, block_steps, single_steps = np.ones(n), np.ones(n), 1.0, 1.0
    for _ in range(length):
        u = generator.standard_normal(n)
        ratio = np.exp(-0.5 * (u - delta) ** 2) / np.exp(-0.5 * u**2)
        p = np.minimum(1.0, p * ratio)
        passes = passes * np.minimum(1.0, ratio)
        block_steps += p.mean()
        single_steps += passes.mean()
    return block_steps, single_steps


@pytest.mark.parametrize("length", [1, 2, 4, 8])
@pytest.mark.parametrize("delta", [0.25, 0.5, 1.0, 2.0])
def test_steps_of_a_call(delta, length, shared):
    drawn = shared(N, 7)
    u, uniform = drawn.normal(length), drawn.uniform(length)
    taken, _ = Block().judge(np.full((N, length), delta), u, np.full(N, length), uniform)
    as_block, single = reference(delta, length)
    assert 1 + taken.mean() == pytest.approx(as_block, rel=0.005)
    assert single == pytest.approx(sum((2 * ndtr(-delta / 2)) ** i for i in range(length + 1)), rel=0.005)
    if length > 2:
        assert 1.035 < (1 + taken.mean()) / single < 1.225


@pytest.mark.parametrize("name", ["whole", "alone"])
def test_chains_of_several_lengths_do_not_know_each_other(name, shared):
    n, longest = 300, 6
    drawn = shared(n, 9)
    delta, u = 2 * drawn.uniform(longest), drawn.normal(longest)
    uniform, drafted = drawn.uniform(longest), np.arange(n) % longest + 1
    together = Block().judge(delta, u, drafted, uniform)
    assert (together[0] <= drafted).all() and (together[0] == drafted).any()
    for i in range(n):
        some = np.s_[i : i + 1, : (longest if name == "whole" else drafted[i])]
        alone = Block().judge(delta[some], u[some], drafted[i : i + 1], uniform[some])
        assert (alone[0][0], alone[1][0]) == (together[0][i], together[1][i])


def test_equal_kernels_commit_everything_and_unmeasured_ones_end_the_chain(shared):
    u, uniform = shared(1000, 10).normal(4), shared(1000, 11).uniform(4)
    drafted = np.full(1000, 4)
    assert (Block().judge(np.full((1000, 4), 1e-12), u, drafted, uniform)[0] == 4).all()
    for odd in (np.nan, np.inf):
        delta = np.full((1000, 4), 0.3)
        delta[:, 2] = odd
        taken, log_p = Block().judge(delta, u, drafted, uniform)
        assert taken.max() == 2 and np.isfinite(log_p).all()
        # As long as a chain of two: what lies behind is never taken.
        assert taken.mean() == pytest.approx(reference(0.3, 2)[0] - 1, abs=0.06)
