"""D-GRS: greedy rejection over K candidates in drafting order."""

from __future__ import annotations

import torch
from torch import Tensor

from .residual import draw_residual
from .rule import DELTA_MIN, Draws, log_ratio, settle, usable


class Greedy:
    """Try candidates one after another, each against what the earlier ones left of the target.

    Accepts with probability 1 − G_{K+1}. Source: D-GRS, arXiv 2609.17691.
    """

    name = "greedy"

    def select(self, delta: Tensor, u: Tensor, draws: Draws) -> Tensor:
        """First accepted candidate, or -1: int64 [n]. Takes K uniforms per row."""
        safe = usable(delta)
        width = u.shape[1]
        covered, left = _levels(safe, width)
        ratio = log_ratio(safe[:, None], u).clamp(max=700.0).exp()
        # U·G < (ratio − covered)₊ is U < p without a division by a vanishing G.
        accepted = draws.uniform(width) * left[:, :width] < ratio - covered[:, :width]
        first = accepted.to(torch.uint8).argmax(dim=1)
        return settle(delta, torch.where(accepted.any(dim=1), first, -1))

    def residual(self, delta: Tensor, u: Tensor, draws: Draws) -> Tensor:
        """Draw from (q − covered·p)₊ / left, q the target's and p the draft's density: [n]."""
        safe = usable(delta)
        log_covered = _levels(safe, u.shape[1])[0][:, -1].log()

        def log_taken(z: Tensor, rows: Tensor) -> Tensor:
            # At v = delta + z the likelihood ratio is exp(delta·z + delta²/2).
            own = safe[rows, None]
            return log_covered[rows, None] - own * (z + 0.5 * own)

        return draw_residual(safe, log_taken, draws)


def _levels(delta: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """lambda_0…lambda_K and G_1…G_{K+1} for delta [n]: both [n, K + 1].

    lambda_k·p is what k candidates can cover of the target; G_{k+1} is the mass they leave.
    """
    delta = delta.clamp(min=DELTA_MIN)
    half = 0.5 * delta
    covered, left = torch.zeros_like(delta), torch.ones_like(delta)
    all_covered, all_left = [covered], [left]
    for _ in range(width):
        covered = covered + left
        cut = covered.log() / delta
        left = torch.special.ndtr(half - cut) - covered * torch.special.ndtr(-half - cut)
        left = left.clamp(min=0.0)
        all_covered.append(covered)
        all_left.append(left)
    return torch.stack(all_covered, dim=1), torch.stack(all_left, dim=1)
