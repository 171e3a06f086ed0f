"""Tries what is not known before it is relied on: does a call depend on earlier calls, on chance, on its company?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from .compat import CHECKED
from .modes import Choice
from .target import Rows

TOLERANCE = 1e-3
"""Of the root mean square of a prediction: calls that are the same agree far better on any device."""

SINGLE, HALF = 5e-3, 5e-2
"""The same for calls of other sizes, which round differently, in float32 and in half precision."""

Call = Callable[[Tensor, Tensor], Tensor]


# A cache, as of a function of the model: which combinations of known things have passed.
_passed: WeakKeyDictionary[object, set[tuple[str, ...]]] = WeakKeyDictionary()


def tried(choice: Choice, model: Any, rows: Rows, masked: Call, x: Tensor, sigmas: Tensor) -> tuple[str, int]:
    """Why a graph may not be sampled as chosen, "" if nothing was seen; and how many calls it took to see.

    model: the host's, of which nothing but its dtype is asked. rows: its call by a tree; masked: that of the stock
    samplers. x [B, ...]: a state at sigmas[0]. sigmas: [N + 1].
    """
    # Without its mask: where that holds everything to a picture, nothing would be seen.
    bare = replace(rows, inpaint=None)

    def batch(call: Call) -> Call:
        def at(x: Tensor, sigma: Tensor) -> Tensor:
            if choice.keyframes:
                choice.keyframes.set(sigma[0])
            return call(x, sigma)

        return at

    if choice.guesses:
        what = "; ".join(choice.guesses)
        found, calls = refusal(batch(rows.predict), x, sigmas, what)
        if not found and rows.inpaint is not None and rows.inpaint.at is not None:
            found, more = refusal(batch(masked), x, sigmas, what)
            calls += more
        return found, calls
    passed = _passed.setdefault(model, set())
    if choice.unsure in passed:
        return "", 0
    dtype = model.manual_cast_dtype or model.get_dtype()
    differ, calls = mismatch(bare, batch(rows.predict), x, sigmas, dtype)
    if not differ:
        passed.add(choice.unsure)
        return "", calls
    what = "; ".join(choice.unsure)
    return f"{what}: not as in ComfyUI {CHECKED[-1]}, latents at several noise levels get wrong answers", calls


def refusal(call: Call, x: Tensor, sigmas: Tensor, what: str) -> tuple[str, int]:
    """Why a model may not be called in the order of a tree, "" if nothing was seen; and how many calls it took.

    call(x [B, ...], sigma [B]): as the stock sampler calls it. x: a state at sigmas[0]. sigmas: [N + 1]. Two points
    near each other, one far away, then the two again, the first once more: what keeps values from call to call, or
    counts them, answers differently.
    """
    last = sigmas[:-1][-1]
    near = sigmas[1] if len(sigmas) > 2 else 0.98 * sigmas[0]
    first, second = (x, sigmas[0]), (x, near)
    points = [first, second, (x.flip(-1), last), second, first, first]
    answers = [call(*_expand(*point)) for point in points]
    pairs = [(0, 4), (0, 5), (1, 3)]
    if not all(_same(answers[i], answers[j]) for i, j in pairs):
        return f"{what}: the same input gave different answers, so it keeps values or is random inside", len(points)
    if len(x) == 1:
        return "", len(points)
    # Images are sampled apart from each other: the first may not see the others, now of another mean and size.
    for point, answer in ((first, answers[0]), (points[2], answers[2])):
        own, level = point
        company = torch.cat([own[:1], 1.5 * own[1:].flip(-1) + own.std()])
        if not _same(call(*_expand(company, level))[:1], answer[:1]):
            return f"{what}: it mixes the images of a batch", len(points) + 2
    return "", len(points) + 2


def mismatch(
    rows: Callable[[Tensor, Tensor, np.ndarray], Tensor], call: Call, x: Tensor, sigmas: Tensor, dtype: torch.dtype
) -> tuple[bool, int]:
    """Whether rows at three noise levels in one call get other answers than alone; and how many calls it took.

    rows(x, sigma, image): as the tree calls it. call(x [B, ...], sigma [B]): as the stock sampler does. dtype: what the
    network computes in.
    """
    steps = sigmas[:-1]
    levels = torch.stack([steps[0], steps[len(steps) // 2], steps[-1]])
    states = [x, x.flip(-1), -x]
    together = rows(torch.cat(states), levels.repeat_interleave(len(x)), np.tile(np.arange(len(x)), len(states)))
    alone = torch.cat([call(*_expand(state, level)) for state, level in zip(states, levels, strict=True)])
    error = (together.float() - alone.float()).square().mean().sqrt()
    limit = SINGLE if dtype == torch.float32 else HALF
    return bool(error > limit * alone.float().square().mean().sqrt()), 1 + len(states)


def _expand(x: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
    return x, sigma.expand(len(x))


def _same(a: Tensor, b: Tensor) -> bool:
    scale = b.float().square().mean().sqrt()
    return bool((a.float() - b.float()).abs().max() <= TOLERANCE * scale)
