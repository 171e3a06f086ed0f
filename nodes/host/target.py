"""The call of the target, and its twin the call of the draft model: rows in, denoised predictions out.

The host sees a batch of latents at sigmas of their own. It tiles conditioning over the batch cyclically, so rows must
lie node after node over whole batches wherever conditioning differs between images; elsewhere any order is right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import comfy.model_management
import numpy as np
import torch
from torch import Tensor

Predict = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Inpaint:
    """ComfyUI's inpainting for rows at sigmas of their own; the formulas of comfy.samplers.KSamplerX0Inpaint.

    scale(x=, sigma=, noise=, latent_image=, denoise_mask=): the model's scale_latent_inpaint.
    mask: 1 where to denoise; noise, latent_image: what the rest is held to; all [B, ...].
    """

    scale: Callable[..., Tensor]
    mask: Tensor
    noise: Tensor
    latent_image: Tensor

    def __call__(self, predict: Predict, x: Tensor, sigma: Tensor, images: Tensor) -> Tensor:
        """The masked prediction for rows x [rows, ...] at sigma [rows], of these images [rows]."""
        mask, noise, latent = self.mask[images], self.noise[images], self.latent_image[images]
        held = 1.0 - mask
        scaled = self.scale(x=x, sigma=sigma, noise=noise, latent_image=latent, denoise_mask=mask)
        return predict(x * mask + scaled * held, sigma) * mask + latent * held


@dataclass(frozen=True)
class Rows:
    """A model as the sampler core calls it: (x [rows, ...], sigma [rows], images [rows]) -> denoised [rows, ...].

    predict(x, sigma): the host's call. images: B. whole_batches: conditioning differs between images. inpaint: the
    mask's mathematics, or None.
    """

    predict: Predict
    images: int
    whole_batches: bool = False
    inpaint: Inpaint | None = None
    takes_images: ClassVar[bool] = True

    def __call__(self, x: Tensor, sigma: Tensor, images: np.ndarray) -> Tensor:
        comfy.model_management.throw_exception_if_processing_interrupted()
        if self.inpaint is None:
            return self._call(x, sigma, images)
        index = torch.from_numpy(images).to(x.device)
        return self.inpaint(lambda masked, s: self._call(masked, s, images), x, sigma, index)

    def _call(self, x: Tensor, sigma: Tensor, images: np.ndarray) -> Tensor:
        if not self.whole_batches or self.images == 1:
            return self.predict(x, sigma)
        source, place = whole_batches(images, self.images)
        if np.array_equal(source, np.arange(len(x))):
            return self.predict(x, sigma)
        gather = torch.from_numpy(source).to(x.device)
        return self.predict(x[gather], sigma[gather])[torch.from_numpy(place).to(x.device)]


def whole_batches(images: np.ndarray, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Lay rows of any images on a grid [nodes, batch] whose column is the image.

    images: [rows]. Returns source [nodes * batch], the row that stands in each cell (row 0 where an image has no more
    rows), and place [rows], the cell of each row.
    """
    turn = np.zeros(len(images), dtype=np.int64)
    for image in range(batch):
        own = np.flatnonzero(images == image)
        turn[own] = np.arange(len(own))
    place = turn * batch + images
    source = np.zeros((int(turn.max()) + 1) * batch, dtype=np.int64)
    source[place] = np.arange(len(images))
    return source, place


def guided(guider: Any, extra_args: dict[str, Any]) -> Predict:
    """The host's guider, with whatever guidance it does, as one call."""
    model_options, seed = extra_args.get("model_options", {}), extra_args.get("seed")
    return lambda x, sigma: guider(x, sigma, model_options=model_options, seed=seed)
