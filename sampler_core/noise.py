"""Noise streams: one per image, keyed so that nothing depends on batch, chunks or tree.

Child 1 of every transition uses the noise that the stock sampler would draw at that step for the image's seed; its
siblings and the acceptance draws have streams of their own, keyed by (seed, step, child) and (seed, step, purpose).
A transition keeps its noises, round after round, until it has been verified; then they are spent. A verification that
looks at noises beyond the step where it stops (block verification) must `renew` them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from .blocks import Whole
from .coupling import Draws


def derive(seed: int, *key: int | str) -> int:
    """A 63-bit seed for the stream `key` of `seed`; different keys give unrelated streams."""
    digest = hashlib.blake2b(repr((int(seed), *key)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def image_seed(seed: int, index: int) -> int:
    """The seed of image `index` of a batch that shares one seed; image 0 keeps the seed itself."""
    return seed if index == 0 else derive(seed, "image", index)


class Noise(Protocol):
    """What the engine asks of a noise source. `images` and `steps` are [n] integer arrays."""

    def normal(self, images: np.ndarray, steps: np.ndarray, child: int) -> Tensor:
        """The noise [n, ...] of these transitions for one child number; the same at every call until it is spent."""
        ...

    def draws(self, images: np.ndarray, steps: np.ndarray, purpose: str) -> Draws:
        """Scalar draws for these transitions."""
        ...

    def spend(self, image: int, step: int) -> None:
        """Forget every noise of this image before `step`."""
        ...

    def renew(self, images: np.ndarray, steps: np.ndarray) -> None:
        """Forget every noise of these images from these steps [n] on; it and all scalar draws will be fresh."""
        ...


class StreamDraws:
    """Scalar draws from one keyed stream per verification: SHAKE-256 of its key, in a tenth of a generator's time."""

    def __init__(self, keys: Sequence[bytes], asked: int = 0) -> None:
        self._keys = keys
        self._asked = asked

    def uniform(self, count: int) -> Tensor:
        return torch.from_numpy(self._bits(count) * 2.0**-53)

    def normal(self, count: int) -> Tensor:
        return torch.from_numpy(ndtri((self._bits(count) + 0.5) * 2.0**-53))

    def only(self, rows: np.ndarray) -> StreamDraws:
        return StreamDraws([self._keys[row] for row in rows.tolist()], self._asked)

    def _bits(self, count: int) -> np.ndarray:
        """Whole numbers below 2^53, [n, count]; new ones at every call."""
        asked = self._asked.to_bytes(4, "little")
        self._asked += 1
        raw = b"".join([hashlib.shake_256(key + asked).digest(8 * count) for key in self._keys])
        return np.frombuffer(raw, dtype="<u8").reshape(len(self._keys), count) >> 11


class Streams:
    """The noise of a batch.

    seeds: one per image. like: a latent [B, ...] whose item shape, dtype and device the noises are drawn in.
    draws_noise: [N] bools, the steps in which the stock sampler draws noise. blocks: the layout they are kept in.
    """

    def __init__(
        self, seeds: Sequence[int], like: Tensor, draws_noise: Sequence[bool], blocks: Whole | None = None
    ) -> None:
        self._seeds = [int(s) for s in seeds]
        self._shape = like.shape[1:]
        self._dtype, self._device = like.dtype, like.device
        self._draws_noise = list(draws_noise)
        self._blocks = blocks or Whole()
        # ComfyUI adds 1 on the CPU, where initial noise and step noise would otherwise be the same numbers.
        bump = 1 if like.device.type == "cpu" else 0
        self._source = _where_generators_are(like.device)
        self._main = [self._generator(s + bump) for s in self._seeds]
        self._drawn = [0] * len(self._seeds)
        self._spent = [0] * len(self._seeds)
        self._kept: list[dict[tuple[int, int], Tensor]] = [{} for _ in self._seeds]
        self._draw_keys: list[dict[tuple[int, str], bytes]] = [{} for _ in self._seeds]
        # How often an image was renewed, and before which step its stock noises have been seen.
        self._renewals = [0] * len(self._seeds)
        self._seen = [0] * len(self._seeds)

    def normal(self, images: np.ndarray, steps: np.ndarray, child: int) -> Tensor:
        noises = [self._one(b, i, child) for b, i in zip(images.tolist(), steps.tolist(), strict=True)]
        return noises[0] if len(noises) == 1 else torch.cat(noises)

    def draws(self, images: np.ndarray, steps: np.ndarray, purpose: str) -> StreamDraws:
        pairs = zip(images.tolist(), steps.tolist(), strict=True)
        return StreamDraws([self._draw_key(b, i, purpose) for b, i in pairs])

    def spend(self, image: int, step: int) -> None:
        for kept in (self._kept[image], self._draw_keys[image]):
            _drop(kept, range(step))
        self._spent[image] = step

    def renew(self, images: np.ndarray, steps: np.ndarray) -> None:
        for image, step in zip(images, steps, strict=True):
            _drop(self._kept[image], range(step, len(self._draws_noise)))
            self._draw_keys[image].clear()
            self._renewals[image] += 1
            self._seen[image] = self._drawn[image]

    def _one(self, image: int, step: int, child: int) -> Tensor:
        """[1, ...]; zeros where the stock sampler draws nothing."""
        assert step >= self._spent[image], f"the noise of step {step} has been spent: it may never be used again"
        kept = self._kept[image]
        if (step, child) in kept:
            return kept[step, child]
        if child > 0 or step < self._seen[image]:
            generator = self._generator(self._key(image, "sibling", step, child))
            kept[step, child] = self._randn(generator) if self._draws_noise[step] else self._zeros()
            return kept[step, child]
        while self._drawn[image] <= step:
            i = self._drawn[image]
            kept[i, 0] = self._randn(self._main[image]) if self._draws_noise[i] else self._zeros()
            self._drawn[image] += 1
        return kept[step, 0]

    def _draw_key(self, image: int, step: int, purpose: str) -> bytes:
        """The key of a transition's scalar draws: asked for again in every round that drafts it."""
        known = self._draw_keys[image]
        if (step, purpose) not in known:
            known[step, purpose] = self._key(image, purpose, step).to_bytes(8, "little")
        return known[step, purpose]

    def _key(self, image: int, purpose: str, *key: int) -> int:
        """The seed of a stream of this image; another one after every renewal."""
        renewals = self._renewals[image]
        return derive(self._seeds[image], purpose, *key, *(("renewed", renewals) if renewals else ()))

    def _generator(self, seed: int) -> torch.Generator:
        return torch.Generator(device=self._source).manual_seed(seed % 2**64)

    def _randn(self, generator: torch.Generator) -> Tensor:
        noise = torch.randn((1, *self._shape), dtype=self._dtype, device=self._source, generator=generator)
        return self._blocks.split(noise.to(self._device))

    def _zeros(self) -> Tensor:
        return self._blocks.split(torch.zeros((1, *self._shape), dtype=self._dtype, device=self._device))


def _drop(kept: dict[tuple[int, Any], Any], steps: range) -> None:
    """Remove what is kept for these steps."""
    for key in [key for key in kept if key[0] in steps]:
        del kept[key]


def _where_generators_are(device: torch.device) -> torch.device:
    """The device itself, or the CPU for one (DirectML, say) that has no generators of its own."""
    try:
        torch.Generator(device=device)
    except RuntimeError:
        return torch.device("cpu")
    return device


class Split:
    """A noise source whose noises are brought into blocks."""

    def __init__(self, noise: Noise, blocks: Whole) -> None:
        self._noise, self._blocks = noise, blocks
        self.draws, self.spend, self.renew = noise.draws, noise.spend, noise.renew

    def normal(self, images: np.ndarray, steps: np.ndarray, child: int) -> Tensor:
        return self._blocks.split(self._noise.normal(images, steps, child))
