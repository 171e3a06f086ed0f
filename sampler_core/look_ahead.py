"""Look-ahead drafts: what the target said about a step in earlier rounds, carried over to the new state by secants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from .rows import Rows, as_slice, pick

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

    def guess(self, x: Tensor, rows: Rows, below: Rows) -> Tensor:
        """The outputs at states x [n, count, elements]. rows, below: [n] those of the steps and of the steps below."""
        moved = x - pick(self.x, rows)
        row = moved[:, :, None]  # products with a row vector on the left are several times faster
        own, other = pick(self.pair, rows), pick(self.pair, below)  # where there is none below, its mix is 0
        along = torch.cat([row @ own.mT, row @ other.mT], dim=3) @ pick(self.mix, rows)
        guess = torch.addcmul(pick(self.d, rows), pick(self.slope, rows), moved)
        return guess + (along[..., :2] @ own + along[..., 2:] @ other)[:, :, 0]


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

    def __init__(self, like: Tensor, steps: int) -> None:
        self._blocks = blocks = Blocks(like.shape[1:])
        self._least = LEAST**2 * blocks.elements
        # Where the last evaluation of a step is: the number of its round, -1 for none, and its row there.
        self._round = np.full((len(like), steps), -1)
        self._row = np.zeros((len(like), steps), dtype=np.int64)
        self._rounds: dict[int, Round] = {}
        self._count = 0
        self._secants = np.zeros((2, len(like), steps, blocks.count))

    def guess(self, x: Tensor, sigma: Tensor, images: np.ndarray, steps: np.ndarray, held: Tensor) -> Tensor:
        blocks = self._blocks.split(x)
        guess = held
        for places, found, rows in self._evaluated(images, steps):
            below = as_slice(np.maximum(found.below[rows], 0))
            if len(places) == len(x):
                return self._blocks.join(found.guess(blocks, as_slice(rows), below))
            part = self._blocks.join(found.guess(pick(blocks, as_slice(places)), as_slice(rows), below))
            guess = guess.index_copy(0, torch.from_numpy(places).to(x.device), part)
        return guess

    def observe(self, draft: Draft, path: Path, denoised: Tensor) -> None:
        images, steps = draft.images[path.line], draft.steps[path.line]
        line = as_slice(path.line)
        x, d = self._blocks.split(pick(draft.x, line)), self._blocks.split(pick(denoised, line))
        pair = x.new_empty(*x.shape[:2], 2, x.shape[2])
        again = np.zeros(len(x), dtype=bool)
        for places, found, rows in self._evaluated(images, steps):
            again[places] = True
            here, there = as_slice(places), as_slice(rows)
            for k, (old, new) in enumerate(((found.x, x), (found.d, d))):
                if isinstance(here, slice):
                    torch.sub(pick(old, there), new[here], out=pair[here, :, k])
                else:
                    pair[torch.from_numpy(here).to(x.device), :, k] = pick(old, there) - pick(new, here)
        if len(first := np.flatnonzero(~again)):  # a first point stands alone
            pair[as_slice(first)] = 0
        self._round[images, steps], self._row[images, steps] = self._count, np.arange(len(x))
        with_it = (steps > 0) & (self._round[images, steps - 1] == self._count)
        below = np.where(with_it, self._row[images, steps - 1], -1)

        upper = np.flatnonzero(with_it)
        products = [pair @ pair.mT, pick(pair, as_slice(upper)) @ pick(pair, as_slice(below[upper])).mT]
        # From here to the Jacobians it is scalars, which numpy handles in a fraction of torch's time.
        scalars = torch.cat(products).cpu().to(torch.float64).numpy()
        square, cross, other = scalars[: len(x)], np.zeros_like(scalars[: len(x)]), np.zeros_like(scalars[: len(x)])
        cross[upper], other[upper] = scalars[len(x) :], square[below[upper]]
        self._learn(images, steps, again, square)
        slope = self._pooled(images, steps)
        mixed = torch.from_numpy(_mix(square, cross, other, slope, self._least)).to(x)
        sloped = torch.from_numpy(slope[..., None]).to(x)
        self._rounds[self._count] = Round(steps, x, d, pair, sloped, below, mixed)
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

    def _learn(self, images: np.ndarray, steps: np.ndarray, again: np.ndarray, square: np.ndarray) -> None:
        """Add the secants <p, q> / <p, p> of steps that were evaluated before; square [rows, count, 2, 2]."""
        norm = square[..., 0, 0].sum(axis=1)
        usable = np.flatnonzero(again & (norm > self._least * self._blocks.count))
        new = square[usable][..., 0] / norm[usable, None, None]  # [usable, count, 2]
        b, i = images[usable], steps[usable]
        self._secants[:, b, i] = FADE * self._secants[:, b, i] + new.transpose(2, 0, 1)

    def _pooled(self, images: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """The slope of every block, [rows, count], from the secants of a step and the REACH steps below it."""
        lower = steps_below(steps)
        check_measurable(lower, steps[:, None])
        weight = np.where(lower >= 0, NEAR ** np.arange(REACH + 1), 0.0)
        n, m = (weight[..., None] * self._secants[:, images[:, None], np.maximum(lower, 0)]).sum(axis=2)
        pull = SHRINK * n.mean(axis=1, keepdims=True)
        common = m.sum(axis=1, keepdims=True) / np.maximum(n.sum(axis=1, keepdims=True), 1e-9)
        return np.clip((m + pull * common) / np.maximum(n + pull, 1e-9), *SLOPE)


def _mix(square: np.ndarray, cross: np.ndarray, other: np.ndarray, slope: np.ndarray, least: float) -> np.ndarray:
    """M with J = slope + F' M' F for the rows F = (p1, q1, p2, q2) of a block: [..., 4, 4].

    square, cross, other [..., 2, 2]: the products of the first pair (p1, q1) with itself, of the first with the second,
    of the second with itself; slope [...]. Pairs are scaled to |p| = 1; one no longer than rounding is left out.
    """
    squares = np.stack([square[..., 0, 0], other[..., 0, 0]], axis=-1)
    usable = squares > least
    scale = np.where(usable, 1.0 / np.sqrt(np.where(usable, squares, 1.0)), 0.0)
    both = scale[..., :, None] * scale[..., None, :]
    lam = slope[..., None, None]
    pp, qp = np.empty_like(both), np.empty_like(both)
    pp[..., 0, 0], pp[..., 1, 1] = squares[..., 0], squares[..., 1]
    pp[..., 0, 1] = pp[..., 1, 0] = cross[..., 0, 0]
    qp[..., 0, 0], qp[..., 0, 1], qp[..., 1, 0], qp[..., 1, 1] = (
        square[..., 1, 0],
        cross[..., 1, 0],
        cross[..., 0, 1],
        other[..., 1, 0],
    )
    pp, qp = pp * both, qp * both
    one, two, off = 1.0 + DOUBT[0], 1.0 + DOUBT[1], pp[..., 0, 1]
    determinant = one * two - off * off
    inverse = np.empty_like(both)
    inverse[..., 0, 0], inverse[..., 1, 1] = two / determinant, one / determinant
    inverse[..., 0, 1] = inverse[..., 1, 0] = -off / determinant
    # With S = P'r and T = V'r, V gets A S and P gets t A (T - V'P A S); V = Q - lambda P on both sides.
    of_t = SYMMETRY * inverse
    of_s = -of_t @ (qp - lam * pp) @ inverse
    mix = np.zeros((*slope.shape, 2, 2, 2, 2))  # [..., pair, p or q] of what is multiplied, the same of what is added
    mix[..., 0, :, 0] = ((of_s - lam * (of_t + inverse)) * both).swapaxes(-1, -2)
    mix[..., 1, :, 0] = (of_t * both).swapaxes(-1, -2)
    mix[..., 0, :, 1] = (inverse * both).swapaxes(-1, -2)
    return mix.reshape(*slope.shape, 4, 4)


def steps_below(steps: np.ndarray) -> np.ndarray:
    """The steps whose secants are pooled for a guess at each of these: [n] -> [n, REACH + 1], nearest first."""
    return steps[:, None] - np.arange(REACH + 1)


def check_measurable(stamps: np.ndarray, steps: np.ndarray) -> None:
    """A guess at step j may read what was evaluated at steps <= j only; anything newer has seen its noise."""
    assert (stamps <= steps).all(), "measurability: a guess reads an evaluation that depends on its own noise"
