"""The one place where the engine calls a network: the target, or a draft model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from .blocks import Whole
from .errors import InputError


class Target:
    """Counts the calls and rows of a denoise-like callable, and checks the shape of what it returns.

    denoise(x [rows, ...], sigma [rows]) -> [rows, ...]. A callable with a true attribute `takes_images` is called with
    a third argument, the image each row belongs to, [rows] int64 on the CPU. given: the dtype it works in.
    """

    def __init__(self, denoise: Callable[..., Tensor], given: torch.dtype, role: str = "target") -> None:
        self._denoise = denoise
        self._given = given
        self._takes_images = bool(getattr(denoise, "takes_images", False))
        self._role = role
        self.calls = 0
        self.rows = 0

    def __call__(self, x: Tensor, sigma: Tensor, images: np.ndarray) -> Tensor:
        """The prediction for latents x [rows, ...] in their own layout, in x's dtype."""
        latents = x.to(self._given)
        denoised = self._denoise(latents, sigma, images) if self._takes_images else self._denoise(latents, sigma)
        if denoised.shape != x.shape:
            raise InputError(
                f"{self._role}: it returned shape {tuple(denoised.shape)} for latents of shape {tuple(x.shape)}; "
                "both must agree. Use a model made for these latents."
            )
        self.calls += 1
        self.rows += x.shape[0]
        return denoised.to(x.dtype)

    def of_blocks(self, x: Tensor, sigma: Tensor, images: np.ndarray, blocks: Whole) -> Tensor:
        """The same for rows in the layout of `blocks`."""
        return blocks.split(self(blocks.join(x), sigma, images))
