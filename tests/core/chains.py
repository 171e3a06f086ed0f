"""Independent references for the engine's tests: mixtures with known denoisers, and the plain chain by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor


class Mixture:
    """A mixture of isotropic Gaussians in d dimensions with its exact denoiser E[x0 | x].

    flow: x = (1 - sigma) x0 + sigma n; otherwise x = x0 + sigma n.
    """

    def __init__(self, means: Tensor, weights: Tensor, width: float, flow: bool) -> None:
        self.means, self.weights, self.width, self.flow = means, weights, width, flow

    def __call__(self, x: Tensor, sigma: Tensor) -> Tensor:
        s = sigma.reshape(-1, 1, 1)
        a = 1 - s if self.flow else torch.ones_like(s)
        variance = a**2 * self.width**2 + s**2
        offset = x[:, None] - a * self.means  # [rows, components, d]
        log_odds = self.weights.log() - 0.5 * (offset**2).sum(-1) / variance[..., 0]
        shrunk = self.means + (a * self.width**2 / variance) * offset
        return (torch.softmax(log_odds, dim=1)[..., None] * shrunk).sum(1)


def mixture(d: int, flow: bool) -> Mixture:
    if d == 1:
        return Mixture(torch.tensor([[-1.2], [0.3], [1.5]]), torch.tensor([0.3, 0.2, 0.5]), 0.25, flow)
    means = torch.tensor([[-1.2, 0.4], [0.5, -1.0], [1.3, 1.1]])
    return Mixture(means, torch.tensor([0.3, 0.25, 0.45]), 0.25, flow)


def schedule(steps: int, flow: bool) -> Tensor:
    t = torch.linspace(1, 0, steps + 1, dtype=torch.float64)
    sigmas = 3 * t / (1 + 2 * t) if flow else 10 * t**3
    return sigmas.to(torch.float32)


def plain_law(kernel: str, sigmas: Tensor, i: int, eta: float, s_noise: float) -> tuple[float, float, float]:
    """(a, b, r) of step i in the closed forms of the papers, in double precision: x' ~ N(a x + b D, r^2)."""
    s, t = float(sigmas[i]), float(sigmas[i + 1])
    if t == 0:
        return 0.0, 1.0, 0.0
    if kernel == "flow_ancestral":
        down = t * (1 + (t / s - 1) * eta)
        c = (1 - t) / (1 - down)
        return c * down / s, c * (1 - down / s), s_noise * math.sqrt(max(t**2 - (down * c) ** 2, 0))
    if kernel in ("ancestral", "ddpm"):
        eta = 1.0 if kernel == "ddpm" else eta
        up = min(t, eta * math.sqrt(t**2 * (s**2 - t**2) / s**2))
        down = math.sqrt(t**2 - up**2)
        return down / s, 1 - down / s, s_noise * up
    if kernel == "flow_lcm":
        return 0.0, 1 - t, s_noise * t
    return 0.0, 1.0, s_noise * t


def plain_chain(
    denoise: Mixture,
    x: Tensor,
    sigmas: Tensor,
    kernel: str,
    eta: float,
    s_noise: float,
    generator: torch.Generator,
) -> Tensor:
    """The stock chain in closed form, with noise of its own."""
    for i in range(len(sigmas) - 1):
        a, b, r = plain_law(kernel, sigmas, i, eta, s_noise)
        x = a * x + b * denoise(x, sigmas[i].expand(len(x))) + r * torch.randn(x.shape, generator=generator)
    return x


class Shared:
    """A noise source for very large batches: one generator, every noise drawn in advance."""

    def __init__(self, shape: tuple[int, ...], steps: int, children: int, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._table = torch.randn((steps, children, *shape), generator=self._generator)

    def normal(self, images: np.ndarray, steps: np.ndarray, child: int) -> Tensor:
        return self._table[torch.from_numpy(steps), child, torch.from_numpy(images)]

    def draws(self, images: np.ndarray, steps: np.ndarray, purpose: str) -> SharedDraws:
        return SharedDraws(len(images), self._generator)

    def spend(self, image: int, step: int) -> None:
        pass

    def renew(self, images: np.ndarray, steps: np.ndarray) -> None:
        if not len(images):
            return
        for step in range(int(steps.min()), len(self._table)):
            late = torch.from_numpy(images[steps <= step])
            shape = len(self._table[step]), len(late), *self._table.shape[3:]
            self._table[step, :, late] = torch.randn(shape, generator=self._generator)


class SharedDraws:
    def __init__(self, n: int, generator: torch.Generator) -> None:
        self._n, self._generator = n, generator

    def uniform(self, count: int) -> np.ndarray:
        return torch.rand((self._n, count), dtype=torch.float64, generator=self._generator).numpy()

    def normal(self, count: int) -> np.ndarray:
        return torch.randn((self._n, count), dtype=torch.float64, generator=self._generator).numpy()

    def only(self, rows: np.ndarray) -> SharedDraws:
        return SharedDraws(len(rows), self._generator)


def guessing(guess: Callable, sigmas: Tensor | None = None) -> Callable:
    """A `guesses` of drafters: guess(x, sigma, images, steps, held) -> [rows, ...], sigma from sigmas [N + 1]."""

    def guesses(self: object, images: np.ndarray, steps: np.ndarray) -> Callable:
        def write(places: slice, x: Tensor, held: Tensor, out: Tensor) -> None:
            sigma = None if sigmas is None else sigmas[torch.from_numpy(steps[places])]
            out.copy_(guess(x, sigma, images[places], steps[places], held))

        return write

    return guesses
