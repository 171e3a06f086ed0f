"""Targets for the benchmarks: T independent tiles, accepted or rejected together as one large latent would be."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

SIZE = 8  # latent pixels of a tile's edge
CHANNELS = 16
SHIFT = 3.0
# One-word prompts of the demo model that leave many pictures open.
WORDS = [
    "face",
    "heart",
    "clock",
    "book",
    "person",
    "hand",
    "flower",
    "animal",
    "fruit",
    "star",
    "moon",
    "sun",
    "car",
    "house",
    "ball",
    "hat",
]


class Tiles(Protocol):
    """A target on latents [rows, 16, 8, 8 T]; tile k of every row has a prompt of its own."""

    name: str

    def __call__(self, x: Tensor, sigma: Tensor) -> Tensor: ...


def sigmas(steps: int) -> Tensor:
    """The `simple` schedule of a flow model with shift 3, [N + 1]."""
    t = torch.linspace(1, 0, steps + 1, dtype=torch.float64)
    return (SHIFT * t / (1 + (SHIFT - 1) * t)).to(torch.float32)


def split(x: Tensor) -> Tensor:
    """[rows, C, 8, 8 T] -> [rows * T, C, 8, 8]."""
    rows, c, h, w = x.shape
    return x.reshape(rows, c, h, w // SIZE, SIZE).permute(0, 3, 1, 2, 4).reshape(-1, c, h, SIZE)


def join(x: Tensor, rows: int) -> Tensor:
    """The inverse of `split`."""
    return x.reshape(rows, -1, CHANNELS, SIZE, SIZE).permute(0, 2, 3, 1, 4).reshape(rows, CHANNELS, SIZE, -1)


class Analytic:
    """A mixture of 24 Gaussians with spectra that fall as pictures' do; its denoiser in closed form, no weights."""

    name = "analytic"

    def __init__(self, tiles: int, components: int = 24) -> None:
        generator = torch.Generator().manual_seed(2)
        k = torch.arange(SIZE, dtype=torch.float32)
        cosine = torch.cos(math.pi * (k[:, None] + 0.5) * k / SIZE) * math.sqrt(2 / SIZE)
        cosine[:, 0] /= math.sqrt(2)
        self._basis = cosine
        radius = 1 + (k[:, None] ** 2 + k**2).sqrt()
        strength = 0.6 + 0.8 * torch.rand(components, CHANNELS, 1, 1, generator=generator)
        spectrum = strength * radius**-2.0
        power = spectrum.pow(2).mean(dim=(1, 2, 3), keepdim=True).sqrt()
        self._means = 0.8 * torch.randn(components, CHANNELS, SIZE, SIZE, generator=generator) * spectrum / power
        self._variances = (0.6 * spectrum / power) ** 2 + 0.02**2

    def __call__(self, x: Tensor, sigma: Tensor) -> Tensor:
        rows, tiles = len(x), x.shape[-1] // SIZE
        s = sigma.repeat_interleave(tiles).reshape(-1, 1, 1, 1, 1)
        z = (self._basis.T @ split(x) @ self._basis)[:, None]  # [rows * T, 1, C, 8, 8]
        total = (1 - s) ** 2 * self._variances + s**2
        offset = z - (1 - s) * self._means
        log_odds = -0.5 * (offset**2 / total + total.log()).sum(dim=(2, 3, 4))
        shrunk = self._means + (1 - s) * self._variances / total * offset
        mixed = (log_odds.softmax(dim=1)[:, :, None, None, None] * shrunk).sum(dim=1)
        return join(self._basis @ mixed @ self._basis.T, rows)


class Network:
    """The shipped demo model, or its draft model, with classifier-free guidance; prompts repeat over the tiles."""

    def __init__(self, model: Any, encode: Callable[[str], tuple[Tensor, Tensor]], tiles: int, cfg: float) -> None:
        self.name = "demo"
        self._model, self._cfg = model, cfg
        contexts, pooled = zip(*(encode(WORDS[i % len(WORDS)]) for i in range(tiles)), strict=True)
        self._context, self._pooled = torch.cat(contexts), torch.cat(pooled)

    def __call__(self, x: Tensor, sigma: Tensor) -> Tensor:
        rows, tiles = len(x), len(self._context)
        flat = split(x)
        s = sigma.repeat_interleave(tiles)
        context, pooled = self._context.repeat(rows, 1, 1), self._pooled.repeat(rows, 1)
        both = self._model.apply_model(
            torch.cat([flat, flat]),
            torch.cat([s, s]),
            c_crossattn=torch.cat([context, torch.zeros_like(context)]),
            y=torch.cat([pooled, torch.zeros_like(pooled)]),
        )
        with_words, without = both.chunk(2)
        return join(without + self._cfg * (with_words - without), rows)
