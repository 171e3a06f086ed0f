"""The sampler: draft a tree, judge it in one call, verify, commit; until every image is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from . import coupling, drafting, kernels
from .blocks import Blocks, Whole
from .errors import InputError
from .growth import Draft, grow
from .kernels import Kernel
from .look_ahead import LookAhead
from .noise import Noise, Split, Streams, image_seed
from .planning import Auto, Fixed, Plan
from .report import Report
from .rows import as_slice, pick, put, which
from .target import Target
from .tree import Layout, Tree
from .verification import Path, require_finite, verify


@dataclass(frozen=True)
class Progress:
    """What a callback sees after a round: steps that every image has finished (1..total), x and denoised [B, ...]."""

    step: int
    total: int
    sigma: float
    x: Tensor
    denoised: Tensor
    report: Report


@torch.no_grad()
def sample(
    denoise: Callable[..., Tensor],
    x: Tensor,
    sigmas: Tensor,
    *,
    kernel: str,
    eta: float = 1.0,
    s_noise: float = 1.0,
    tree: Sequence[int] | str | Tree,
    rule: str,
    drafter: str | Callable[..., Tensor],
    seed: int | Sequence[int],
    callback: Callable[[Progress], None] | None = None,
    noise: Noise | None = None,
    rows: int = 8,
    cost: Sequence[float] | None = None,
    draft_cost: float = 0.0,
) -> tuple[Tensor, Report]:
    """Sample x at sigmas[0] down to sigmas[-1]; the result has exactly the law of the stock sampler.

    denoise(x [rows, ...], sigma [rows]) -> [rows, ...] is the target's denoised prediction (see `Target`). x: [B, ...],
    never changed. sigmas: [N + 1], falling. kernel: one of kernels.FAMILIES. tree: widths per depth, or a Tree; () is
    the stock sampler bit for bit; "auto" plans every call, of at most `rows` rows an image, by `cost` and `draft_cost`
    (see planning.Auto). rule: one of coupling.NAMES; "block" judges chains, with drafts that reuse no noise. drafter:
    "look_ahead", "frozen", or a draft model, called like denoise. seed: one for all images, or one each.
    callback(Progress) runs after every round in which the slowest image has advanced. noise: a source that replaces
    the keyed streams. Returns the latent [B, ...] and a Report.

    Raises InputError for inputs that cannot be sampled and NonFiniteError when the target returns NaN or infinity.
    Sources: De Bortoli et al. 2025 (arXiv 2501.05370); trees: arXiv 2609.17691, 2610.02251; blocks: arXiv 2606.13426.
    """
    started = time.perf_counter()
    if x.ndim < 2 or not x.is_floating_point():
        raise InputError(f"x: need a float latent [B, ...], got shape {tuple(x.shape)} of {x.dtype}.")
    judge = coupling.get(rule)
    seeds = _seeds(seed, len(x))
    if len(sigmas) < 2:
        report = Report(0, len(x), kernel, rule, _widths(tree), str(drafter), "plain", "the schedule has no steps")
        return x.clone(), report
    chain = kernels.build(kernel, sigmas.to(x.device), eta, s_noise)
    target = Target(denoise, x.dtype)
    # Half precision cannot hold a mean and a small spread together: states are kept in float32.
    given, x = x.dtype, x.to(torch.promote_types(x.dtype, torch.float32), copy=True)
    plan = _plan(tree, rows, rule, len(x), drafter == "look_ahead", cost, draft_cost)
    if isinstance(judge, coupling.Block):
        _require_chains(tree, plan, drafter)
    report = Report(chain.steps, len(x), kernel, rule, _widths(tree))
    blocks = Blocks(x.shape[1:]) if drafter == "look_ahead" else Whole()
    guesser, draft_model = _drafter(drafter, blocks.split(x), blocks, given, chain)
    report.drafter = guesser.name
    _explain(report, chain, plan)
    if plan.depth == 0:
        x = _plain(chain, target, x, noise or Streams(seeds, x, chain.draws), report, callback, started)
        return x.to(given), report
    noise = Split(noise, blocks) if noise else Streams(seeds, x, chain.draws, blocks)
    x = blocks.split(x)
    latest = torch.zeros_like(x)
    step, done = np.zeros(len(x), dtype=np.int64), 0
    layouts: dict[tuple[object, ...], Layout] = {}
    while (active := which(step < chain.steps)).size:
        # 1. Draft: no deeper than the schedule, no further than a step with noise to guess through.
        reach = _reach(chain, plan, step[active])
        if guesser.needs_history:
            reach[step[active] == 0] = 0
        trees = plan.trees(active, step[active])
        layout = _layout(layouts, trees, reach)
        own = None if len(active) == len(step) else as_slice(active)
        draft = grow(layout, active, pick(x, own), step[active], chain, guesser, pick(latest, own), noise)
        # 2. Judge every node in one call.
        denoised = target.of_blocks(draft.x, chain.sigma(draft.steps), draft.images, blocks)
        # 3. Verify.
        path = verify(draft, denoised, chain, judge, noise)
        # 4. Commit.
        stop = as_slice(path.stop)
        said = pick(denoised, stop)
        after = _next_state(draft, path, pick(draft.x, stop), said, chain, noise)
        guesser.observe(draft, path, denoised)
        latest, x = put(latest, own, said), put(x, own, after)
        judged = layout.inner[path.inner]
        report.add(draft.steps[judged], path.delta[path.inner], path.accepted)
        plan.observe(draft.images[judged], draft.steps[judged], layout.depth[judged], path.delta[path.inner])
        plan.evaluated(draft.images[path.line], draft.steps[path.line] + 1)
        step[active] += path.length
        for image in active.tolist():
            noise.spend(image, int(step[image]))

        before, done = done, int(step.min())
        report.rounds.append((done, layout.rows, layout.deepest, layout.widest))
        report.calls, report.rows = target.calls, target.rows
        report.seconds = time.perf_counter() - started
        if draft_model:
            report.draft_calls, report.draft_rows = draft_model.calls, draft_model.rows
        if callback and done > before:
            seen = blocks.join(x), blocks.join(latest)
            callback(Progress(done, chain.steps, float(chain.sigmas[done - 1]), *seen, report))
    report.draft_faults = getattr(guesser, "faults", 0)
    report.seconds = time.perf_counter() - started
    return blocks.join(x).to(given), report


def _plain(
    chain: Kernel,
    target: Target,
    x: Tensor,
    noise: Noise,
    report: Report,
    callback: Callable[[Progress], None] | None,
    started: float,
) -> Tensor:
    """The stock sampler, which is what rounds of one row amount to, without their bookkeeping."""
    images = np.arange(len(x))
    for i in range(chain.steps):
        steps = np.full(len(x), i)
        denoised = target(x, chain.sigma(steps), images)
        require_finite(denoised, images)
        c = chain.at(steps, x.ndim)
        x = chain.mean(c, x, denoised)
        if chain.draws[i]:
            x = chain.perturb(c, x, noise.normal(images, steps, 0))
        for image in range(len(x)):
            noise.spend(image, i + 1)
        report.calls, report.rows = target.calls, target.rows
        report.seconds = time.perf_counter() - started
        if callback:
            callback(Progress(i + 1, chain.steps, float(chain.sigmas[i]), x, denoised, report))
    return x


def _reach(chain: Kernel, plan: Plan, step: np.ndarray) -> np.ndarray:
    """[n] the greatest depth each image may evaluate: noisy transitions ahead of it that are followed by a step."""
    return np.minimum(chain.ahead[step], plan.depth)


def _layout(known: dict[tuple[object, ...], Layout], trees: list[Tree], reach: np.ndarray) -> Layout:
    if len(trees) == 1:
        return trees[0].layout(int(reach[0]))
    key = (*dict.fromkeys(trees), reach.tobytes()) if len(set(trees)) == 1 else (*trees, reach.tobytes())
    if key not in known:
        known[key] = Layout(trees, reach)
    return known[key]


def _next_state(draft: Draft, path: Path, x: Tensor, denoised: Tensor, chain: Kernel, noise: Noise) -> Tensor:
    """The exact next state [n, ...] where each path ends: straight from the target's kernel, or from the residual."""
    steps = draft.steps[path.stop]
    z = None
    if any(chain.draws[i] for i in steps.tolist()):
        z = noise.normal(draft.images[path.stop], steps, 0)
    if not len(draft.layout.inner):  # nothing was drafted: the stock sampler's own arithmetic, bit for bit
        c = chain.at(steps, x.ndim)
        mean = chain.mean(c, x, denoised)
        return mean if z is None else chain.perturb(c, mean, z)
    a, b, r = chain.linear(steps, x.ndim)
    after = torch.mul(x, a).addcmul_(denoised, b)
    if z is not None:
        after.addcmul_(z, r)
    rejected = which(path.missed >= 0)
    if len(rejected):
        some = None if len(rejected) == len(steps) else rejected
        shift = torch.from_numpy(path.shift[rejected].reshape(-1, *[1] * (x.ndim - 1))).to(x)
        shifted = pick(after, some).addcmul_(pick(path.miss, as_slice(path.missed[rejected])), shift)
        after = put(after, some, shifted)
    return after


def _seeds(seed: int | Sequence[int], images: int) -> list[int]:
    if isinstance(seed, (int, np.integer)):
        return [image_seed(int(seed), i) for i in range(images)]
    if len(seed) != images:
        raise InputError(f"seed: got {len(seed)} seeds for {images} images; give one number, or one per image.")
    return [int(s) for s in seed]


def _plan(
    tree: Sequence[int] | str | Tree,
    rows: int,
    rule: str,
    images: int,
    ahead: bool,
    cost: Sequence[float] | None,
    draft_cost: float = 0.0,
) -> Plan:
    if isinstance(tree, Tree):
        return Fixed(tree)
    if isinstance(tree, str):
        if tree != "auto":
            raise InputError(f"tree: {tree!r} is not possible; use widths such as (2, 2, 1, 1), or 'auto'.")
        return Auto(rows, rule, images, ahead, cost, draft_cost)
    return Fixed(Tree.from_widths(tree))


def _widths(tree: Sequence[int] | str | Tree) -> tuple[int, ...]:
    """What the report says of a tree: its widths, () where it has none."""
    return () if isinstance(tree, (str, Tree)) else tuple(int(w) for w in tree)


def _require_chains(tree: Sequence[int] | str | Tree, plan: Plan, drafter: str | Callable[..., Tensor]) -> None:
    """InputError where block verification would not be exact."""
    if drafter == "look_ahead":
        raise InputError(
            "rule: 'block' cannot judge drafts of 'look_ahead'. It looks at the noises of all drafted steps before it "
            "stops, and look-ahead would draft with those beyond the rejected step again, which biases the result. Use "
            "rule 'optimal' or 'reflection' with look_ahead, or 'block' with drafter 'frozen' or a draft model."
        )
    if plan.width > 1:
        raise InputError(
            f"rule: 'block' judges chains, and tree {tree} has steps with more than one child. Use widths of 1, such "
            "as (1, 1, 1, 1), or 'auto', or rule 'optimal' for this tree."
        )


def _drafter(
    drafter: str | Callable[..., Tensor], x: Tensor, blocks: Whole, given: torch.dtype, chain: Kernel
) -> tuple[drafting.Drafter, Target | None]:
    if callable(drafter):
        model = Target(drafter, given, "draft model")
        return drafting.DraftModel(model, x, blocks, chain), model
    if drafter == "frozen":
        return drafting.Frozen(), None
    if drafter == "look_ahead":
        return LookAhead(x, chain.steps), None
    raise InputError(f"drafter: {drafter!r} is unknown; use 'look_ahead', 'frozen' or a draft model.")


def _explain(report: Report, chain: Kernel, plan: Plan) -> None:
    """Say why a run is plain, where it is."""
    if plan.depth == 0:
        report.mode, report.reason = "plain", "the tree has one row"
    elif not any(chain.spread[:-1]):
        reason = "the sampler adds no noise (eta or s_noise is 0)" if chain.steps > 1 else "the schedule has one step"
        report.mode, report.reason = "plain", reason
