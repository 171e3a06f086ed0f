"""Noise streams: one per image, keyed so that nothing depends on batch, chunks or tree.

Child 1 of every transition uses the noise that the stock sampler would draw at that step for the image's seed; its
siblings and the acceptance draws have streams of their own, keyed by (seed, step, child) and (seed, step, purpose).
A transition keeps its noises, round after round, until it has been verified; then they are spent. A verification that
looks at noises beyond the step where it stops (block verification) must `renew` them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
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
        """The noise [n, ...] of these transitions for one child number; the same at every call until it is spent.

        The tensor holds until the next call.
        """
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

    def __init__(self, keys: Callable[[], Sequence[bytes]], asked: int = 0) -> None:
        self._find_keys = keys
        self._asked = asked

    @cached_property
    def _keys(self) -> Sequence[bytes]:
        """Worked out when something is drawn, which many verifications never do."""
        return self._find_keys()

    def uniform(self, count: int) -> Tensor:
        return torch.from_numpy(self._bits(count) * 2.0**-53)

    def normal(self, count: int) -> Tensor:
        return torch.from_numpy(ndtri((self._bits(count) + 0.5) * 2.0**-53))

    def only(self, rows: np.ndarray) -> StreamDraws:
        some = [self._keys[row] for row in rows.tolist()]
        return StreamDraws(lambda: some, self._asked)

    def _bits(self, count: int) -> np.ndarray:
        """Whole numbers below 2^53, [n, count]; new ones at every call."""
        asked = self._asked.to_bytes(4, "little")
        self._asked += 1
        raw = b"".join([hashlib.shake_256(key + asked).digest(8 * count) for key in self._keys])
        return np.frombuffer(raw, dtype="<u8").reshape(-1, count) >> 11


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
        self._drawn_to: Tensor | None = None  # the latent that the generators fill, again and again
        self._stock = [Stock(self._generator(s + bump)) for s in self._seeds]
        self._spent = [0] * len(self._seeds)
        self._kept: list[dict[tuple[int, int], Tensor]] = [{} for _ in self._seeds]
        self._keys: list[dict[tuple[str, int], bytes]] = [{} for _ in self._seeds]
        # How often an image was renewed, and from and before which step its stock noises are not to be used.
        self._renewals = [0] * len(self._seeds)
        self._renewed = [len(self._draws_noise)] * len(self._seeds)
        self._seen = [0] * len(self._seeds)

    def normal(self, images: np.ndarray, steps: np.ndarray, child: int) -> Tensor:
        noises: list[Tensor] = []
        run: tuple[int, int, int] | None = None  # image, first and last of consecutive steps of stock noises
        for image, step in zip(images.tolist(), steps.tolist(), strict=True):
            assert step >= self._spent[image], f"the noise of step {step} has been spent: it may never be used again"
            stock = child == 0 and not self._renewed[image] <= step < self._seen[image]
            if run and stock and run[0] == image and run[2] == step - 1:
                run = image, run[1], step
                continue
            if run:
                noises.append(self._of_stock(*run))
            run = (image, step, step) if stock else None
            if not stock:
                noises.append(self._keyed(image, step, child))
        if run:
            noises.append(self._of_stock(*run))
        return noises[0] if len(noises) == 1 else torch.cat(noises)

    def draws(self, images: np.ndarray, steps: np.ndarray, purpose: str) -> StreamDraws:
        pairs = zip(images.tolist(), steps.tolist(), strict=True)
        return StreamDraws(lambda: [self._draws_key(image, purpose, step) for image, step in pairs])

    def spend(self, image: int, step: int) -> None:
        self._spent[image] = step
        kept, keys = self._kept[image], self._keys[image]
        for key in [key for key in kept if key[0] < step]:
            del kept[key]
        for name in [name for name in keys if name[1] < step]:
            del keys[name]

    def renew(self, images: np.ndarray, steps: np.ndarray) -> None:
        for image, step in zip(images.tolist(), steps.tolist(), strict=True):
            kept = self._kept[image]
            for key in [key for key in kept if key[0] >= step]:
                del kept[key]
            self._keys[image].clear()
            self._renewals[image] += 1
            self._renewed[image] = min(self._renewed[image], step)
            self._seen[image] = self._stock[image].stop

    def _of_stock(self, image: int, first: int, last: int) -> Tensor:
        """What the stock sampler draws at these steps, [last + 1 - first, ...]; zeros where it draws nothing."""
        stock = self._stock[image]
        while stock.stop <= last:
            place = stock.room(self._spent[image], self._new_rows)
            if self._draws_noise[stock.stop]:
                self._blocks.split(self._randn(stock.generator), out=place)
            else:
                place.zero_()
            stock.stop += 1
        return stock.rows[first - stock.start : last + 1 - stock.start]

    def _keyed(self, image: int, step: int, child: int) -> Tensor:
        """The noise of a sibling, or of a first child whose stock noise has been seen: [1, ...]."""
        kept = self._kept[image]
        if (step, child) not in kept:
            kept[step, child] = noise = self._new_rows(1)
            if self._draws_noise[step]:
                self._blocks.split(self._randn(self._generator(self._key(image, "sibling", step, child))), out=noise)
            else:
                noise.zero_()
        return kept[step, child]

    def _draws_key(self, image: int, purpose: str, step: int) -> bytes:
        known = self._keys[image]
        if (purpose, step) not in known:
            known[purpose, step] = self._key(image, purpose, step).to_bytes(8, "little")
        return known[purpose, step]

    def _key(self, image: int, purpose: str, *key: int) -> int:
        """The seed of a stream of this image; another one after every renewal."""
        renewals = self._renewals[image]
        return derive(self._seeds[image], purpose, *key, *(("renewed", renewals) if renewals else ()))

    def _generator(self, seed: int) -> torch.Generator:
        return torch.Generator(device=self._source).manual_seed(seed % 2**64)

    def _randn(self, generator: torch.Generator) -> Tensor:
        """The generator's next latent [1, ...], in a place that the next call overwrites."""
        if self._drawn_to is None:
            self._drawn_to = torch.empty((1, *self._shape), dtype=self._dtype, device=self._source)
        return torch.randn(self._drawn_to.shape, generator=generator, out=self._drawn_to).to(self._device)

    def _new_rows(self, count: int) -> Tensor:
        like = torch.empty((1, *self._shape), dtype=self._dtype, device="meta")
        return torch.empty((count, *self._blocks.split(like).shape[1:]), dtype=self._dtype, device=self._device)


class Stock:
    """The stock noises of one image, those of consecutive steps side by side, so that a chain's are a slice.

    rows: the noises from step `start` on, of which those before `stop` are drawn.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator
        self.rows = torch.empty(0)
        self.start = self.stop = 0

    def room(self, live: int, new_rows: Callable[[int], Tensor]) -> Tensor:
        """The place for the next noise, [1, ...]; noises before step `live` are dropped where it takes theirs."""
        place = self.stop - self.start
        if place == len(self.rows):
            first = max(self.start, min(live, self.stop))
            kept = self.stop - first
            old = self.rows
            if 2 * kept > place or place == 0:
                self.rows = new_rows(max(2 * kept, 4))
            if kept:
                self.rows[:kept] = old[first - self.start : place]
            self.start, place = first, kept
        return self.rows[place : place + 1]


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
