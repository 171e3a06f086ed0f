"""Draws from what a rule left of the target."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .rule import Draws

# Trials per chunk: the sequence never depends on the other rows, so that trial t of a row is always the same draw.
_FIRST_CHUNK = 8
_LARGEST_CHUNK = 4096
_MAX_TRIALS = 1 << 20


def draw_residual(delta: Tensor, log_taken: Callable[[Tensor, Tensor], Tensor], draws: Draws) -> Tensor:
    """Draw from (q − h)₊ normalised, q = N(delta, 1), by rejection from q: [n].

    log_taken(z [m, k], rows [m]) is ln h/q at delta[rows] + z. A trial v ~ q is kept with probability
    (1 − h(v)/q(v))₊, whatever shape the support has. A row needs 1/P(rejection) trials on average and is drawn with
    probability P(rejection), so a verification costs one trial on average.
    A row that keeps none of 2²⁰ trials returns the last one: this moves the law by at most 4·10⁻⁷ in total
    variation, at the worst delta (about 10⁻⁶), and ends the search where the residual is numerically empty.
    """
    chosen = torch.zeros_like(delta)
    rows = torch.arange(delta.shape[0])
    chunk, trials = _FIRST_CHUNK, 0
    while rows.numel():
        z = draws.normal(chunk)[rows]
        uniform = draws.uniform(chunk)[rows]
        kept = uniform < -torch.expm1(log_taken(z, rows))
        found = kept.any(dim=1)
        trials += chunk
        if trials >= _MAX_TRIALS:
            kept[~found, -1] = True
            found = torch.ones_like(found)
        first = kept.to(torch.uint8).argmax(dim=1, keepdim=True)
        chosen[rows[found]] = z.gather(1, first)[found, 0]
        rows = rows[~found]
        chunk = min(2 * chunk, _LARGEST_CHUNK)
    return delta + chosen
