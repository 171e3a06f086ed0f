"""Look-ahead drafts: what the target said about a step in earlier rounds, carried over to the new state by secants."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from .rows import VECDOT, Rows, as_slice, pick, put, which

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
BELOW = np.arange(REACH + 1)
WEIGHTS = NEAR**BELOW  # of a step's secants and of those below, nearest first
LEAST = 2e-5  # root mean square of a displacement that tells more of the target than of its rounding


@dataclass(slots=True)
class Round:
    """Rows evaluated together: states x and outputs d [rows, count, elements], slope [rows, count, 1].

    pair: [count, 2 * slots, elements], pairs p, q of consecutive steps, slot by slot. window: [rows] the slot of the
    step below a row's own, -1 where nothing is known of it; pairs: how many there are from there on, the second one
    being the step's own. mix: [slots, count, 4, 4], which makes a Jacobian of the pairs of the window that begins in a
    slot; zeros where the second is missing. steps: [rows] the stamp of all this.
    """

    steps: np.ndarray
    x: Tensor
    d: Tensor
    slope: Tensor
    pair: Tensor
    window: np.ndarray
    pairs: np.ndarray
    mix: Tensor

    def guess(self, x: Tensor, row: int, out: Tensor) -> None:
        """Write the output at the state x [1, count, elements] into out; row: that of its step."""
        moved = x - self.x[row : row + 1]
        torch.addcmul(self.d[row : row + 1], self.slope[row : row + 1], moved, out=out)
        if (slot := int(self.window[row])) >= 0:
            n = 2 * int(self.pairs[row])
            pairs, mix = self.pair[:, 2 * slot : 2 * slot + n], self.mix[slot]
            # Products with a row vector on the left are several times faster.
            along = torch.bmm(moved.transpose(0, 1), pairs.mT)
            out.transpose(0, 1).baddbmm_(torch.bmm(along, mix if n == 4 else mix[:, :n, :n]), pairs)

    def guess_many(self, x: Tensor, rows: np.ndarray) -> Tensor:
        """The same for several states [n, count, elements] and rows [n], as a new tensor."""
        here = as_slice(rows)
        moved = x - pick(self.x, here)
        guess = torch.addcmul(pick(self.d, here), pick(self.slope, here), moved)
        known = which(self.window[rows] >= 0)
        if len(known):
            first = self.window[rows[known]]
            second = first + self.pairs[rows[known]] - 1
            slots = torch.from_numpy(np.stack([first, second], axis=1)).to(x.device)
            places = (2 * slots[..., None] + torch.arange(2, device=x.device)).flatten(1)[:, None]
            blocks = torch.arange(x.shape[1], device=x.device)[:, None]
            pairs = self.pair[blocks, places].flatten(0, 1)  # [n * count, 4, elements]
            mix = self.mix[slots[:, 0]].flatten(0, 1)
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
        # The parts <p, p> and <p, q> of every block's secants, faded sums, behind REACH steps that never were.
        self._secants = np.zeros((2, images, REACH + steps, count))

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
                    mine = which(number[places] == n)
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
        mixed = x.new_empty(0, x.shape[1], 4, 4)
        if slots.count:
            product = products(room, slots)
            self._learn(images[slots.known], steps[slots.known], product[:-1, :, P : Q + 1])
        slope = self._pooled(images, steps)
        if slots.count:
            mix = _mix(product[slots.second], product[:-1], slope[slots.above], self._least)
            mixed = torch.from_numpy(mix).to(x)
        ahead = which(~firsts)
        coming = images[ahead], steps[ahead]
        self._round[coming], self._row[coming] = self._count, ahead
        sloped, pair = torch.from_numpy(slope[..., None]).to(x), parts.flatten(1, 2)
        self._rounds[self._count] = Round(steps, x, d, sloped, pair, slots.window, slots.pairs, mixed)
        self._count += 1
        self._forget(images[firsts], steps[firsts])

    def _evaluated(
        self, number: np.ndarray, row: np.ndarray, steps: np.ndarray
    ) -> list[tuple[np.ndarray, Round, np.ndarray]]:
        """The last evaluations, by round and row, of these steps: the places in `steps`, the round, its rows."""
        found = []
        for n in dict.fromkeys(number[number >= 0].tolist()):
            places = which(number == n)
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

    def _learn(self, images: np.ndarray, steps: np.ndarray, new: np.ndarray) -> None:
        """Add the secants of steps that were evaluated before; new: <p, p> and <p, q>, [rows, count, 2]."""
        norm = new[..., :1].sum(axis=1, keepdims=True)
        usable = (norm[:, 0, 0] > self._least * new.shape[1]).nonzero()[0]
        at = slice(None), images[usable], steps[usable] + REACH
        self._secants[at] = FADE * self._secants[at] + (new[usable] / norm[usable]).transpose(2, 0, 1)

    def _pooled(self, images: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """The slope of every block, [rows, count], from the secants of a step and the REACH steps below it."""
        lower = steps_below(steps)
        check_measurable(lower, steps[:, None])
        parts = WEIGHTS @ self._secants[:, images[:, None], lower + REACH]
        square, product = parts + (SHRINK / parts.shape[2]) * parts.sum(axis=2, keepdims=True)
        return np.minimum(np.maximum(product / np.maximum(square, 1e-9), SLOPE[0]), SLOPE[1])


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
    """Where the pairs of a round's rows lie: those of the rows that were evaluated before, in their order.

    own: [rows] the slot of a row's pair, or -1. known: the rows that have one. window: [rows] the slot of the row
    below, or -1; pairs: [rows] how many of the two there are. Of every slot: second: the next one, if that is of the
    same image, or -1; above: the row above, or its own where that is missing. last: the slots without a second.
    count: of slots.
    """

    own: np.ndarray
    known: Rows
    window: np.ndarray
    pairs: np.ndarray
    second: np.ndarray
    above: np.ndarray
    last: Rows
    count: int


def _slots(firsts: np.ndarray, again: np.ndarray) -> _Slots:
    """firsts, again: [rows] the first row of an image, and those evaluated before, which come first."""
    assert not (again[1:] & ~again[:-1] & ~firsts[1:]).any(), "the steps evaluated before are the next ones"
    known = which(again)
    own = np.where(again, np.cumsum(again) - 1, -1)
    window = np.where(firsts, -1, np.concatenate([own[-1:], own[:-1]]))
    above = np.minimum(known + 1, len(firsts) - 1)
    above = np.where(firsts[above], known, above)
    second = np.where(again[above] & (above > known), own[above], -1)
    pairs = np.where(window < 0, 0, 1 + again)
    return _Slots(own, as_slice(known), window, pairs, second, above, as_slice(which(second < 0)), len(known))


@lru_cache(maxsize=256)
def _slots_of_one(again: bytes) -> _Slots:
    """The same for the rows of a single image, which come in few patterns; again: its bytes."""
    return _slots(np.arange(len(again)) == 0, np.frombuffer(again, dtype=bool))


P, Q = 2, 3  # where <p, p> and <p, q> stand among the products of a slot


def products(room: Tensor, slots: _Slots) -> np.ndarray:
    """The products of every slot's p with (p, q) of the slot before, its own and the second: [slots + 1, count, 6].

    room: [1 + count * slots + 1, 2, elements], contiguous: the slots of every block, with one more at either end.
    Where there is no second slot its products are 0, and so are all of the row at the end, of the slot that is
    missing. Those with a slot before that is of another image are garbage, and nobody asks for them.
    """
    elements = room.shape[2]
    blocks = len(room) - 2
    three = room.as_strided((blocks, 6, elements), (2 * elements, elements, 1))
    if VECDOT and room.device.type == "cpu":
        with np.errstate(all="ignore"):  # as torch does
            found = VECDOT(room[1:-1, :1].numpy(), three.numpy())
    else:
        found = torch.bmm(room[1:-1, :1], three.mT)[:, 0].cpu().numpy()
    product = np.zeros((slots.count + 1, blocks // slots.count, 6))
    product[:-1] = found.reshape(-1, slots.count, 6).transpose(1, 0, 2)
    product[slots.last, :, 4:] = 0.0
    return product


# Where <p_j, p_i> and <p_j, q_i> stand, pair by pair, in the products of the step's own pair and those of the other.
GRAM = np.array([8, 0, 0, 2]), np.array([9, 1, 11, 3])
FIRM = np.array([1.0 + DOUBT[1], 1.0, 1.0, 1.0 + DOUBT[0]])
INVERSE = np.array([1.0, -1.0, -1.0, 1.0])
LEFT_OUT = 1e150  # the squared length of a pair that shall have no say


def _mix(own: np.ndarray, below: np.ndarray, slope: np.ndarray, least: float) -> np.ndarray:
    """M with J = slope + F' M' F for the rows F = (p2, q2, p1, q1) of a block: [slots, count, 4, 4].

    own, below: [slots, count, 6] the `products` of the own pair p1, q1 and of that of the step below, p2, q2; slope
    [slots, count]. A pair no longer than rounding is left out.
    """
    both = np.concatenate([own, below], axis=-1)
    square, cross = both[..., GRAM[0]], both[..., GRAM[1]]
    # A = (P'P + doubt)^-1, the doubt in units of the pairs' squared lengths.
    firm = square * FIRM
    firm[..., ::3] = np.where(square[..., ::3] > least, firm[..., ::3], LEFT_OUT)
    lam = slope[..., None]
    a = firm[..., ::-1] * INVERSE / (firm[..., :1] * firm[..., 3:] - firm[..., 1:2] * firm[..., 2:3])
    a = a.reshape(*slope.shape, 2, 2)
    # V'P = Q'P - lambda P'P.
    v = (cross - lam * square).reshape(a.shape)
    # With S = P'r and T = V'r, V gets A S and P gets t A (T - V'P A S); V = Q - lambda P on both sides.
    mix = np.zeros((*slope.shape, 4, 4))  # what is multiplied, what is added
    mix[..., ::2, 1::2], mix[..., 1::2, ::2] = a, SYMMETRY * a
    mix[..., ::2, ::2] = -SYMMETRY * (a @ v @ a).swapaxes(-1, -2) - (1.0 + SYMMETRY) * lam[..., None] * a
    return mix


def steps_below(steps: np.ndarray) -> np.ndarray:
    """The steps whose secants are pooled for a guess at each of these: [n] -> [n, REACH + 1], nearest first."""
    return steps[:, None] - BELOW


def check_measurable(stamps: np.ndarray, steps: np.ndarray) -> None:
    """A guess at step j may read what was evaluated at steps <= j only; anything newer has seen its noise."""
    assert (stamps <= steps).all(), "measurability: a guess reads an evaluation that depends on its own noise"
