"""Look-ahead drafts: what the target said about a step in earlier rounds, carried over to the new state by secants."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
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
WEIGHTS = NEAR ** np.arange(REACH + 1)  # of a step's secants and of those below, nearest first
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
        # Secants <p, q> / <p, p> of every block, faded sums above and below, behind REACH steps that never were.
        self._squares, self._products = np.zeros((2, images, REACH + steps, count))

    def guesses(self, images: np.ndarray, steps: np.ndarray) -> Guess:
        number, row = self._round[images, steps], self._row[images, steps]
        self._evaluated(number, row, steps)  # which asserts that the steps may read what the guesses will
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
        number, row = self._round[images, steps], self._row[images, steps]
        again = number >= 0
        slots = _slots_of_one(again.tobytes()) if len(draft.active) == 1 else _slots(firsts, again)
        # A slot more at either end, so that every slot has neighbours.
        room = x.new_empty(x.shape[1] * slots.count + 2, 2, x.shape[2])
        parts = room[1:-1].view(x.shape[1], slots.count, 2, x.shape[2])
        for places, found, there in self._evaluated(number, row, steps):
            here, own, old = as_slice(places), as_slice(slots.own[places]), as_slice(there)
            for k, (before, now) in enumerate(((found.x, x), (found.d, d))):
                if isinstance(own, slice):
                    torch.sub(pick(before, old), pick(now, here), out=parts[:, own, k].transpose(0, 1))
                else:
                    change = pick(before, old) - pick(now, here)
                    parts[:, torch.from_numpy(own).to(x.device), k] = change.transpose(0, 1)
        # From here to the Jacobians it is scalars, which numpy handles in a fraction of torch's time.
        if slots.count:
            put(parts.transpose(0, 1), slots.empty, 0.0)
            product, known = products(room, slots.count), slots.known
            secants = product[slots.own[known]]
            self._learn(images[known], steps[known], secants[..., P], secants[..., Q])
        slope = self._pooled(images, steps)
        mix = np.zeros((slots.count, x.shape[1], 4, 4))
        if slots.count:
            own_slope, window = slope[slots.with_window], slots.window[slots.with_window]
            mix[window] = _mix(product[window + 1], product[window], own_slope, self._least)
        ahead = np.flatnonzero(~firsts)
        coming = images[ahead], steps[ahead]
        self._round[coming], self._row[coming] = self._count, ahead
        sloped, mixed = torch.from_numpy(slope[..., None]).to(x), torch.from_numpy(mix).to(x)
        self._rounds[self._count] = Round(steps, x, d, sloped, parts.flatten(1, 2), slots.window, mixed)
        self._count += 1
        self._forget(images[firsts], steps[firsts])

    def _evaluated(
        self, number: np.ndarray, row: np.ndarray, steps: np.ndarray
    ) -> list[tuple[np.ndarray, Round, np.ndarray]]:
        """The last evaluations, by round and row, of these steps: the places in `steps`, the round, its rows."""
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

    def _learn(self, images: np.ndarray, steps: np.ndarray, square: np.ndarray, product: np.ndarray) -> None:
        """Add the secants <p, q> / <p, p> of steps that were evaluated before; <p, p> and <p, q>: [rows, count]."""
        norm = square.sum(axis=1, keepdims=True)
        usable = norm[:, 0] > self._least * square.shape[1]
        at = images[usable], steps[usable] + REACH
        for sums, new in ((self._squares, square), (self._products, product)):
            sums[at] = FADE * sums[at] + new[usable] / norm[usable]

    def _pooled(self, images: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """The slope of every block, [rows, count], from the secants of a step and the REACH steps below it."""
        lower = steps_below(steps)
        check_measurable(lower, steps[:, None])
        own = images[:, None], lower + REACH
        n, m = WEIGHTS @ self._squares[own], WEIGHTS @ self._products[own]
        all_n = n.sum(axis=1, keepdims=True)
        common = m.sum(axis=1, keepdims=True) / np.maximum(all_n, 1e-9)
        pull = (SHRINK / n.shape[1]) * all_n
        slope = (m + pull * common) / np.maximum(n + pull, 1e-9)
        return np.minimum(np.maximum(slope, SLOPE[0]), SLOPE[1])


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


@dataclass(frozen=True)
class _Slots:
    """Where the pairs of a round's rows lie: of each image the rows that were evaluated before, then a slot of zeros.

    own: [rows] the slot of a row's pair, window: [rows] the slot of the row above it, -1 for none; both for the rows of
    an image up to the first that was not evaluated before. known: the rows that were; with_window: those that have one.
    empty: the slots of zeros. count: of all.
    """

    own: np.ndarray
    window: np.ndarray
    known: Rows
    with_window: Rows
    empty: Rows
    count: int


def _slots(firsts: np.ndarray, again: np.ndarray) -> _Slots:
    """firsts, again: [rows] the first row of an image, and those evaluated before, which come first."""
    image = np.cumsum(firsts) - 1
    start = np.flatnonzero(firsts)
    known = np.bincount(image, again, len(start)).astype(np.int64)
    ends = np.cumsum(known + (known > 0))
    place = np.arange(len(firsts)) - start[image]
    assert (again == (place < known[image])).all(), "the steps evaluated before are the next ones"
    reached = (place <= known[image]) & (known > 0)[image]
    own = np.where(reached, ends[image] - 1 - known[image] + place, -1)
    window = np.where(reached & ~firsts, own - 1, -1)
    known_rows, with_window = as_slice(np.flatnonzero(again)), as_slice(np.flatnonzero(window >= 0))
    return _Slots(own, window, known_rows, with_window, as_slice(ends[known > 0] - 1), int(ends[-1]))


@lru_cache(maxsize=256)
def _slots_of_one(again: bytes) -> _Slots:
    """The same for the rows of a single image, which come in few patterns; again: its bytes."""
    return _slots(np.arange(len(again)) == 0, np.frombuffer(again, dtype=bool))


P, Q = 2, 3  # where <p, p> and <p, q> stand among the products of a slot


def products(room: Tensor, slots: int) -> np.ndarray:
    """The products of every slot's p with (p, q) of the slot before, its own and the next: [slots, count, 6].

    room: [1 + count * slots + 1, 2, elements], contiguous: the slots of every block, with one more at either end. Over
    the border of a block products are garbage, and nobody asks for them.
    """
    elements = room.shape[2]
    count = len(room) - 2
    three = room.as_strided((count, 6, elements), (2 * elements, elements, 1))
    product = torch.bmm(room[1:-1, :1], three.mT).cpu().numpy().astype(np.float64)
    return product.reshape(-1, slots, 6).transpose(1, 0, 2)


def _mix(own: np.ndarray, below: np.ndarray, slope: np.ndarray, least: float) -> np.ndarray:
    """M with J = slope + F' M' F for the rows F = (p2, q2, p1, q1) of a block: [..., 4, 4].

    own, below: [..., 6] the `products` of the own pair p1, q1 and of that of the step below, p2, q2; slope [...].
    Pairs are scaled to |p| = 1; one no longer than rounding is left out.
    """
    size1, size2 = (np.where(p[..., P] > least, 1.0 / np.sqrt(np.maximum(p[..., P], least)), 0.0) for p in (own, below))
    both = size1 * size2
    # A = (P'P + doubt)^-1, where the diagonal of P'P is 1; then in the units of the rows.
    off = own[..., 0] * both
    scale = 1.0 / ((1.0 + DOUBT[0]) * (1.0 + DOUBT[1]) - off * off)
    a, v = np.empty((2, *slope.shape, 2, 2))
    a[..., 0, 0] = (1.0 + DOUBT[0]) * scale * size2 * size2
    a[..., 1, 1] = (1.0 + DOUBT[1]) * scale * size1 * size1
    a[..., 0, 1] = a[..., 1, 0] = -off * scale * both
    # V'P = Q'P - lambda P'P.
    v[..., 0, 0], v[..., 1, 1] = below[..., Q] - slope * below[..., P], own[..., Q] - slope * own[..., P]
    cross = slope * own[..., 0]
    v[..., 0, 1], v[..., 1, 0] = own[..., 1] - cross, below[..., 5] - cross
    # With S = P'r and T = V'r, V gets A S and P gets t A (T - V'P A S); V = Q - lambda P on both sides.
    mix = np.empty((*slope.shape, 4, 4))  # what is multiplied, what is added
    mix[..., ::2, 1::2], mix[..., 1::2, ::2], mix[..., 1::2, 1::2] = a, SYMMETRY * a, 0.0
    back = (a @ v @ a).swapaxes(-1, -2)
    mix[..., ::2, ::2] = -SYMMETRY * back - ((1.0 + SYMMETRY) * slope)[..., None, None] * a
    return mix


def steps_below(steps: np.ndarray) -> np.ndarray:
    """The steps whose secants are pooled for a guess at each of these: [n] -> [n, REACH + 1], nearest first."""
    return steps[:, None] - np.arange(REACH + 1)


def check_measurable(stamps: np.ndarray, steps: np.ndarray) -> None:
    """A guess at step j may read what was evaluated at steps <= j only; anything newer has seen its noise."""
    assert (stamps <= steps).all(), "measurability: a guess reads an evaluation that depends on its own noise"
