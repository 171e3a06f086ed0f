"""Growth: draft the candidate states of a round, level by level."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .drafting import Drafter
from .kernels import Kernel
from .noise import Noise
from .tree import Layout


@dataclass(frozen=True)
class Draft:
    """A drafted round.

    active: [n] the images that take part. images, steps: [rows]. x: [rows, ...] the states. noise: [born, ...] the
    noise of every row but the roots. mean, guess: [inner, ...] the draft's mean and denoised guess of every inner row.
    inner_index, parent_index: the same rows and, for every born row, its parent's place among them, on the device.
    """

    layout: Layout
    active: np.ndarray
    images: np.ndarray
    steps: np.ndarray
    x: Tensor
    noise: Tensor
    mean: Tensor
    guess: Tensor
    inner_index: Tensor
    parent_index: Tensor


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
    perturb(mean(x, guess), z_c): its noise is keyed by (image, step, c), so nodes of one depth share noises.
    """
    images = active[layout.image]
    steps = step[layout.image] + layout.depth
    states, noises = [x], []
    means: list[Tensor] = []
    guesses: list[Tensor] = []
    above = layout.inner[:0]
    for level, below in zip(layout.levels, layout.levels[1:], strict=False):
        inner = layout.inner[(layout.inner >= level.start) & (layout.inner < level.stop)]
        local = torch.from_numpy(inner - level.start).to(x.device)
        here = states[-1] if len(inner) == level.stop - level.start else states[-1][local]
        c = kernel.at(steps[inner], x.ndim)
        if means:
            held = guesses[-1][torch.from_numpy(np.searchsorted(above, layout.parent[inner])).to(x.device)]
        else:
            held = held[torch.from_numpy(layout.image[inner]).to(x.device)]
        guess = drafter.guess(here, kernel.sigma(steps[inner]), images[inner], steps[inner], held)
        above = inner
        mean = kernel.mean(c, here, guess)

        z = _level_noise(layout, below, images, steps, noise)
        parents = layout.parent[below]
        centre = mean[torch.from_numpy(np.searchsorted(inner, parents)).to(x.device)]
        states.append(kernel.perturb(kernel.at(steps[parents], x.ndim), centre, z))
        noises.append(z)
        means.append(mean)
        guesses.append(guess)

    empty = x[:0]
    born = layout.parent >= 0
    return Draft(
        layout,
        active,
        images,
        steps,
        torch.cat(states) if len(states) > 1 else x,
        torch.cat(noises) if noises else empty,
        torch.cat(means) if means else empty,
        torch.cat(guesses) if guesses else empty,
        torch.from_numpy(layout.inner).to(x.device),
        torch.from_numpy(layout.inner_of[layout.parent[born]]).to(x.device),
    )


def _level_noise(layout: Layout, rows: slice, images: np.ndarray, steps: np.ndarray, noise: Noise) -> Tensor:
    """The noises [rows, ...] of one level's rows; each (image, child) pair is drawn once."""
    child, image, parent_step = layout.child[rows], images[rows], steps[rows] - 1
    parts, places = [], np.empty(len(child), dtype=np.int64)
    start = 0
    for c in range(int(child.max()) + 1):
        mine = np.flatnonzero(child == c)
        one, first, back = np.unique(image[mine], return_index=True, return_inverse=True)
        parts.append(noise.normal(one, parent_step[mine][first], c))
        places[mine] = start + back
        start += len(one)
    pool = parts[0] if len(parts) == 1 else torch.cat(parts)
    if len(places) == len(pool) and (places == np.arange(len(places))).all():
        return pool
    return pool[torch.from_numpy(places).to(pool.device)]
