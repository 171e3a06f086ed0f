"""Tries what is not known before it is relied on: does a call depend on earlier calls, on chance, on its company?"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

TOLERANCE = 1e-3
"""Of the root mean square of a prediction: calls that are the same agree far better on any device."""

Call = Callable[[Tensor, Tensor], Tensor]


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
    company = torch.cat([x[:1], 1.5 * x[1:].flip(-1) + x.std()])
    if not _same(call(*_expand(company, sigmas[0]))[:1], answers[0][:1]):
        return f"{what}: it mixes the images of a batch", len(points) + 1
    return "", len(points) + 1


def _expand(x: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
    return x, sigma.expand(len(x))


def _same(a: Tensor, b: Tensor) -> bool:
    scale = b.float().square().mean().sqrt()
    return bool((a.float() - b.float()).abs().max() <= TOLERANCE * scale)
