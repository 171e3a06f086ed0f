"""Look-ahead drafts: the secants against matrices, the law at n = 100,000, and planted faults that must be caught."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from chains import Shared, mixture, schedule
from test_law import ALARM, STEPS, start, worst

import sampler_core
from sampler_core import look_ahead, planning
from sampler_core.blocks import Blocks
from sampler_core.look_ahead import LookAhead, check_measurable

RUNS = 100_000


@pytest.mark.parametrize("tree", [(1, 1, 1, 1), (2, 2, 1), (8,)])
@pytest.mark.parametrize("kernel", ["flow_ancestral", "ancestral"])
@pytest.mark.parametrize("d", [1, 2])
def test_law(d: int, kernel: str, tree: tuple[int, ...]) -> None:
    """1e5 chains; about 40 p values with the file's other laws, each held to 1e-6."""
    assert worst(d, kernel, n=RUNS, rule="reflection", tree=tree, drafter="look_ahead") > ALARM


@pytest.mark.parametrize("rule", sampler_core.coupling.NODE_NAMES)
def test_law_of_every_rule(rule: str) -> None:
    assert worst(2, "flow_ancestral", rule=rule, tree=(2, 1, 1), drafter="look_ahead") > ALARM


@pytest.mark.parametrize("drafter", ["look_ahead", "frozen", "model"])
def test_law_of_planned_trees(drafter: str) -> None:
    """Topologies chosen from verified history keep the law."""
    noise = Shared((RUNS, 2), STEPS, 8, 24)
    choice = {"rule": "greedy", "tree": "auto", "rows": 6, "drafter": drafter, "noise": noise}
    assert worst(2, "flow_ancestral", n=RUNS, **choice) > ALARM


def test_a_guess_that_sees_its_own_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = Shared((RUNS, 2), STEPS, 2, 24)
    honest = LookAhead.guesses

    def peek(self: LookAhead, images: np.ndarray, steps: np.ndarray):
        guess = honest(self, images, steps)

        def peeking(places: slice, x: torch.Tensor, held: torch.Tensor, out: torch.Tensor) -> None:
            guess(places, x, held, out)
            out += 0.2 * noise.normal(images[places], steps[places], 0).reshape(out.shape)

        return peeking

    monkeypatch.setattr(LookAhead, "guesses", peek)
    choice = {"rule": "reflection", "tree": (1, 1, 1), "drafter": "look_ahead", "noise": noise}
    assert worst(2, "flow_ancestral", n=RUNS, **choice) < ALARM


def test_a_width_chosen_from_what_saw_the_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: step j is drafted only where its own noise is positive, as an evaluation at step j + 1 would tell."""
    noise = Shared((RUNS, 2), STEPS, 2, 24)

    def peek(self: planning.Auto, images: np.ndarray, steps: np.ndarray) -> list:
        lucky = noise.normal(images, np.minimum(steps, STEPS - 1), 0)[:, 0] > 0
        return [planning.chain(2 if go else 0) for go in lucky]

    monkeypatch.setattr(planning.Auto, "trees", peek)
    choice = {"rule": "reflection", "tree": "auto", "rows": 3, "drafter": "frozen", "noise": noise}
    assert worst(2, "flow_ancestral", n=RUNS, **choice) < ALARM


def test_reading_a_newer_step_raises() -> None:
    check_measurable(np.array([2, 3]), np.array([3, 3]))
    with pytest.raises(AssertionError, match="measurability"):
        check_measurable(np.array([4]), np.array([3]))


def test_secants_from_newer_steps_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: slopes pooled over later steps too; the assertion stops the run."""
    honest = look_ahead.steps_below
    monkeypatch.setattr(look_ahead, "steps_below", lambda steps: honest(steps) + 1)
    with pytest.raises(AssertionError, match="measurability"):
        sampler_core.sample(
            mixture(2, True),
            start(20, 2, "flow_ancestral", 3),
            schedule(STEPS, True),
            kernel="flow_ancestral",
            tree=(1,) * 5,
            rule="reflection",
            drafter="look_ahead",
            seed=1,
        )


@pytest.mark.parametrize("shape", [(4, 16, 24), (4, 13, 9), (3, 8, 8), (5,), (2, 3, 16, 17)])
def test_blocks_split_and_join(shape: tuple[int, ...]) -> None:
    blocks = Blocks(torch.Size(shape))
    x = torch.randn(2, *shape, generator=torch.Generator().manual_seed(1))
    parts = blocks.split(x)
    assert parts.shape == (2, blocks.count, blocks.elements)
    assert torch.equal(blocks.join(parts), x)
    assert torch.allclose(parts.square().sum(), x.square().sum())
    assert torch.equal(blocks.split(x.double()).float(), parts)  # by torch's indexing, as on other devices
    assert torch.equal(blocks.join(parts.double()).float(), x)
    if len(shape) == 3 and max(shape[1:]) > 8:
        assert torch.equal(parts[0, 1].reshape(shape[0], 8, 8)[:, :, :1], x[0, :, :8, 8:9])


def pattern(*images: str) -> look_ahead._Slots:
    """A round of images whose rows are drawn: x evaluated before, o not."""
    firsts = np.concatenate([np.arange(len(rows)) == 0 for rows in images])
    return look_ahead._slots(firsts, np.array([row == "x" for row in "".join(images)]))


def mixed(pairs: torch.Tensor, slope: torch.Tensor, least: float) -> np.ndarray:
    """pairs: [n, 4, elements], p and q of the step below and then of the step's own. [n, 4, 4] of the first slot."""
    room = torch.nn.functional.pad(pairs.reshape(-1, 2, pairs.shape[2]), (0, 0, 0, 0, 1, 1))
    slots = pattern("xxo")
    product = look_ahead.products(room, slots)
    return look_ahead._mix(product[slots.second], product[:-1], slope.expand(2, -1).numpy(), least)[0]


def test_slots_of_several_images() -> None:
    slots = pattern("xxo", "o", "xo", "xx")
    assert slots.own.tolist() == [0, 1, -1, -1, 2, -1, 3, 4]
    assert slots.window.tolist() == [-1, 0, 1, -1, -1, 2, -1, 3]
    assert slots.pairs.tolist() == [0, 2, 1, 0, 0, 1, 0, 2]
    assert slots.second.tolist() == [1, -1, -1, 4, -1] and slots.above.tolist() == [1, 2, 5, 7, 7]
    with pytest.raises(AssertionError, match="the next ones"):
        pattern("xox")


def test_products_are_those_of_a_matrix() -> None:
    """Slots 0 to 2 are of one image, 3 and 4 of another."""
    room = torch.randn(1 + 3 * 5 + 1, 2, 40, generator=torch.Generator().manual_seed(4))
    found = look_ahead.products(room, pattern("xxxo", "xx"))
    parts = room[1:-1].view(3, 5, 2, 40)
    assert (found[5] == 0).all()
    for slot in range(5):
        with_before, with_second = slot not in (0, 3), slot not in (2, 4)
        assert with_second or (found[slot, :, 4:] == 0).all()
        near = parts[:, slot - with_before : slot + with_second + 1].flatten(1, 2)
        expected = (near @ parts[:, slot, 0, :, None])[..., 0]
        asked = found[slot, :, 0 if with_before else 2 : 6 if with_second else 4]
        assert np.allclose(asked, expected.numpy(), atol=1e-4)


def test_a_missing_pair_is_zero() -> None:
    """Where a step has no pair of its own, its Jacobian is that of the step below alone."""
    pairs = torch.randn(3, 2, 40, generator=torch.Generator().manual_seed(5))
    room = torch.nn.functional.pad(pairs, (0, 0, 0, 0, 1, 1), value=float("nan"))
    slots = pattern("xo")
    product = look_ahead.products(room, slots)
    mix = look_ahead._mix(product[slots.second], product[:-1], np.full((1, 3), 0.5), 1e-12)[0]
    assert (abs(mix[:, 2:]) < 1e-99).all() and (abs(mix[:, :, 2:]) < 1e-99).all()
    for (p, q), n in zip(pairs.double().numpy(), mix[:, :2, :2], strict=True):
        length = (1 + look_ahead.DOUBT[1]) * p @ p
        v = q - 0.5 * p
        outer = np.outer(v, p) / length
        expected = outer + look_ahead.SYMMETRY * (outer.T - np.outer(p, p) * (p @ v) / length**2)
        f = np.stack([p, q])
        assert np.allclose(f.T @ n.T @ f, expected, atol=1e-4)


def test_the_jacobian_is_the_formula() -> None:
    """The mixed products of a guess against the matrices of the class docstring, in blocks of 40 elements."""
    generator = torch.Generator().manual_seed(2)
    pairs = torch.randn(3, 4, 40, generator=generator, dtype=torch.float64)
    slope = torch.randn(3, generator=generator, dtype=torch.float64)
    mix = torch.from_numpy(mixed(pairs, slope, 1e-12))
    for f, lam, n in zip(pairs, slope, mix, strict=True):
        scale = f[::2].norm(dim=1)
        p, q = f[::2].T / scale, f[1::2].T / scale
        v = q - lam * p
        doubt = torch.tensor(look_ahead.DOUBT, dtype=torch.float64).flip(0)
        a = torch.linalg.inv(p.T @ p + torch.diag(doubt))
        mirror = p @ a @ v.T - p @ a @ v.T @ p @ a @ p.T
        assert torch.allclose(f.T @ n.T @ f, v @ a @ p.T + look_ahead.SYMMETRY * mirror, atol=1e-9)


def test_pairs_of_rounding_are_left_out() -> None:
    pairs = torch.randn(1, 4, 40, generator=torch.Generator().manual_seed(3))
    pairs[0, :2] *= 1e-7
    mix = mixed(pairs, torch.zeros(1), 1e-8)
    assert np.isfinite(mix).all() and (abs(mix[0, :2]) < 1e-99).all() and (abs(mix[0, :, :2]) < 1e-99).all()


def test_a_linear_target_is_learnt() -> None:
    """D = M x + v with a scalar M in every block: a third of the frozen guess's error is left, at steps never met."""

    def target(x: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
        scale = torch.tensor([0.5, -1.0]).repeat_interleave(8)
        return scale * x + 0.3

    x = torch.randn(24, 4, 8, 16, generator=torch.Generator().manual_seed(1))
    settings = {"kernel": "flow_ancestral", "tree": (1,) * 6, "rule": "reflection", "seed": 2}
    _, report = sampler_core.sample(target, x, schedule(20, True), drafter="look_ahead", **settings)
    _, frozen = sampler_core.sample(target, x, schedule(20, True), drafter="frozen", **settings)
    # A step's delta is the mean over 24 images, some of which meet it without an evaluation to go by.
    late = np.median(report.deltas[8:-1]), np.median(frozen.deltas[8:-1])
    assert late[0] < 0.4 * late[1]
    assert report.calls < frozen.calls and report.accepted / report.proposed > frozen.accepted / frozen.proposed


@pytest.mark.parametrize("tree", ["auto", (1, 1, 1), (2, 1, 1)])
@pytest.mark.parametrize("weight", [1.0, 6.0])
def test_an_image_does_not_depend_on_its_company(tree: str | tuple[int, ...], weight: float) -> None:
    """Images that advance at different speeds: each is, bit for bit, what it is alone."""
    mix = torch.randn(64, 64, generator=torch.Generator().manual_seed(1)) / 8

    def denoise(x: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
        rows = [torch.tanh(row.flatten() @ mix) * weight * (1 - s) for row, s in zip(x, sigma, strict=True)]
        return torch.stack(rows).reshape(x.shape)

    x = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    t = torch.linspace(1, 0, 15)
    settings = {"kernel": "flow_ancestral", "tree": tree, "rule": "reflection", "drafter": "look_ahead"}
    together, report = sampler_core.sample(denoise, x, 3 * t / (1 + 2 * t), seed=list(range(5)), **settings)
    calls = []
    for i in range(5):
        alone, own = sampler_core.sample(denoise, x[i : i + 1], 3 * t / (1 + 2 * t), seed=[i], **settings)
        assert torch.equal(alone[0], together[i])
        calls.append(own.calls)
    assert len(set(calls)) > 1 and report.calls >= max(calls)
