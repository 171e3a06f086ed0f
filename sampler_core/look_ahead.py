"""Look-ahead drafts: what the target said about a step in earlier rounds, carried over to the new state by secants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from .growth import Draft
    from .verification import Path

FADE = 0.7  # of a step's older secants at every new one
REACH = 3  # steps below whose secants are pooled
NEAR = 0.3  # weight of the next lower step's secants against a step's own
SHRINK = 0.3  # pull of a block's slope towards the global one
SLOPE = (-3.0, 1.5)  # guidance makes slopes negative: D = w D_c - (w - 1) D_u
PAIR = 3.0  # bound of a pair's coefficient
BLOCK = 8  # latent pixels
LEAST = 2e-5  # root mean square of a displacement that tells more of the target than of its rounding


class Blocks:
    """Square blocks of the last two dimensions of a latent; a latent of fewer than three dimensions is one block."""

    def __init__(self, shape: torch.Size, size: int = BLOCK) -> None:
        self._grid: tuple[int, int] | None = None
        if len(shape) >= 3 and (shape[-1] > size or shape[-2] > size):
            self._grid = (-(-shape[-2] // size), -(-shape[-1] // size))
            self._size, self._tail = size, (shape[-2], shape[-1])
        self.count = self._grid[0] * self._grid[1] if self._grid else 1

    def dot(self, a: Tensor, b: Tensor) -> Tensor:
        """Sums of a * b over every block: [rows, ...] twice -> [rows, count]."""
        if self._grid is None:
            return torch.linalg.vecdot(a.flatten(1), b.flatten(1), dim=1)[:, None]
        product = (a * b).reshape(len(a), -1, *self._tail).sum(dim=1)
        (h, w), s = self._grid, self._size
        if (h * s, w * s) != self._tail:
            product = torch.nn.functional.pad(product, (0, w * s - self._tail[1], 0, h * s - self._tail[0]))
        return product.reshape(len(a), h, s, w, s).sum(dim=(2, 4)).flatten(1)

    def spread(self, c: Tensor, like: Tensor) -> Tensor:
        """A coefficient for every block, shaped to multiply `like`: [rows, count] -> [rows, 1, ..., H, W]."""
        ones = [1] * (like.ndim - 1)
        if self._grid is None:
            return c.reshape(-1, *ones)
        (h, w), s = self._grid, self._size
        full = c.reshape(len(c), h, 1, w, 1).expand(len(c), h, s, w, s).reshape(len(c), h * s, w * s)
        return full[:, : self._tail[0], : self._tail[1]].reshape(len(c), *ones[:-2], *self._tail)


class LookAhead:
    """The last evaluation at a step, moved to the new state by a secant of the step's own and a pooled slope.

    Per image and step, newest first: the point (X, D) and its difference (P, Q) to the point before. A new point adds
    the secant <P, Q> / <P, P> of each block to the step's statistics; slopes pool the REACH steps below too.

    The measurability rule (see `drafting`): a state at step i is built from noises before step i, so what is stored
    for step i may serve guesses at steps j >= i and no others. Reads go through `_own` and `_pooled`, which assert it.
    """

    name = "look_ahead"
    needs_history = True

    def __init__(self, like: Tensor, steps: int, depth: int) -> None:
        images, shape = len(like), like.shape[1:]
        self._blocks = Blocks(shape)
        self._slots = depth + 1
        self._least = LEAST**2 * shape.numel()
        store = (images, self._slots, *shape)
        self._x, self._d, self._p, self._q = (like.new_zeros(store) for _ in range(4))
        # The stamp of what a slot holds: the step it was evaluated at; -1 for nothing.
        self._stamp = np.full((images, self._slots), -1)
        self._points = np.zeros((images, self._slots), dtype=np.int64)
        self._pp = like.new_zeros(images, self._slots, self._blocks.count)
        self._secants = like.new_zeros(2, images, steps, self._blocks.count)

    def guess(self, x: Tensor, sigma: Tensor, images: np.ndarray, steps: np.ndarray, held: Tensor) -> Tensor:
        slots, points = self._own(images, steps)
        if not points.any():
            return held
        b, s = (torch.from_numpy(a).to(x.device) for a in (images, slots))
        moved = x - self._x[b, s]
        base = self._d[b, s]
        if (points > 1).any():
            p, pp = self._p[b, s], self._pp[b, s]
            least = self._least / self._blocks.count
            c = (self._blocks.dot(moved, p) / (1.003 * pp + least)).clamp(-PAIR, PAIR)
            wide = self._blocks.spread(c, x)
            base = torch.addcmul(base, wide, self._q[b, s])
            moved = torch.addcmul(moved, wide, p, value=-1)
        guess = torch.addcmul(base, self._blocks.spread(self._pooled(images, steps), x), moved)
        if points.all():
            return guess
        known = torch.from_numpy(points > 0).to(x.device).reshape(-1, *[1] * (x.ndim - 1))
        return torch.where(known, guess, held)

    def observe(self, draft: Draft, path: Path, denoised: Tensor) -> None:
        rows = path.line
        images, steps = draft.images[rows], draft.steps[rows]
        slots = steps % self._slots
        again = self._stamp[images, slots] == steps
        row, b, s = (torch.from_numpy(a).to(denoised.device) for a in (rows, images, slots))
        x, d = draft.x[row], denoised[row]
        # A slot that held another step gives no pair: its first point stands alone.
        pair = torch.from_numpy(again).to(x).reshape(-1, *[1] * (x.ndim - 1))
        p, q = pair * (self._x[b, s] - x), pair * (self._d[b, s] - d)
        pp = self._blocks.dot(p, p)
        self._x[b, s], self._d[b, s], self._p[b, s], self._q[b, s], self._pp[b, s] = x, d, p, q, pp
        self._points[images, slots] = np.where(again, self._points[images, slots] + 1, 1)
        self._stamp[images, slots] = steps
        if not again.any():
            return
        i = torch.from_numpy(steps).to(denoised.device)
        norm = pp.sum(dim=1, keepdim=True)
        usable = torch.from_numpy(again).to(denoised.device)[:, None] & (norm > self._least)
        new = torch.stack([pp, self._blocks.dot(p, q)]) / norm.clamp_min(self._least)
        old = self._secants[:, b, i]
        self._secants[:, b, i] = torch.where(usable, FADE * old + new, old)

    def _own(self, images: np.ndarray, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The slots of these steps and how many points they hold (2 and more count as 2 points)."""
        slots = steps % self._slots
        stamps = self._stamp[images, slots]
        points = np.where(stamps == steps, self._points[images, slots], 0)
        check_measurable(stamps[points > 0], steps[points > 0])
        return slots, points

    def _pooled(self, images: np.ndarray, steps: np.ndarray) -> Tensor:
        """The slope of every block, [rows, count], from the secants of a step and the REACH steps below it."""
        device = self._secants.device
        lower = steps_below(steps)
        check_measurable(lower, steps[:, None])
        weight = np.where(lower >= 0, NEAR ** np.arange(REACH + 1), 0.0)
        b = torch.from_numpy(images).to(device)[:, None]
        found = self._secants[:, b, torch.from_numpy(np.maximum(lower, 0)).to(device)]
        n, m = torch.einsum("trkw,rk->trw", found, torch.from_numpy(weight).to(found))
        pull = SHRINK * n.mean(dim=1, keepdim=True)
        common = m.sum(dim=1, keepdim=True) / n.sum(dim=1, keepdim=True).clamp_min(1e-9)
        return ((m + pull * common) / (n + pull).clamp_min(1e-9)).clamp(*SLOPE)


def steps_below(steps: np.ndarray) -> np.ndarray:
    """The steps whose secants are pooled for a guess at each of these: [n] -> [n, REACH + 1], nearest first."""
    return steps[:, None] - np.arange(REACH + 1)


def check_measurable(stamps: np.ndarray, steps: np.ndarray) -> None:
    """A guess at step j may read what was evaluated at steps <= j only; anything newer has seen its noise."""
    assert (stamps <= steps).all(), "measurability: a guess reads an evaluation that depends on its own noise"
