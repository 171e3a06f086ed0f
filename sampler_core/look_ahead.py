"""Look-ahead drafts: what the target said about a step in earlier rounds, carried over to the new state by secants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from .rows import pick

if TYPE_CHECKING:
    from .growth import Draft
    from .verification import Path

FADE = 0.7  # of a step's older secants at every new one
REACH = 3  # steps below whose secants are pooled
NEAR = 0.3  # weight of the next lower step's secants against a step's own
SHRINK = 0.3  # pull of a block's slope towards the global one
SLOPE = (-3.0, 1.5)  # guidance makes slopes negative: D = w D_c - (w - 1) D_u
SYMMETRY = 0.8  # how far the target's Jacobian is taken to be symmetric; that of a perfect denoiser is
DOUBT = (0.003, 0.303)  # of the step's own pair, and of the pair of the step below
BLOCK = 8  # latent pixels
LEAST = 2e-5  # root mean square of a displacement that tells more of the target than of its rounding


class Blocks:
    """Square blocks of the last two dimensions of a latent; a latent of fewer than three dimensions is one block."""

    def __init__(self, shape: torch.Size, size: int = BLOCK) -> None:
        self._shape = tuple(shape)
        self.count, self.elements = 1, shape.numel()
        self._grid: tuple[int, int] | None = None
        if len(shape) >= 3 and (shape[-1] > size or shape[-2] > size):
            self._grid = h, w = -(-shape[-2] // size), -(-shape[-1] // size)
            self._size, self._pad = size, (0, w * size - shape[-1], 0, h * size - shape[-2])
            self._depth = shape.numel() // (shape[-1] * shape[-2])
            self.count, self.elements = h * w, self._depth * size * size

    def split(self, x: Tensor) -> Tensor:
        """[rows, ...] -> [rows, count, elements], zeros where a block hangs over the edge."""
        if self._grid is None:
            return x.reshape(len(x), 1, -1)
        (h, w), s = self._grid, self._size
        x = x.reshape(len(x), self._depth, *self._shape[-2:])
        if any(self._pad):
            x = torch.nn.functional.pad(x, self._pad)
        return x.reshape(len(x), self._depth, h, s, w, s).permute(0, 2, 4, 1, 3, 5).reshape(len(x), h * w, -1)

    def join(self, blocks: Tensor) -> Tensor:
        """The inverse of `split`."""
        if self._grid is None:
            return blocks.reshape(len(blocks), *self._shape)
        (h, w), s = self._grid, self._size
        x = blocks.reshape(-1, h, w, self._depth, s, s).permute(0, 3, 1, 4, 2, 5)
        x = x.reshape(len(blocks), self._depth, h * s, w * s)
        if any(self._pad):
            x = x[..., : self._shape[-2], : self._shape[-1]]
        return x.reshape(len(blocks), *self._shape)


@dataclass(frozen=True)
class Round:
    """Rows evaluated together, in blocks: states x and outputs d [rows, count, elements], the pair p, q of each
    [rows, count, 2, elements] with its slope [rows, count, 1], below: [rows] the row of the step below, or -1, and
    mix [rows, count, 4, 4], which makes a Jacobian of both pairs. steps: [rows] the stamp of all this.
    """

    steps: np.ndarray
    x: Tensor
    d: Tensor
    pair: Tensor
    slope: Tensor
    below: np.ndarray
    mix: Tensor

    def move(self, moved: Tensor, rows: np.ndarray) -> Tensor:
        """The outputs at states [n, count, elements], given minus the x of these rows."""
        row = moved[:, :, None]  # products with a row vector on the left are several times faster
        own = pick(self.pair, rows)
        beside = [own, pick(self.pair, np.maximum(self.below[rows], 0))]  # where there is none its mix is 0
        along = torch.cat([row @ pair.mT for pair in beside], dim=3) @ pick(self.mix, rows)
        guess = torch.addcmul(pick(self.d, rows), pick(self.slope, rows), moved)
        for pair, part in zip(beside, along.split(2, dim=3), strict=True):
            guess = guess + (part @ pair)[:, :, 0]
        return guess


class LookAhead:
    """The last evaluation at a step, moved to the new state along a model of the target's Jacobian.

    In every block of the latent, guess(x) = D + J (x - X) at a step last evaluated as D at X, with

        J = lambda + V A P' + t (P A V' - P A V' P A P'),    V = Q - lambda P,    A = (P'P + doubt)^-1.

    P, Q: the differences of the two last states of the step, and of its outputs; beside them those of the step below.
    lambda: the slopes <P, Q> / <P, P> pooled over the step and the REACH steps below. The first two terms reproduce the
    pairs, J P = Q; the bracket adds their mirror image, because the Jacobian of a denoiser is symmetric, and leaves
    J P = Q. The pairs know few directions: a kick along a new one is known by its share of the old ones. Source: this
    project, after Powell's symmetric Broyden update.

    J is worked out when a step is evaluated, for the whole round in one go; a guess is a few small products.

    The measurability rule (see `drafting`): a state at step i is built from noises before step i, so what is stored
    for step i may serve guesses at steps j >= i and no others. Everything read for a step goes through
    `check_measurable`, which asserts it.
    """

    name = "look_ahead"
    needs_history = True

    def __init__(self, like: Tensor, steps: int, depth: int) -> None:
        self._blocks = blocks = Blocks(like.shape[1:])
        self._least = LEAST**2 * blocks.elements
        # Where the last evaluation of a step is: the number of its round, -1 for none, and its row there.
        self._round = np.full((len(like), steps), -1)
        self._row = np.zeros((len(like), steps), dtype=np.int64)
        self._rounds: dict[int, Round] = {}
        self._count = 0
        self._secants = like.new_zeros(2, len(like), steps, blocks.count)

    def guess(self, x: Tensor, sigma: Tensor, images: np.ndarray, steps: np.ndarray, held: Tensor) -> Tensor:
        blocks = self._blocks.split(x)
        guess = held
        for places, found, rows in self._evaluated(images, steps):
            part = self._blocks.join(found.move(pick(blocks, places) - pick(found.x, rows), rows))
            if len(places) == len(x):
                return part
            guess = guess.index_copy(0, torch.from_numpy(places).to(x.device), part)
        return guess

    def observe(self, draft: Draft, path: Path, denoised: Tensor) -> None:
        images, steps = draft.images[path.line], draft.steps[path.line]
        x, d = (self._blocks.split(pick(t, path.line)) for t in (draft.x, denoised))
        pair = x.new_zeros(*x.shape[:2], 2, x.shape[2])  # a first point stands alone
        again = np.zeros(len(x), dtype=bool)
        for places, found, rows in self._evaluated(images, steps):
            again[places] = True
            here = torch.from_numpy(places).to(x.device) if len(places) > 1 and (np.diff(places) != 1).any() else None
            for k, (old, new) in enumerate(((found.x, x), (found.d, d))):
                if here is None:
                    torch.sub(pick(old, rows), pick(new, places), out=pair[places[0] : places[-1] + 1, :, k])
                else:
                    pair[here, :, k] = pick(old, rows) - pick(new, places)
        self._round[images, steps], self._row[images, steps] = self._count, np.arange(len(x))
        below = np.where(steps > 0, self._row[images, steps - 1], -1)
        below[self._round[images, steps - 1] != self._count] = -1
        below[steps == 0] = -1

        square = pair @ pair.mT
        beside = pick(pair, np.maximum(below, 0))
        cross, other = pair @ beside.mT, pick(square, np.maximum(below, 0))
        if (below < 0).any():
            alone = torch.from_numpy(below < 0).to(x.device)[:, None, None, None]
            cross, other = cross.masked_fill(alone, 0.0), other.masked_fill(alone, 0.0)
        self._learn(images, steps, again, square)
        slope = self._pooled(images, steps)
        gram = torch.cat([torch.cat([square, cross], dim=3), torch.cat([cross.mT, other], dim=3)], dim=2)
        mix = _mix(gram, slope, self._least)
        self._rounds[self._count] = Round(steps, x, d, pair, slope[..., None], below, mix)
        self._count += 1
        self._forget(draft.active[draft.layout.image[: len(draft.active)]], draft.steps[: len(draft.active)])

    def _evaluated(self, images: np.ndarray, steps: np.ndarray) -> list[tuple[np.ndarray, Round, np.ndarray]]:
        """The last evaluations of these steps: for each round, the places in `steps`, the round, its rows."""
        number, row = self._round[images, steps], self._row[images, steps]
        found = []
        for n in dict.fromkeys(number[number >= 0].tolist()):
            places = np.flatnonzero(number == n)
            there = self._rounds[n]
            check_measurable(there.steps[row[places]], steps[places])
            found.append((places, there, row[places]))
        return found

    def _forget(self, images: np.ndarray, roots: np.ndarray) -> None:
        """Drop what was evaluated before the roots of this round, and the rounds that nothing refers to."""
        self._round[images] = np.where(np.arange(self._round.shape[1]) < roots[:, None], -1, self._round[images])
        live = set(self._round.ravel().tolist())
        self._rounds = {n: kept for n, kept in self._rounds.items() if n in live}

    def _learn(self, images: np.ndarray, steps: np.ndarray, again: np.ndarray, square: Tensor) -> None:
        """Add the secants <p, q> / <p, p> of steps that were evaluated before; square [rows, count, 2, 2]."""
        if not again.any():
            return
        new = square[..., 0].permute(2, 0, 1)  # <p, p> and <p, q>, [2, rows, count]
        norm = new[0].sum(dim=1, keepdim=True)
        least = self._least * self._blocks.count
        usable = torch.from_numpy(again).to(norm.device)[:, None] & (norm > least)
        b, i = (torch.from_numpy(a).to(norm.device) for a in (images, steps))
        old = self._secants[:, b, i]
        self._secants[:, b, i] = torch.where(usable, FADE * old + new / norm.clamp_min(least), old)

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


def _mix(gram: Tensor, slope: Tensor, least: float) -> Tensor:
    """N' with J = slope + F' N F for the rows F = (p1, q1, p2, q2) of a block; gram = F F' [..., 4, 4], slope [...].

    The pairs are scaled to |p| = 1; one whose p is no longer than rounding is left out.
    """
    squares = gram.diagonal(dim1=-2, dim2=-1)[..., ::2]
    scale = torch.where(squares > least, squares, torch.inf).rsqrt()  # [..., 2]
    lam = slope[..., None, None]
    both = scale[..., :, None] * scale[..., None, :]
    pp = gram[..., ::2, ::2] * both
    vp = gram[..., 1::2, ::2] * both - lam * pp  # V' P
    doubt = torch.tensor(DOUBT, dtype=gram.dtype, device=gram.device)
    one, two, off = 1 + doubt[0], 1 + doubt[1], pp[..., 0, 1]
    inverse = torch.stack(
        [torch.stack([two.expand_as(off), -off], -1), torch.stack([-off, one.expand_as(off)], -1)], -2
    )
    inverse = inverse / (one * two - off * off)[..., None, None]
    # Coefficients of V and P as functions of S = P' r and T = V' r: V gets A S, P gets t A (T - V'P A S).
    of_t = SYMMETRY * inverse
    of_s = -of_t @ vp @ inverse
    # In terms of p' r and q' r, and for p and q: V = Q - lambda P on both sides.
    p_p = of_s - lam * (of_t + inverse)
    mixed = torch.stack([torch.stack([p_p, of_t], -1), torch.stack([inverse, torch.zeros_like(of_t)], -1)], -3)
    mixed = mixed * both[..., :, None, :, None]  # [..., pair, p or q, pair, p or q]
    return mixed.reshape(*slope.shape, 4, 4).mT.contiguous()


def steps_below(steps: np.ndarray) -> np.ndarray:
    """The steps whose secants are pooled for a guess at each of these: [n] -> [n, REACH + 1], nearest first."""
    return steps[:, None] - np.arange(REACH + 1)


def check_measurable(stamps: np.ndarray, steps: np.ndarray) -> None:
    """A guess at step j may read what was evaluated at steps <= j only; anything newer has seen its noise."""
    assert (stamps <= steps).all(), "measurability: a guess reads an evaluation that depends on its own noise"
