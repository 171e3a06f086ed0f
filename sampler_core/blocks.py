"""The layout of latents inside the sampler: square blocks of the last two dimensions, one after the other."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

SIZE = 8  # latent pixels


class Whole:
    """Latents as they are."""

    def split(self, x: Tensor) -> Tensor:
        return x

    def join(self, blocks: Tensor) -> Tensor:
        return blocks


class Blocks(Whole):
    """[rows, C, H, W] <-> [rows, count, elements]: blocks of `size` x `size` over all channels.

    A latent of fewer than three dimensions, or one no larger than a block, is one block. Blocks that hang over the
    edge are filled with zeros. The sampler's arithmetic is the same for every element, so it works in this layout from
    beginning to end, and only what leaves it is joined.
    """

    def __init__(self, shape: torch.Size, size: int = SIZE) -> None:
        self._shape = tuple(shape)
        self.count, self.elements = 1, shape.numel()
        self._split: np.ndarray | None = None
        self._moved: dict[tuple[int, torch.device], Tensor] = {}
        if len(shape) >= 3 and (shape[-1] > size or shape[-2] > size):
            h, w = -(-shape[-2] // size), -(-shape[-1] // size)
            self._pad = (0, w * size - shape[-1], 0, h * size - shape[-2])
            depth = shape.numel() // (shape[-1] * shape[-2])
            self._planes = depth, h * size, w * size
            self.count, self.elements = h * w, depth * size * size
            # Lines of `size` pixels stay together: [depth, h, size, w] of them become [h, w, depth, size].
            self._line = size
            lines = np.arange(depth * h * size * w).reshape(depth, h, size, w)
            self._split = lines.transpose(1, 3, 0, 2).ravel()
            self._join = np.argsort(self._split)

    def split(self, x: Tensor) -> Tensor:
        """[rows, ...] -> [rows, count, elements]."""
        if self._split is None:
            return x.reshape(x.shape[0], 1, self.elements)
        x = x.reshape(x.shape[0], self._planes[0], *self._shape[-2:])
        if any(self._pad):
            x = torch.nn.functional.pad(x, self._pad)
        return self._arrange(x, self._split).reshape(x.shape[0], self.count, self.elements)

    def join(self, blocks: Tensor) -> Tensor:
        """The inverse of `split`."""
        if self._split is None:
            return blocks.reshape(blocks.shape[0], *self._shape)
        x = self._arrange(blocks, self._join).reshape(blocks.shape[0], *self._planes)
        if any(self._pad):
            x = x[..., : self._shape[-2], : self._shape[-1]]
        return x.reshape(blocks.shape[0], *self._shape)

    def _arrange(self, x: Tensor, order: np.ndarray) -> Tensor:
        lines = x.reshape(x.shape[0], len(order), self._line)
        if lines.device.type == "cpu" and lines.dtype == torch.float32:
            # A fourth of torch's time.
            return torch.from_numpy(lines.numpy().take(order, axis=1))
        key = id(order), lines.device
        if key not in self._moved:
            self._moved[key] = torch.from_numpy(order).to(lines.device)
        return lines[:, self._moved[key]]
