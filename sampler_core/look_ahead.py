"""Look-ahead drafts: what the target said about a step in earlier rounds, carried over to the new state by secants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from .rows import Rows, as_slice, pick, put

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
LEAST = 2e-5  # root mean square of a displacement that tells more of the target than of its rounding


@dataclass(frozen=True)
class Round:
    """Rows evaluated together: states x and outputs d [rows, count, elements], slope [rows, count, 1].

    pair: [count, slots, 2, elements], the pair p, q of every row in the slot it has, a slot of zeros before each
    image's first; the slot before a row's is that of the step below. slot: [rows]. mix: [rows, count, 4, 4], which
    makes a Jacobian of both pairs. steps: [rows] the stamp of all this.
    """

    steps: np.ndarray
    x: Tensor
    d: Tensor
    pair: Tensor
    slot: np.ndarray
    slope: Tensor
    mix: Tensor

    def guess(self, x: Tensor, rows: np.ndarray) -> Tensor:
        """The outputs at states x [n, count, elements]; rows: [n] those of their steps."""
        here = as_slice(rows)
        if len(rows) == 1:
            row, slot = int(rows[0]), int(self.slot[rows[0]])
            pairs, mix = self.pair[:, slot - 1 : slot + 1].flatten(1, 2), self.mix[row]
        else:
            slots = torch.from_numpy(self.slot[rows][:, None] + np.array([-1, 0])).to(x.device)
            blocks = torch.arange(x.shape[1], device=x.device)[:, None]
            pairs = self.pair[blocks, slots[:, None]].reshape(-1, 4, x.shape[2])
            mix = pick(self.mix, here).flatten(0, 1)
        moved = x - pick(self.x, here)
        row_wise = moved.reshape(-1, 1, x.shape[2])  # products with a row vector on the left are several times faster
        along = torch.bmm(torch.bmm(row_wise, pairs.mT), mix)
        guess = torch.addcmul(pick(self.d, here), pick(self.slope, here), moved)
        guess.view(row_wise.shape).baddbmm_(along, pairs)
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

    def __init__(self, like: Tensor, steps: int) -> None:
        images, count, elements = like.shape
        self._least = LEAST**2 * elements
        # Where the last evaluation of a step is: the number of its round, -1 for none, and its row there.
        self._round = np.full((images, steps), -1)
        self._row = np.zeros((images, steps), dtype=np.int64)
        self._rounds: dict[int, Round] = {}
        self._count = 0
        self._secants = np.zeros((2, images, steps, count))

    def guess(self, x: Tensor, sigma: Tensor, images: np.ndarray, steps: np.ndarray, held: Tensor) -> Tensor:
        guess = held
        for places, found, rows in self._evaluated(images, steps):
            if len(places) == len(x):
                return found.guess(x, rows)
            part = found.guess(pick(x, as_slice(places)), rows)
            guess = guess.index_copy(0, torch.from_numpy(places).to(x.device), part)
        return guess

    def observe(self, draft: Draft, path: Path, denoised: Tensor) -> None:
        images, steps, line, firsts = _in_order(draft, path)
        x, d = pick(draft.x, line), pick(denoised, line)
        rows = np.arange(len(x))
        slot = rows + np.cumsum(firsts)
        pair = x.new_empty(x.shape[1], int(slot[-1]) + 1, 2, x.shape[2])
        again = np.zeros(len(x), dtype=bool)
        for places, found, found_rows in self._evaluated(images, steps):
            again[places] = True
            here, slots, there = as_slice(places), as_slice(slot[places]), as_slice(found_rows)
            for k, (old, new) in enumerate(((found.x, x), (found.d, d))):
                if isinstance(slots, slice):
                    torch.sub(pick(old, there), pick(new, here), out=pair[:, slots, k].transpose(0, 1))
                else:
                    change = pick(old, there) - pick(new, here)
                    pair[:, torch.from_numpy(slots).to(x.device), k] = change.transpose(0, 1)
        # A first point stands alone, and so does a first step.
        for empty in (slot[firsts] - 1, slot[~again]):
            put(pair.transpose(0, 1), as_slice(empty), 0.0)
        # From here to the Jacobians it is scalars, which numpy handles in a fraction of torch's time.
        square, cross = products(pair)
        self._round[images, steps], self._row[images, steps] = self._count, rows
        self._learn(images, steps, again, square[:, :, slot])
        slope = self._pooled(images, steps)
        mix = _mix(square[:, :, slot], cross[:, :, slot], square[:, :, slot - 1], slope, self._least)
        mixed = torch.from_numpy(mix).to(x)
        sloped = torch.from_numpy(slope[..., None]).to(x)
        self._rounds[self._count] = Round(steps, x, d, pair, slot, sloped, mixed)
        self._count += 1
        self._forget(draft.active[draft.layout.image[: len(draft.active)]], draft.steps[: len(draft.active)])

    def _evaluated(self, images: np.ndarray, steps: np.ndarray) -> list[tuple[np.ndarray, Round, np.ndarray]]:
        """The last evaluations of these steps: for each round, the places in `steps`, the round, its rows."""
        number, row = self._round[images, steps], self._row[images, steps]
        if len(number) == 1:
            if (n := int(number[0])) < 0:
                return []
            check_measurable(self._rounds[n].steps[row], steps)
            return [(np.zeros(1, dtype=np.int64), self._rounds[n], row)]
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
        """Add the secants <p, q> / <p, p> of steps that were evaluated before; square: [2, 2, rows, count]."""
        norm = square[0, 0].sum(axis=1)
        usable = np.flatnonzero(again & (norm > self._least * square.shape[3]))
        b, i = images[usable], steps[usable]
        new = square[:, 0, usable] / norm[usable, None]
        self._secants[:, b, i] = FADE * self._secants[:, b, i] + new

    def _pooled(self, images: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """The slope of every block, [rows, count], from the secants of a step and the REACH steps below it."""
        lower = steps_below(steps)
        check_measurable(lower, steps[:, None])
        weight = np.where(lower >= 0, NEAR ** np.arange(REACH + 1), 0.0)
        n, m = (weight[..., None] * self._secants[:, images[:, None], np.maximum(lower, 0)]).sum(axis=2)
        pull = SHRINK * n.mean(axis=1, keepdims=True)
        common = m.sum(axis=1, keepdims=True) / np.maximum(n.sum(axis=1, keepdims=True), 1e-9)
        return np.clip((m + pull * common) / np.maximum(n + pull, 1e-9), *SLOPE)


def _in_order(draft: Draft, path: Path) -> tuple[np.ndarray, np.ndarray, Rows, np.ndarray]:
    """The rows of every line, image by image in the order of their steps, of which none is left out.

    Returns images, steps and rows [l], and firsts [l], true at the first row of an image.
    """
    line, firsts = path.line, np.zeros(len(path.line), dtype=bool)
    if len(draft.active) > 1:
        line = line[np.lexsort((draft.steps[line], draft.images[line]))]
        firsts[1:] = draft.images[line[1:]] != draft.images[line[:-1]]
    firsts[0] = True
    return draft.images[line], draft.steps[line], as_slice(line), firsts


def products(pair: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The products of the rows (p, q) of every slot with themselves, and with those of the slot before.

    pair: [count, slots, 2, elements]. Returns square and cross [2, 2, slots, count]; cross of the first slot is 0.
    """
    flat = pair.flatten(0, 1)
    parts = [torch.bmm(flat, flat.mT)]
    for start in (0, 1):  # neighbours, two by two; some stand on both sides of a border between blocks
        two = flat[start : len(flat) - (len(flat) - start) % 2].unflatten(0, (-1, 2))
        parts.append(torch.bmm(two[:, 1], two[:, 0].mT))
    square, odd, even = (part.cpu().to(torch.float64).numpy() for part in parts)
    cross = np.zeros_like(square)
    cross[1::2], cross[2::2] = odd, even
    count, slots = pair.shape[:2]
    square, cross = (part.reshape(count, slots, 2, 2).transpose(2, 3, 1, 0) for part in (square, cross))
    cross[:, :, 0] = 0
    return square, cross


def _mix(square: np.ndarray, cross: np.ndarray, below: np.ndarray, slope: np.ndarray, least: float) -> np.ndarray:
    """M with J = slope + F' M' F for the rows F = (p2, q2, p1, q1) of a block: [..., 4, 4].

    square, cross, below [2, 2, ...]: the products of the own pair (p1, q1) with itself, of it with the pair of the step
    below (p2, q2), of that with itself; slope [...]. Pairs are scaled to |p| = 1; one no longer than rounding is left
    out.
    """
    scales = []
    for squared in (square[0, 0], below[0, 0]):
        usable = squared > least
        scales.append(np.where(usable, 1.0 / np.sqrt(np.where(usable, squared, 1.0)), 0.0))
    one, two = scales
    both = one * two
    # P'P, of which the diagonal is 1, and V'P = Q'P - lambda P'P.
    off = cross[0, 0] * both
    v11, v22 = (square[1, 0] - slope * square[0, 0]) * one * one, (below[1, 0] - slope * below[0, 0]) * two * two
    v12, v21 = cross[1, 0] * both - slope * off, cross[0, 1] * both - slope * off
    # A = (P'P + doubt)^-1
    scale = 1.0 / ((1.0 + DOUBT[0]) * (1.0 + DOUBT[1]) - off * off)
    a11, a22, a12 = (1.0 + DOUBT[1]) * scale, (1.0 + DOUBT[0]) * scale, -off * scale
    # With S = P'r and T = V'r, V gets A S and P gets t A (T - V'P A S); V = Q - lambda P on both sides.
    w11, w12, w21, w22 = v11 * a11 + v12 * a12, v11 * a12 + v12 * a22, v21 * a11 + v22 * a12, v21 * a12 + v22 * a22
    twice = (1.0 + SYMMETRY) * slope
    mix = np.zeros((4, 4, *slope.shape))  # what is multiplied, what is added
    inverse, carried = ((a11, a12), (a12, a22)), ((w11, w12), (w21, w22))
    pairs = (0, 2, one), (1, 0, two)
    for i, to, own in pairs:
        for j, of, other in pairs:
            size = own * other
            add = inverse[i][j] * size
            back = (inverse[i][0] * carried[0][j] + inverse[i][1] * carried[1][j]) * size
            mix[of, to + 1], mix[of + 1, to] = add, SYMMETRY * add
            mix[of, to] = -SYMMETRY * back - twice * add
    return np.ascontiguousarray(np.moveaxis(mix, (0, 1), (-2, -1)))


def steps_below(steps: np.ndarray) -> np.ndarray:
    """The steps whose secants are pooled for a guess at each of these: [n] -> [n, REACH + 1], nearest first."""
    return steps[:, None] - np.arange(REACH + 1)


def check_measurable(stamps: np.ndarray, steps: np.ndarray) -> None:
    """A guess at step j may read what was evaluated at steps <= j only; anything newer has seen its noise."""
    assert (stamps <= steps).all(), "measurability: a guess reads an evaluation that depends on its own noise"
