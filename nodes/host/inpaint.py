"""ComfyUI's inpainting for rows at noise levels of their own; the formulas of comfy.samplers.KSamplerX0Inpaint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Inpaint:
    """What is held to the original picture.

    scale(x=, sigma=, noise=, latent_image=, denoise_mask=): the model's scale_latent_inpaint. mask: 1 where to denoise;
    noise, latent_image: what the rest is held to; all [B, ...]. at(sigma [B], mask [B, ...]): the mask at a noise
    level, as of differential diffusion, or None where it is the same at all.
    """

    scale: Callable[..., Tensor]
    mask: Tensor
    noise: Tensor
    latent_image: Tensor
    at: Callable[[Tensor, Tensor], Tensor] | None = None

    def __call__(self, predict: Callable[[Tensor], Tensor], x: Tensor, sigma: Tensor, images: Tensor) -> Tensor:
        """The masked prediction for rows x [rows, ...] at sigma [rows], of these images [rows]."""
        mask, noise, latent = self._masks(sigma, images), self.noise[images], self.latent_image[images]
        held = 1.0 - mask
        scaled = self.scale(x=x, sigma=sigma, noise=noise, latent_image=latent, denoise_mask=mask)
        return predict(x * mask + scaled * held) * mask + latent * held

    def _masks(self, sigma: Tensor, images: Tensor) -> Tensor:
        """[rows, ...]"""
        if self.at is None:
            return self.mask[images]
        out: Tensor | None = None
        # Mask functions look at the first sigma, so each noise level is asked for by itself.
        for level in torch.unique(sigma):
            rows = torch.nonzero(sigma == level)[:, 0]
            masks = self.at(level.expand(len(self.mask)), self.mask)[images[rows]]
            if out is None:
                out = masks.new_empty((len(sigma), *masks.shape[1:]))
            out[rows] = masks
        assert out is not None
        return out
