"""Every kernel against the closed forms of the papers, and what a schedule may not be."""

import numpy as np
import pytest
import torch
from chains import plain_law, schedule

from sampler_core import InputError, kernels


@pytest.mark.parametrize("eta,s_noise", [(1.0, 1.0), (0.6, 1.0), (1.0, 1.1), (0.3, 0.9)])
@pytest.mark.parametrize("kernel", kernels.FAMILIES)
def test_law_is_the_closed_form(kernel: str, eta: float, s_noise: float) -> None:
    sigmas = schedule(20, kernel.startswith("flow")).double()
    chain = kernels.build(kernel, sigmas, eta, s_noise)
    one, zero = torch.ones(1, 1).double(), torch.zeros(1, 1).double()
    for i in range(chain.steps):
        c = chain.at(np.array([i]), 2)

        def step(x: torch.Tensor, d: torch.Tensor, z: torch.Tensor, c: kernels.Coefficients = c) -> float:
            return float(chain.perturb(c, chain.mean(c, x, d), z))

        a, b, r = plain_law(kernel, sigmas, i, eta, s_noise)
        assert step(one, zero, zero) == pytest.approx(a, abs=1e-6 * max(1, abs(a)))
        assert step(zero, one, zero) == pytest.approx(b, abs=1e-6)
        assert step(zero, zero, one) == pytest.approx(r, abs=1e-6 * max(1, r))
        assert (chain.spread[i] > 0) == (r > 0)


@pytest.mark.parametrize("kernel", kernels.FAMILIES)
def test_rows_of_mixed_steps_equal_single_rows(kernel: str) -> None:
    chain = kernels.build(kernel, schedule(9, kernel.startswith("flow")))
    steps = np.array([0, 5, 8, 5, 2])
    x, d, z = torch.randn(3, 5, 2, 3, 4, generator=torch.Generator().manual_seed(1))
    c = chain.at(steps, x.ndim)
    together = chain.perturb(c, chain.mean(c, x, d), z)
    for row, i in enumerate(steps):
        c = chain.at(np.array([i]), x.ndim)
        alone = chain.perturb(c, chain.mean(c, x[row : row + 1], d[row : row + 1]), z[row : row + 1])
        assert torch.equal(alone[0], together[row])


def test_the_spread_is_the_unit_of_the_mean() -> None:
    """Moving the mean by `spread` along e and moving the noise by e are the same step: delta is measured in it."""
    for kernel in kernels.FAMILIES:
        chain = kernels.build(kernel, schedule(9, kernel.startswith("flow")).double(), 0.8, 1.3)
        for i in range(chain.steps - 1):
            c = chain.at(np.array([i]), 2)
            m = torch.randn(1, 6, generator=torch.Generator().manual_seed(i)).double()
            moved = chain.perturb(c, m + chain.spread[i], torch.zeros_like(m))
            assert torch.allclose(moved, chain.perturb(c, m, torch.ones_like(m)), atol=1e-12)


@pytest.mark.parametrize(
    "sigmas,words",
    [
        ([0.5, 0.7, 0.0], "rises at step 0"),
        ([1.0, 0.0, 0.0], "positive before the last"),
        ([1.0, float("nan"), 0.0], "finite"),
        ([14.6, 1.0, 0.0], "flow model's schedule"),
        ([1.0, 1.0, 0.0], "repeated sigmas"),
    ],
)
def test_bad_schedules_are_named(sigmas: list[float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        kernels.build("flow_ancestral", torch.tensor(sigmas))


def test_bad_numbers_are_named() -> None:
    sigmas = schedule(4, True)
    with pytest.raises(InputError, match="eta: -1"):
        kernels.build("flow_ancestral", sigmas, -1.0)
    with pytest.raises(InputError, match="s_noise"):
        kernels.build("flow_ancestral", sigmas, 1.0, float("nan"))
    with pytest.raises(InputError, match="euler"):
        kernels.build("euler", sigmas)
