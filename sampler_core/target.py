"""The one place where the engine calls a network: the target, or a draft model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import Tensor

from .errors import InputError


class Target:
    """Counts the calls and rows of a denoise-like callable, and checks the shape of what it returns.

    denoise(x [rows, ...], sigma [rows]) -> [rows, ...]. A callable with a true attribute `takes_images` is called with
    a third argument, the image each row belongs to, [rows] int64 on the CPU.
    """

    def __init__(self, denoise: Callable[..., Tensor], role: str = "target") -> None:
        self._denoise = denoise
        self._takes_images = bool(getattr(denoise, "takes_images", False))
        self._role = role
        self.calls = 0
        self.rows = 0

    def __call__(self, x: Tensor, sigma: Tensor, images: np.ndarray) -> Tensor:
        denoised = self._denoise(x, sigma, images) if self._takes_images else self._denoise(x, sigma)
        if denoised.shape != x.shape:
            raise InputError(
                f"{self._role}: it returned shape {tuple(denoised.shape)} for latents of shape {tuple(x.shape)}; "
                "both must agree. Use a model made for these latents."
            )
        self.calls += 1
        self.rows += len(x)
        return denoised
