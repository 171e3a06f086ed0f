"""The call of the target, and its twin the call of the draft model: rows in, denoised predictions out.

The host sees a batch of latents at sigmas of their own. It tiles conditioning over the batch cyclically, so rows must
lie node after node over whole batches wherever conditioning differs between images; elsewhere any order is right.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import comfy.model_management
import numpy as np
import torch
from torch import Tensor

from . import compat
from .finding import Mode
from .inpaint import Inpaint
from .modes import Choice

_log = logging.getLogger(__name__)

Predict = Callable[[Tensor, Tensor], Tensor]


@dataclass
class Usage:
    """calls: of the host's model. limit: the most latents a call may hold since memory ran out, or None."""

    calls: int = 0
    limit: int | None = None


@dataclass(frozen=True)
class Rows:
    """A model as the sampler core calls it: (x [rows, ...], sigma [rows], images [rows]) -> denoised [rows, ...].

    predict(x, sigma): the host's call. images: B. choice: which rows may share a call. inpaint: the mask's mathematics,
    or None. What does not fit into memory is divided, and stays so. Interrupts are looked for before every call.
    """

    predict: Predict
    images: int
    choice: Choice = field(default_factory=Choice)
    inpaint: Inpaint | None = None
    usage: Usage = field(default_factory=Usage)
    takes_images: ClassVar[bool] = True

    def __call__(self, x: Tensor, sigma: Tensor, images: np.ndarray) -> Tensor:
        if self.inpaint is None:
            return self._call(x, sigma, images)
        index = torch.from_numpy(images).to(x.device)
        return self.inpaint(lambda masked: self._call(masked, sigma, images), x, sigma, index)

    def _call(self, x: Tensor, sigma: Tensor, images: np.ndarray) -> Tensor:
        parts = list(self._parts(sigma, images))
        if len(parts) == 1 and np.array_equal(parts[0][0], np.arange(len(x))):
            return self._pieces(x, sigma)
        out: Tensor | None = None
        for source, place, rows in parts:
            gather, put = (torch.from_numpy(index).to(x.device) for index in (source, rows))
            found = self._pieces(x[gather], sigma[gather])[torch.from_numpy(place).to(x.device)]
            if out is None:
                out = found.new_empty((len(x), *found.shape[1:]))
            out[put] = found
        assert out is not None
        return out

    def _parts(self, sigma: Tensor, images: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Rows that may share a call: source, the row in each place of it; place of each of its rows; and these."""
        for rows in self._classes(sigma):
            if not self.choice.whole_batches:
                source, place = rows, np.arange(len(rows))
            else:
                source, place = whole_batches(images[rows], self.images)
                source = rows[source]
            yield source, place, rows

    def _classes(self, sigma: Tensor) -> list[np.ndarray]:
        everything = np.arange(len(sigma))
        if self.choice.mode == Mode.VECTOR:
            return [everything]
        known = self.choice.classes
        keys = np.array([known[s] if known is not None else s for s in sigma.tolist()])
        return [everything[keys == key] for key in dict.fromkeys(keys.tolist())]

    def _pieces(self, x: Tensor, sigma: Tensor) -> Tensor:
        """One part, in as few calls as mode and memory allow."""
        batch = self.images if self.choice.whole_batches else 1
        done: list[Tensor] = []
        start = 0
        while start < len(x):
            size = self._size(len(x) - start, batch)
            comfy.model_management.throw_exception_if_processing_interrupted()
            found = self._try(x[start : start + size], sigma[start : start + size], batch)
            if found is not None:
                done.append(found)
                start += size
        return done[0] if len(done) == 1 else torch.cat(done)

    def _size(self, rows: int, batch: int) -> int:
        limit = batch if self.choice.mode == Mode.NODE else self.usage.limit
        return min(rows, limit or rows)

    def _try(self, x: Tensor, sigma: Tensor, batch: int) -> Tensor | None:
        """The prediction, or None where memory ran out and a smaller call may fit."""
        if self.choice.keyframes is not None:
            self.choice.keyframes.set(sigma[0])
        self.usage.calls += 1
        try:
            return self.predict(x, sigma)
        except Exception as error:
            if not compat.is_out_of_memory(error):
                raise
            if len(x) <= batch:
                what = "one latent" if batch == 1 else f"{batch} latents, one of every image,"
                hint = "Use a smaller latent" + (" or fewer images." if batch > 1 else ".")
                message = f"Out of memory: a call on {what} does not fit. {hint} {error}"
                raise compat.out_of_memory(message) from error
        # Outside of the except clause: the error holds the tensors of the call that failed.
        comfy.model_management.soft_empty_cache()
        self.usage.limit = max(len(x) // batch // 2, 1) * batch
        _log.warning(
            "[DraftTree] out of memory in a call on %d latents: going on with %d at the most.", len(x), self.usage.limit
        )
        return None


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


def rows_of(model: Any, extra_args: dict[str, Any], choice: Choice, images: int) -> Rows:
    """The target as the core calls it. model: the host's KSamplerX0Inpaint; its mask is ours to apply, row by row."""
    guider, mask = model.inner_model, extra_args.get("denoise_mask")
    inpaint = None
    if mask is not None:
        function = extra_args.get("model_options", {}).get("denoise_mask_function")
        at = None
        if function is not None:
            extra = {"model": guider, "sigmas": model.sigmas}

            def at(sigma: Tensor, mask: Tensor) -> Tensor:
                return function(sigma, mask, extra_options=extra)

        scale = guider.model_patcher.model.scale_latent_inpaint
        inpaint = Inpaint(scale, mask, model.noise, model.latent_image, at)
    return Rows(guided(guider, extra_args), images, choice, inpaint)
