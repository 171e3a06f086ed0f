"""The engine against chains computed by hand: law, bits, batches, counts, and errors."""

import numpy as np
import pytest
import torch
from chains import mixture, schedule

import sampler_core
from sampler_core import InputError, NonFiniteError

DEFAULTS = {"kernel": "flow_ancestral", "tree": (2, 2, 1), "rule": "greedy", "drafter": "frozen", "seed": 5}


def run(denoise=None, x=None, sigmas=None, **changes):
    denoise = mixture(2, True) if denoise is None else denoise
    sigmas = schedule(12, True) if sigmas is None else sigmas
    x = torch.randn(1, 2, generator=torch.Generator().manual_seed(3)) if x is None else x
    return sampler_core.sample(denoise, x, sigmas, **{**DEFAULTS, **changes})


def test_one_row_is_the_plain_chain_to_the_bit() -> None:
    """Written out as k-diffusion writes Euler ancestral for flow models, with the stock noise of each image."""
    denoise, sigmas = mixture(2, True), schedule(12, True)
    x = torch.randn(1, 2, generator=torch.Generator().manual_seed(3))
    got, report = run(x=x, tree=())
    generator = torch.Generator().manual_seed(6)
    for i in range(12):
        denoised = denoise(x, sigmas[i] * x.new_ones([1]))
        if sigmas[i + 1] == 0:
            x = denoised
            continue
        down = sigmas[i + 1] * (1 + (sigmas[i + 1] / sigmas[i] - 1) * 1.0)
        scale = (1 - sigmas[i + 1]) / (1 - down)
        renoise = (sigmas[i + 1] ** 2 - down**2 * (1 - sigmas[i + 1]) ** 2 / (1 - down) ** 2) ** 0.5
        x = down / sigmas[i] * x + (1 - down / sigmas[i]) * denoised
        x = scale * x + torch.randn(x.size(), generator=generator) * 1.0 * renoise
    assert torch.equal(got, x)
    assert (report.calls, report.rows, report.mode) == (12, 12, "plain")


@pytest.mark.parametrize("drafter", ["frozen", "model"])
@pytest.mark.parametrize("rule", sampler_core.coupling.NAMES)
def test_a_batch_is_its_images(rule: str, drafter: str) -> None:
    """Images advance on their own: alone or together, whatever the batch, the bits are the same."""
    denoise = mixture(2, True)
    guess = "frozen" if drafter == "frozen" else lambda x, s: 0.9 * denoise(x, s)
    x = torch.randn(7, 2, generator=torch.Generator().manual_seed(4))
    seeds = [100 + b for b in range(7)]
    tree = (1, 1, 1, 1) if rule == "block" else (2, 2, 1)
    together, report = run(denoise, x, seed=seeds, rule=rule, drafter=guess, tree=tree)
    assert report.calls < 7 * 12
    for b in range(7):
        alone, _ = run(denoise, x[b : b + 1], seed=[seeds[b]], rule=rule, drafter=guess, tree=tree)
        assert torch.equal(alone[0], together[b])


def test_one_seed_means_one_stream_per_image() -> None:
    x = torch.randn(1, 2, generator=torch.Generator().manual_seed(4)).expand(3, -1)
    got, _ = run(x=x, seed=9)
    assert len({tuple(row) for row in got.tolist()}) == 3
    assert torch.equal(got[:1], run(x=x[:1], seed=9)[0])


def test_chunks_do_not_matter() -> None:
    denoise = mixture(2, True)

    def chunked(x: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
        return torch.cat([denoise(a, s) for a, s in zip(x.split(3), sigma.split(3), strict=True)])

    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(4))
    assert torch.equal(run(denoise, x)[0], run(chunked, x)[0])


def test_rows_know_their_image() -> None:
    """With takes_images the target may answer differently for each image, as conditioning does."""
    denoise, shifts = mixture(2, True), torch.tensor([0.0, 0.5, -0.5])

    def conditioned(x: torch.Tensor, sigma: torch.Tensor, images: np.ndarray) -> torch.Tensor:
        return denoise(x, sigma) + shifts[torch.from_numpy(images)][:, None]

    conditioned.takes_images = True
    x = torch.randn(3, 2, generator=torch.Generator().manual_seed(4))
    together, _ = run(conditioned, x, seed=[1, 2, 3])
    for b in range(3):
        alone, _ = run(lambda y, s, b=b: denoise(y, s) + shifts[b], x[b : b + 1], seed=[b + 1])
        assert torch.equal(alone[0], together[b])


def test_counts() -> None:
    """Calls and rows against a count kept outside; steps verified or drawn add up."""
    seen: list[int] = []
    denoise = mixture(2, True)

    def counting(x: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
        seen.append(len(x))
        return denoise(x, sigma)

    _, report = run(counting, tree=(1, 1, 1, 1))
    assert (report.calls, report.rows, report.steps) == (len(seen), sum(seen), 12)
    assert 0 < report.accepted <= report.proposed and report.calls < report.steps
    # Every round ends at one step of its own; the others were crossed by accepted candidates.
    assert report.calls + report.accepted == 12
    assert [d is None for d in report.deltas] == [a is None for a in report.acceptances]
    said = report.as_dict()
    assert said["tree"] == [1, 1, 1, 1] and said["calls"] == report.calls
    assert f"12 steps in {report.calls} calls" in report.summary()


def test_a_perfect_draft_model_is_always_accepted() -> None:
    denoise = mixture(2, True)
    _, report = run(denoise, tree=(1, 1, 1), drafter=denoise)
    assert report.accepted == report.proposed and report.calls == 3
    assert report.draft_rows == report.draft_calls == 9


def test_a_constant_error_is_carried_away() -> None:
    """D_draft = D + constant: from the second round on (step 4 at the latest) the carried error cancels it."""
    denoise = mixture(2, True)
    _, report = run(denoise, tree=(1, 1, 1), drafter=lambda x, s: denoise(x, s) + 3.0)
    late = [d for d in report.deltas[4:] if d is not None]
    assert len(late) > 3 and max(late) < 1e-4


def test_a_broken_draft_model_costs_speed_only() -> None:
    denoise = mixture(2, True)
    x = torch.randn(1, 2, generator=torch.Generator().manual_seed(3))
    _, report = run(denoise, x, drafter=lambda y, s: torch.full_like(y, float("nan")))
    assert report.draft_faults == report.draft_rows > 0
    overflow, _ = run(denoise, x, drafter=lambda y, s: torch.full_like(y, 3e38))
    assert torch.isfinite(overflow).all()


def test_the_latent_is_never_changed_and_the_schedule_may_be_empty() -> None:
    x = torch.randn(2, 2)
    before = x.clone()
    run(x=x)
    assert torch.equal(x, before)
    got, report = run(x=x, sigmas=torch.tensor([1.0]))
    assert torch.equal(got, x) and got is not x and report.calls == 0 and report.reason


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_short_schedules(steps: int) -> None:
    got, report = run(sigmas=schedule(steps, True))
    assert torch.isfinite(got).all() and report.calls <= steps


def test_a_schedule_that_stops_early() -> None:
    """Leftover noise: the last state is drawn, never evaluated."""
    sigmas = schedule(12, True)[:7]
    got, report = run(sigmas=sigmas)
    plain, _ = run(sigmas=sigmas, tree=())
    assert report.steps == 6 and torch.isfinite(got).all() and got.shape == plain.shape


def test_without_noise_it_runs_plain_and_says_so() -> None:
    for changes in ({"eta": 0.0}, {"s_noise": 0.0}):
        _, report = run(**changes)
        assert report.mode == "plain" and "no noise" in report.reason and report.rows == report.calls == 12


def test_progress_never_goes_back_and_ends_at_the_total() -> None:
    seen = []
    x = torch.randn(4, 2, generator=torch.Generator().manual_seed(4))
    got, report = run(
        x=x, callback=lambda p: seen.append((p.step, p.total, p.x.shape, p.denoised.shape, p.report.calls))
    )
    steps = [s[0] for s in seen]
    assert steps == sorted(set(steps)) and steps[-1] == 12 and {s[1] for s in seen} == {12}
    assert {s[2] for s in seen} == {s[3] for s in seen} == {x.shape}
    assert seen[-1][4] == report.calls


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 4, 5, 6), (1, 4, 2, 3, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_shapes_and_types(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    got, report = run(lambda y, s: 0.9 * y, x)
    assert got.shape == shape and got.dtype == dtype and report.calls < 12


def test_a_target_that_breaks_is_named() -> None:
    with pytest.raises(NonFiniteError, match="NaN or infinity"):
        run(lambda x, s: x * float("nan"))
    with pytest.raises(NonFiniteError):
        run(lambda x, s: x * float("nan"), tree=())
    with pytest.raises(InputError, match="target: it returned shape"):
        run(lambda x, s: x[:, :1])
    with pytest.raises(InputError, match="draft model: it returned shape"):
        run(drafter=lambda x, s: x[:, :1])


@pytest.mark.parametrize(
    "changes,words",
    [
        ({"rule": "best"}, "rule: 'best'"),
        ({"drafter": "psychic"}, "drafter: 'psychic'"),
        ({"seed": [1, 2]}, "2 seeds for 1 images"),
        ({"tree": (2, 0)}, "width 0"),
        ({"kernel": "euler"}, "kernel: 'euler'"),
        ({"x": torch.zeros(1, 2, dtype=torch.int64)}, "x: need a float latent"),
    ],
)
def test_bad_inputs_are_named(changes: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        run(**changes)


def test_a_failed_run_leaves_nothing_behind() -> None:
    """A run after an error equals a fresh run: all state lives in the call."""
    fresh, _ = run()
    calls = iter(range(100))

    def failing(x: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
        if next(calls) == 3:
            raise MemoryError("full")
        return mixture(2, True)(x, sigma)

    with pytest.raises(MemoryError):
        run(failing)
    assert torch.equal(run()[0], fresh)
