"""The engine's rounds for one image, asking the target for the rows of the verified path only.

Drafts that hold the last verified prediction never look at other rows, and draws are keyed by step, so the pictures,
the calls and all counts are those of the engine (tests/benchmarks hold it to that). Rows are counted as if every one
had been evaluated. At 64 tiles this is what lets the papers' methods finish in minutes: nearly all their drafts are
rejected at the first row.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import numpy as np
import torch
from torch import Tensor


@torch.no_grad()
def sample(
    core: Any, target: Any, x: Tensor, sigmas: Tensor, *, tree: Any, rule: str, drafter: Any, seed: int, rows: int
) -> tuple[Tensor, Any]:
    """As `sampler_core.sample` for the kernel "flow_ancestral" and a latent [1, ...], with draws of the same keys."""
    engine = importlib.import_module(f"{core.__name__}.engine")
    blocks = importlib.import_module(f"{core.__name__}.blocks")
    growth = importlib.import_module(f"{core.__name__}.growth")
    verification = importlib.import_module(f"{core.__name__}.verification")
    chain = core.kernels.build("flow_ancestral", sigmas)
    plan = engine._plan(tree, rows, rule, 1, False, None)
    noise, judge = core.noise.Streams([seed], x, chain.draws), core.coupling.get(rule)
    guesser, draft_model = engine._drafter(drafter, x, blocks.Whole(), x.dtype, chain)
    report = core.Report(chain.steps, 1, "flow_ancestral", rule, (), guesser.name)
    step, latest, image = np.zeros(1, dtype=np.int64), torch.zeros_like(x), np.zeros(1, dtype=np.int64)
    while step[0] < chain.steps:
        reach = engine._reach(chain, plan, step)
        if guesser.needs_history and step[0] == 0:
            reach[:] = 0
        layout = plan.trees(image, step)[0].layout(int(reach[0]))
        draft = growth.grow(layout, image, x, step, chain, guesser, latest, noise)
        denoised, seen = torch.zeros_like(draft.x), np.zeros(layout.rows, dtype=bool)
        sigma = chain.sigma(draft.steps)
        row = 0
        while not seen[row]:
            denoised[row : row + 1] = target(draft.x[row : row + 1], sigma[row : row + 1])
            seen[row] = True
            # What the rule says at a row that has been evaluated does not depend on the rows below it.
            once = dataclasses.replace(draft, guess=draft.guess.clone())
            path = verification.verify(once, denoised, chain, judge, noise)
            row = _next_unseen(layout, int(path.stop[0]), seen)
        stop = path.stop
        latest = denoised[stop]
        x = engine._next_state(draft, path, draft.x[stop], denoised[stop], chain, noise)
        guesser.observe(draft, path, denoised)
        judged = layout.inner[path.inner]
        report.add(draft.steps[judged], path.delta[path.inner], path.accepted)
        plan.observe(draft.images[judged], draft.steps[judged], layout.depth[judged], path.delta[path.inner])
        step += path.length
        noise.spend(0, int(step[0]))
        report.calls += 1
        report.rows += layout.rows
        if draft_model:
            report.draft_calls, report.draft_rows = draft_model.calls, draft_model.rows
    return x, report


def _next_unseen(layout: Any, stop: int, seen: np.ndarray) -> int:
    """The first row of the path to `stop` that has not been evaluated, or `stop`."""
    path = [stop]
    while layout.parent[path[-1]] >= 0:
        path.append(int(layout.parent[path[-1]]))
    return next((row for row in reversed(path) if not seen[row]), stop)
