import numpy as np
import pytest
import torch
from scipy.stats import kstest

from sampler_core.noise import Streams, derive, image_seed


def streams(seeds: list[int], draws: list[bool] | None = None) -> Streams:
    return Streams(seeds, torch.zeros(len(seeds), 4, 8, 8), draws or [True] * 6)


def at(b: int, i: int) -> tuple[np.ndarray, np.ndarray]:
    return np.array([b]), np.array([i])


def test_child_one_is_the_stock_noise() -> None:
    """One generator, seeded with seed + 1 on the CPU, one draw per noisy step: ComfyUI's draws for a single image."""
    draws = [True, False, True, True, True, True]
    noise = streams([7], draws)
    generator = torch.Generator().manual_seed(8)
    for i, drawn in enumerate(draws):
        expected = torch.randn(1, 4, 8, 8, generator=generator) if drawn else torch.zeros(1, 4, 8, 8)
        assert torch.equal(noise.normal(*at(0, i), 0), expected)


def test_a_noise_stays_until_it_is_spent_and_never_returns() -> None:
    noise = streams([7])
    kept = noise.normal(*at(0, 3), 0), noise.normal(*at(0, 3), 2)
    noise.spend(0, 3)
    assert torch.equal(noise.normal(*at(0, 3), 0), kept[0]) and torch.equal(noise.normal(*at(0, 3), 2), kept[1])
    noise.spend(0, 4)
    for child in (0, 2):
        with pytest.raises(AssertionError, match="spent"):
            noise.normal(*at(0, 3), child)


def test_order_of_asking_does_not_matter() -> None:
    a, b = streams([7]), streams([7])
    late = a.normal(*at(0, 5), 0)
    for i in range(5):
        b.normal(*at(0, i), 1)
        b.normal(*at(0, i), 0)
    assert torch.equal(late, b.normal(*at(0, 5), 0))


def test_streams_do_not_know_their_company() -> None:
    together = streams([3, 4, 5]).normal(np.arange(3), np.array([2, 0, 2]), 1)
    for b, i in enumerate((2, 0, 2)):
        assert torch.equal(together[b : b + 1], streams([3 + b]).normal(*at(0, i), 1))


def test_streams_are_unrelated() -> None:
    """Initial noise, child 1, siblings, images and draws: no two are equal or correlated (|r| < 5 standard errors)."""
    seed = 11
    noise = Streams([seed, image_seed(seed, 1)], torch.zeros(2, 4, 32, 32), [True] * 3)
    found = [torch.randn(1, 4, 32, 32, generator=torch.Generator().manual_seed(seed))]
    found += [noise.normal(*at(b, i), c) for b in range(2) for i in range(3) for c in range(3)]
    flat = torch.cat(found).flatten(1)
    correlation = torch.corrcoef(flat) - torch.eye(len(flat))
    assert correlation.abs().max() < 5 / flat.shape[1] ** 0.5
    assert kstest(flat.flatten().numpy(), "norm").pvalue > 1e-4


def test_draws_are_uniform_over_keys() -> None:
    """First draws of 20,000 keyed streams; false alarm 1e-4, seeded."""
    noise = streams([5])
    steps = np.arange(20_000)
    draws = noise.draws(np.zeros(len(steps), np.int64), steps, "accept")
    first = draws.uniform(1)[:, 0]
    assert kstest(first, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 4 / len(first) ** 0.5
    again = noise.draws(np.zeros(3, np.int64), steps[:3], "accept").uniform(1)[:, 0]
    assert (again == first[:3]).all()


def test_seeds() -> None:
    assert image_seed(9, 0) == 9 and image_seed(9, 1) != image_seed(9, 2)
    assert derive(1, "a", 2) != derive(1, "a", 3) != derive(2, "a", 3)
    assert 0 <= derive(2**64 - 1, "a") < 2**63


@pytest.mark.parametrize("advance", [1, 2, 3, 4])
def test_noises_of_one_call_do_not_disturb_each_other(advance: int) -> None:
    """Chains of two images, node after node, as they advance: every noise is the stock sampler's of its step."""
    depth, steps = 7, 40
    generators = [torch.Generator().manual_seed(seed + 1) for seed in (3, 4)]
    stock = [[torch.randn(4, 8, 8, generator=generator) for _ in range(steps)] for generator in generators]
    noise = streams([3, 4], [True] * steps)
    for first in range(0, steps - depth, advance):
        images, asked = np.tile([0, 1], depth), np.repeat(np.arange(first, first + depth), 2)
        for b, i, row in zip(images, asked, noise.normal(images, asked, 0), strict=True):
            assert torch.equal(row, stock[b][i])
        noise.spend(0, first + advance)
        noise.spend(1, first + advance)
