"""Growth: draft the candidate states of a round, level by level."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .drafting import Drafter
from .kernels import Kernel
from .noise import Noise
from .rows import pick, which
from .tree import Layout


@dataclass(frozen=True)
class Draft:
    """A drafted round.

    active: [n] the images that take part. images, steps: [rows]. x: [rows, ...] the states. noise: [born, ...] the
    noise of every row but the roots. guess: [inner, ...] the draft's denoised guess of every inner row, which
    verification turns into what it missed.
    """

    layout: Layout
    active: np.ndarray
    images: np.ndarray
    steps: np.ndarray
    x: Tensor
    noise: Tensor
    guess: Tensor


def grow(
    layout: Layout,
    active: np.ndarray,
    x: Tensor,
    step: np.ndarray,
    kernel: Kernel,
    drafter: Drafter,
    held: Tensor,
    noise: Noise,
) -> Draft:
    """Draft a tree for every active image.

    x: [n, ...] the images' verified states; step: [n] their step indices; held: [n, ...] the last verified predictions,
    which stand in for the guess of a root's parent. Candidate c of a node is
    a x + b guess + r z_c: its noise is keyed by (image, step, c), so nodes of one depth share noises.
    """
    images = active[layout.image]
    steps = step[layout.image] + layout.depth
    if not len(layout.inner):
        return Draft(layout, active, images, steps, x, x[:0], x[:0])
    inner_steps = steps[layout.inner]
    guess = drafter.guesses(images[layout.inner], inner_steps)
    z = _noises(layout, images, steps, noise)
    states = x.new_empty(layout.rows, *x.shape[1:])
    guesses = x.new_empty(len(layout.inner), *x.shape[1:])
    at, fresh = states.split_with_sizes(layout.sizes), z.split_with_sizes(layout.sizes[1:])
    at[0].copy_(x)
    before = held
    for depth, (level, own) in enumerate(zip(layout.growth, guesses.split_with_sizes(layout.inner_sizes), strict=True)):
        here, below, kick = pick(at[depth], level.rows), at[depth + 1], fresh[depth]
        guess(level.inner, here, pick(before, level.above), own)
        a, b, r = kernel.linear(inner_steps[level.inner], x.ndim)
        if level.parents is None:
            torch.mul(here, a, out=below).addcmul_(own, b).addcmul_(kick, r)
        else:
            centre = torch.mul(here, a).addcmul_(own, b)
            spread = r if r.shape[0] == 1 else pick(r, level.parents)
            torch.addcmul(pick(centre, level.parents), kick, spread, out=below)
        before = own
    return Draft(layout, active, images, steps, states, z, guesses)


def _noises(layout: Layout, images: np.ndarray, steps: np.ndarray, noise: Noise) -> Tensor:
    """The noises [born, ...] of all rows but the roots; each (image, step, child) is drawn once."""
    born = layout.born
    image, step, child = images[born], steps[born] - 1, layout.child[born]
    if layout.distinct:  # first children only, and no two rows at one step of one image
        return noise.normal(image, step, 0)
    key = image * (int(step.max()) + 1) + step
    parts, places = [], np.empty(len(child), dtype=np.int64)
    start = 0
    for c in range(int(child.max()) + 1):
        mine = which(child == c)
        _, first, back = np.unique(key[mine], return_index=True, return_inverse=True)
        parts.append(noise.normal(image[mine][first], step[mine][first], c))
        places[mine] = start + back
        start += len(first)
    return pick(parts[0] if len(parts) == 1 else torch.cat(parts), places)
