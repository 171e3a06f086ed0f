"""Look-ahead drafts: what the target said about a step in earlier rounds, carried over to the new state by secants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from .rows import Rows, as_slice, pick, put

if TYPE_CHECKING:
    from .drafting import Guess
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

    pair: [count, 2 * slots, elements], pairs p, q of consecutive steps, slot by slot. window: [rows] the slot of the
    step below a row's own, after which comes its own; -1 where neither is known. mix: [slots, count, 4, 4], which makes
    a Jacobian of the two pairs of a window. steps: [rows] the stamp of all this.
    """

    steps: np.ndarray
    x: Tensor
    d: Tensor
    slope: Tensor
    pair: Tensor
    window: np.ndarray
    mix: Tensor

    def guess(self, x: Tensor, row: int, out: Tensor) -> None:
        """Write the output at the state x [1, count, elements] into out; row: that of its step."""
        moved = x - self.x[row : row + 1]
        torch.addcmul(self.d[row : row + 1], self.slope[row : row + 1], moved, out=out)
        if (slot := int(self.window[row])) >= 0:
            pairs = self.pair[:, 2 * slot : 2 * slot + 4]
            # Products with a row vector on the left are several times faster.
            along = torch.bmm(torch.bmm(moved.transpose(0, 1), pairs.mT), self.mix[slot])
            out.transpose(0, 1).baddbmm_(along, pairs)

    def guess_many(self, x: Tensor, rows: np.ndarray) -> Tensor:
        """The same for several states [n, count, elements] and rows [n], as a new tensor."""
        here = as_slice(rows)
        moved = x - pick(self.x, here)
        guess = torch.addcmul(pick(self.d, here), pick(self.slope, here), moved)
        known = np.flatnonzero(self.window[rows] >= 0)
        if len(known):
            slots = torch.from_numpy(self.window[rows[known]]).to(x.device)
            places = 2 * slots[:, None, None] + torch.arange(4, device=x.device)
            blocks = torch.arange(x.shape[1], device=x.device)[:, None]
            pairs = self.pair[blocks, places].flatten(0, 1)  # [n * count, 4, elements]
            mix = self.mix[slots].flatten(0, 1)
            some = as_slice(known)
            row_wise = pick(moved, some).reshape(-1, 1, x.shape[2])
            along = torch.bmm(torch.bmm(row_wise, pairs.mT), mix)
            put(guess, some, pick(guess, some) + torch.bmm(along, pairs).view(len(known), *x.shape[1:]))
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

    def guesses(self, images: np.ndarray, steps: np.ndarray) -> Guess:
        number, row = self._round[images, steps], self._row[images, steps]
        for n in set(number.tolist()) - {-1}:
            mine = number == n
            check_measurable(self._rounds[n].steps[row[mine]], steps[mine])
        numbers, rows = number.tolist(), row.tolist()

        def guess(places: slice, x: Tensor, held: Tensor, out: Tensor) -> None:
            if places.stop - places.start == 1:
                n = numbers[places.start]
                if n < 0:
                    out.copy_(held)
                else:
                    self._rounds[n].guess(x, rows[places.start], out)
                return
            out.copy_(held)
            for n in dict.fromkeys(numbers[places]):
                if n >= 0:
                    mine = np.flatnonzero(number[places] == n)
                    some = as_slice(mine)
                    put(out, some, self._rounds[n].guess_many(pick(x, some), row[places][mine]))

        return guess

    def observe(self, draft: Draft, path: Path, denoised: Tensor) -> None:
        """Learn from the rows where paths end, and from the drafted ones below, of steps to come."""
        images, steps, line, firsts = _in_order(draft, path)
        x, d = pick(draft.x, line), pick(denoised, line)
        slots = _Slots(firsts, self._round[images, steps] >= 0)
        pair = x.new_empty(x.shape[1], 2 * slots.count, x.shape[2])
        parts = pair.unflatten(1, (-1, 2))
        for places, found, there in self._evaluated(images, steps):
            here, own = as_slice(places), as_slice(slots.own[places])
            for k, (old, new) in enumerate(((found.x, x), (found.d, d))):
                if isinstance(own, slice):
                    torch.sub(pick(old, as_slice(there)), pick(new, here), out=parts[:, own, k].transpose(0, 1))
                else:
                    change = pick(old, as_slice(there)) - pick(new, here)
                    parts[:, torch.from_numpy(own).to(x.device), k] = change.transpose(0, 1)
        if slots.count:
            put(parts.transpose(0, 1), as_slice(slots.empty), 0.0)
        # From here to the Jacobians it is scalars, which numpy handles in a fraction of torch's time.
        gram = products(parts)
        again = np.flatnonzero(slots.again)
        self._learn(images[again], steps[again], gram[:2, :2, slots.own[again]])
        slope = self._pooled(images, steps)
        row = np.flatnonzero(slots.window >= 0)
        window = slots.window[row]
        mix = np.zeros((slots.count, x.shape[1], 4, 4))
        mix[window] = _mix(gram[:, :, window], slope[row], self._least)
        ahead = ~firsts
        rows = np.flatnonzero(ahead)
        self._round[images[ahead], steps[ahead]], self._row[images[ahead], steps[ahead]] = self._count, rows
        sloped = torch.from_numpy(slope[..., None]).to(x)
        self._rounds[self._count] = Round(steps, x, d, sloped, pair, slots.window, torch.from_numpy(mix).to(x))
        self._count += 1
        self._forget(images[firsts], steps[firsts])

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

    def _forget(self, images: np.ndarray, steps: np.ndarray) -> None:
        """Drop what was evaluated up to these steps, which are done, and the rounds that nothing refers to."""
        for image, step in zip(images.tolist(), steps.tolist(), strict=True):
            self._round[image, : step + 1] = -1
        live = set(self._round.ravel().tolist())
        self._rounds = {n: kept for n, kept in self._rounds.items() if n in live}

    def _learn(self, images: np.ndarray, steps: np.ndarray, square: np.ndarray) -> None:
        """Add the secants <p, q> / <p, p> of steps that were evaluated before; square: [2, 2, rows, count]."""
        norm = square[0, 0].sum(axis=1)
        usable = norm > self._least * square.shape[3]
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


class _Slots:
    """Where the pairs of a round's rows lie: of each image the rows that were evaluated before, then a slot of zeros.

    firsts, again: [rows] the first row of an image, and those evaluated before, which come first. own: [rows] the slot
    of a row's pair, window: [rows] the slot of the row above it, -1 for none; both for the rows of an image up to the
    first that was not evaluated before. empty: the slots of zeros. count: of all.
    """

    def __init__(self, firsts: np.ndarray, again: np.ndarray) -> None:
        self.again = again
        image = np.cumsum(firsts) - 1
        start = np.flatnonzero(firsts)
        known = np.bincount(image, again, len(start)).astype(np.int64)
        ends = np.cumsum(known + (known > 0))
        self.count = int(ends[-1])
        self.empty = ends[known > 0] - 1
        place = np.arange(len(firsts)) - start[image]
        assert (again == (place < known[image])).all(), "the steps evaluated before are the next ones"
        reached = (place <= known[image]) & (known > 0)[image]
        self.own = np.where(reached, ends[image] - 1 - known[image] + place, -1)
        self.window = np.where(reached & ~firsts, self.own - 1, -1)


def products(pair: Tensor) -> np.ndarray:
    """The products of the rows (p, q) of every slot and of the next one: [4, 4, slots, count]; of the last: garbage.

    pair: [count, slots, 2, elements], contiguous.
    """
    count, slots, _, elements = pair.shape
    gram = np.zeros((count * slots, 4, 4))
    if count * slots > 1:
        # Windows of two slots; some stand on both sides of a border between blocks, and nobody asks for them.
        two = pair.as_strided((count * slots - 1, 4, elements), (2 * elements, elements, 1))
        gram[:-1] = torch.bmm(two, two.mT).cpu().to(torch.float64).numpy()
    return gram.reshape(count, slots, 4, 4).transpose(2, 3, 1, 0)


def _mix(gram: np.ndarray, slope: np.ndarray, least: float) -> np.ndarray:
    """M with J = slope + F' M' F for the rows F = (p2, q2, p1, q1) of a block: [..., 4, 4].

    gram: [4, 4, ...] the products of these rows: the pair of the step below, then the own one; slope [...]. Pairs are
    scaled to |p| = 1; one no longer than rounding is left out.
    """
    square, cross, below = gram[2:, 2:], gram[2:, :2], gram[:2, :2]
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
