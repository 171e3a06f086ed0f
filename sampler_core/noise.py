"""Noise streams: one per image, keyed so that nothing depends on batch, chunks or tree.

Child 1 of every transition uses the noise that the stock sampler would draw at that step for the image's seed; its
siblings and the acceptance draws have streams of their own, keyed by (seed, step, child) and (seed, step, purpose).
A transition keeps its noises, round after round, until it has been verified; then they are spent. A verification that
looks at noises beyond the step where it stops (block verification) must `renew` them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

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
    """Scalar draws from one keyed stream per verification: BLAKE2b of its key and a counter.

    keys: a hash for every verification that has taken in its stream's key, and what to add for the verification. This
    takes a tenth of a generator's time.
    """

    def __init__(self, keys: Sequence[tuple[hashlib.blake2b, bytes]], asked: int = 0) -> None:
        self._keys = keys
        self._asked = asked

    def uniform(self, count: int) -> np.ndarray:
        return self._bits(count) * 2.0**-53

    def normal(self, count: int) -> np.ndarray:
        normal: np.ndarray = ndtri((self._bits(count) + 0.5) * 2.0**-53)
        return normal

    def only(self, rows: np.ndarray) -> StreamDraws:
        return StreamDraws([self._keys[row] for row in rows.tolist()], self._asked)

    def _bits(self, count: int) -> np.ndarray:
        """Whole numbers below 2^53, [n, count]; new ones at every call."""
        asked = self._asked.to_bytes(4, "little")
        self._asked += 1
        counters = [asked + part.to_bytes(4, "little") for part in range(-(-count // 8))]  # a digest is eight numbers
        digests = []
        for stream, own in self._keys:
            for counter in counters:
                hashed = stream.copy()
                hashed.update(own + counter)
                digests.append(hashed.digest())
        bits = np.frombuffer(b"".join(digests), dtype="<u8").reshape(len(self._keys), -1)
        return bits[:, :count] >> 11


class Streams:
    """The noise of a batch.

    seeds: one per image. like: a latent [B, ...] whose item shape, dtype and device the noises are drawn in.
    draws_noise: [N] bools, the steps in which the stock sampler draws noise. blocks: the layout they are kept in.
    """

    def __init__(
        self, seeds: Sequence[int], like: Tensor, draws_noise: Sequence[bool], blocks: Whole | None = None
    ) -> None:
        self._seeds = [int(s) for s in seeds]
        self._shape = (1, *like.shape[1:])
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
        self._hashes: list[dict[str, hashlib.blake2b]] = [{} for _ in self._seeds]
        # How often an image was renewed, and before which step its stock noises have been seen.
        self._renewals = [0] * len(self._seeds)
        self._seen = [0] * len(self._seeds)

    def normal(self, images: np.ndarray, steps: np.ndarray, child: int) -> Tensor:
        noises = []
        for b, i in zip(images.tolist(), steps.tolist(), strict=True):
            noise = self._kept[b].get((i, child))
            noises.append(self._draw(b, i, child) if noise is None else noise)
        return noises[0] if len(noises) == 1 else torch.cat(noises)

    def draws(self, images: np.ndarray, steps: np.ndarray, purpose: str) -> StreamDraws:
        pairs = zip(images.tolist(), steps.tolist(), strict=True)
        return StreamDraws([(self._hash(b, purpose), i.to_bytes(8, "little")) for b, i in pairs])

    def spend(self, image: int, step: int) -> None:
        self._forget(image, range(self._spent[image], step))
        self._spent[image] = step

    def renew(self, images: np.ndarray, steps: np.ndarray) -> None:
        for image, step in zip(images.tolist(), steps.tolist(), strict=True):
            self._forget(image, range(step, len(self._draws_noise)))
            self._hashes[image].clear()
            self._renewals[image] += 1
            self._seen[image] = self._drawn[image]

    def _forget(self, image: int, steps: range) -> None:
        kept = self._kept[image]
        for key in [key for key in kept if key[0] in steps]:
            del kept[key]

    def _draw(self, image: int, step: int, child: int) -> Tensor:
        """A noise [1, ...] that is not kept yet; zeros where the stock sampler draws nothing."""
        assert step >= self._spent[image], f"the noise of step {step} has been spent: it may never be used again"
        kept = self._kept[image]
        if child > 0 or step < self._seen[image]:
            kept[step, child] = self._randn(step, self._generator(self._key(image, "sibling", step, child)))
            return kept[step, child]
        while (i := self._drawn[image]) <= step:
            kept[i, 0] = self._randn(i, self._main[image])
            self._drawn[image] += 1
        return kept[step, 0]

    def _hash(self, image: int, purpose: str) -> hashlib.blake2b:
        """The hash of all scalar draws of an image for one purpose."""
        known = self._hashes[image]
        if purpose not in known:
            known[purpose] = hashlib.blake2b(self._key(image, purpose).to_bytes(8, "little"))
        return known[purpose]

    def _key(self, image: int, purpose: str, *key: int) -> int:
        """The seed of a stream of this image; another one after every renewal."""
        renewals = self._renewals[image]
        return derive(self._seeds[image], purpose, *key, *(("renewed", renewals) if renewals else ()))

    def _generator(self, seed: int) -> torch.Generator:
        return torch.Generator(device=self._source).manual_seed(seed % 2**64)

    def _randn(self, step: int, generator: torch.Generator) -> Tensor:
        if self._draws_noise[step]:
            noise = torch.randn(self._shape, dtype=self._dtype, device=self._source, generator=generator)
        else:
            noise = torch.zeros(self._shape, dtype=self._dtype, device=self._source)
        return self._blocks.split(noise.to(self._device))


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
