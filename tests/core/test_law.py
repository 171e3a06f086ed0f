"""The final law of speculative chains against the plain chain in closed form: every kernel, rule, drafter and tree.

Two-sample Kolmogorov-Smirnov on the coordinates (and on x + y, x - y in two dimensions), n = 20,000 chains against
200,000 plain ones. About 700 p values, each held to 1e-6: the whole file raises a false alarm with probability below
1e-3 before seeding, and is seeded. The chains of a cell run as one batch; that an image is the same to the bit alone
and in a batch of three is tested for the same cells.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pytest
import torch
from chains import Mixture, Shared, guessing, mixture, plain_chain, schedule
from scipy.stats import ks_2samp

import sampler_core
from sampler_core import drafting, verification
from sampler_core.planning import Fixed
from sampler_core.tree import Tree

ALARM = 1e-6
N, REFERENCE, STEPS = 20_000, 200_000, 8
# A long chain with side branches of several lengths.
UNEVEN = Tree(((), (0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (0, 0, 1), (0, 0, 0, 0)))
TREES = [(1, 1, 1, 1), (2, 2, 1, 1), (8,), UNEVEN, "auto"]
CHAINS = [(1, 1, 1, 1), "auto"]
CELLS = [
    (rule, tree, drafter)
    for rule in sampler_core.coupling.NAMES
    for tree in (CHAINS if rule == "block" else TREES)
    for drafter in ("frozen", "model", "look_ahead")
    if (rule, drafter) != ("block", "look_ahead")
]
KERNELS = ["flow_ancestral", "ancestral", "ddpm", "flow_lcm", "lcm"]


@lru_cache
def reference(d: int, kernel: str, eta: float = 1.0, s_noise: float = 1.0) -> np.ndarray:
    flow = kernel.startswith("flow")
    generator = torch.Generator().manual_seed(17)
    sigmas = schedule(STEPS, flow)
    x = sigmas[0] * torch.randn(REFERENCE, d, generator=generator)
    return views(plain_chain(mixture(d, flow), x, sigmas, kernel, eta, s_noise, generator))


def views(x: torch.Tensor) -> np.ndarray:
    rows = [x[:, 0]] if x.shape[1] == 1 else [x[:, 0], x[:, 1], x[:, 0] + x[:, 1], x[:, 0] - x[:, 1]]
    return torch.stack(rows).numpy()


def start(n: int, d: int, kernel: str, seed: int) -> torch.Tensor:
    sigmas = schedule(STEPS, kernel.startswith("flow"))
    return sigmas[0] * torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def coarse(denoise: Mixture) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A draft model with a fault that error carry cannot take away."""
    return lambda x, s: 0.8 * denoise(x, s) + 0.1


def offered(tree: tuple[int, ...] | str | Tree, monkeypatch: pytest.MonkeyPatch) -> tuple[int, ...] | str:
    """What `sample` is given for a tree; a tree that has no widths takes the place of one that has."""
    if not isinstance(tree, Tree):
        return tree
    monkeypatch.setattr(sampler_core.engine, "_plan", lambda *inputs: Fixed(tree))
    return (tree.width,)


def worst(d: int, kernel: str, eta: float = 1.0, s_noise: float = 1.0, n: int = N, seed: int = 23, **choice) -> float:
    flow = kernel.startswith("flow")
    denoise = mixture(d, flow)
    if "noise" not in choice:
        widest = 8 if isinstance(choice["tree"], str) else max(choice["tree"], default=1)
        choice["noise"] = Shared((n, d), STEPS, widest, seed + 1)
    if choice["drafter"] == "model":
        choice["drafter"] = coarse(denoise)
    x, report = sampler_core.sample(
        denoise,
        start(n, d, kernel, seed),
        schedule(STEPS, flow),
        kernel=kernel,
        eta=eta,
        s_noise=s_noise,
        seed=0,
        **choice,
    )
    assert report.proposed > 0 or not choice["tree"]
    pairs = zip(views(x), reference(d, kernel, eta, s_noise), strict=True)
    return min(ks_2samp(ours, plain).pvalue for ours, plain in pairs)


@pytest.mark.parametrize(("rule", "tree", "drafter"), CELLS, ids=str)
@pytest.mark.parametrize("d", [1, 2])
def test_every_rule_tree_and_drafter(d: int, rule: str, tree, drafter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert worst(d, "flow_ancestral", rule=rule, tree=offered(tree, monkeypatch), drafter=drafter) > ALARM


@pytest.mark.parametrize(("rule", "tree", "drafter"), CELLS, ids=str)
def test_a_batch_of_three_is_its_images(rule: str, tree, drafter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    denoise, x, seeds = mixture(2, True), start(3, 2, "flow_ancestral", 5), [3, 4, 5]
    choice = {"kernel": "flow_ancestral", "rule": rule, "tree": offered(tree, monkeypatch), "rows": 6}
    choice["drafter"] = coarse(denoise) if drafter == "model" else drafter
    together, _ = sampler_core.sample(denoise, x, schedule(STEPS, True), seed=seeds, **choice)
    for b in range(3):
        alone, _ = sampler_core.sample(denoise, x[b : b + 1], schedule(STEPS, True), seed=seeds[b : b + 1], **choice)
        assert torch.equal(alone[0], together[b])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("drafter", ["frozen", "model"])
@pytest.mark.parametrize("rule", sampler_core.coupling.NAMES)
def test_every_kernel(kernel: str, rule: str, drafter: str) -> None:
    tree = (1, 1, 1) if rule == "block" else (2, 2, 1)
    assert worst(2, kernel, rule=rule, tree=tree, drafter=drafter) > ALARM


@pytest.mark.parametrize("eta,s_noise", [(0.5, 1.0), (1.0, 1.05), (0.8, 0.9)])
@pytest.mark.parametrize("kernel", ["flow_ancestral", "ancestral"])
def test_eta_and_s_noise(kernel: str, eta: float, s_noise: float) -> None:
    assert worst(2, kernel, eta, s_noise, rule="greedy", tree=(2, 2, 1), drafter="frozen") > ALARM


def test_the_plain_chain_itself() -> None:
    for kernel in KERNELS:
        assert worst(2, kernel, rule="greedy", tree=(), drafter="frozen") > ALARM


def test_the_keyed_streams() -> None:
    """The streams the product uses, one per image, under the same test."""
    for rule, tree in (("greedy", (2, 2, 1)), ("reflection", (1, 1, 1)), ("block", (1, 1, 1))):
        assert worst(2, "flow_ancestral", noise=None, rule=rule, tree=tree, drafter="frozen") > ALARM


def test_a_guess_that_sees_its_own_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the guess is pulled along the noise of its own transition, which it must not know."""
    noise = Shared((N, 2), STEPS, 2, 24)

    def peek(x: torch.Tensor, sigma: None, images: np.ndarray, steps: np.ndarray, held: torch.Tensor) -> torch.Tensor:
        return held + 0.3 * noise.normal(images, steps, 0).reshape(held.shape)

    monkeypatch.setattr(drafting.Frozen, "guesses", guessing(peek))
    assert worst(2, "flow_ancestral", noise=noise, rule="greedy", tree=(2, 2, 1), drafter="frozen") < ALARM


def test_a_rejection_that_keeps_the_candidate_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: rejected nodes are drawn straight from the target's kernel with the noise that the rule has seen."""
    honest = verification.verify

    def faulty(*arguments):
        path = honest(*arguments)
        path.shift[:] = 0.0
        return path

    monkeypatch.setattr(sampler_core.engine, "verify", faulty)
    assert worst(2, "flow_ancestral", rule="reflection", tree=(1, 1, 1), drafter="frozen") < ALARM


def test_accepting_too_often_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: delta is read 20 % too small, as an overflowing norm would."""
    honest = verification.measure

    def faulty(*arguments):
        difference, norm, delta, *rest = honest(*arguments)
        return difference, norm, 0.8 * delta, *rest

    monkeypatch.setattr(verification, "measure", faulty)
    assert worst(2, "flow_ancestral", rule="greedy", tree=(2, 2, 1), drafter="frozen") < ALARM
