"""Random numbers for the rules' tests."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch


class Shared:
    """n verifications fed from one generator."""

    def __init__(self, n: int, seed: int | torch.Generator) -> None:
        self._n = n
        self._generator = torch.Generator().manual_seed(seed) if isinstance(seed, int) else seed

    def uniform(self, k: int) -> np.ndarray:
        return torch.rand(self._n, k, dtype=torch.float64, generator=self._generator).numpy()

    def normal(self, k: int) -> np.ndarray:
        return torch.randn(self._n, k, dtype=torch.float64, generator=self._generator).numpy()

    def only(self, rows) -> Shared:
        return Shared(len(rows), self._generator)


class Streams:
    """One generator per verification, as the engine has it."""

    def __init__(self, seeds: list[int] | list[Shared]) -> None:
        self._each = [Shared(1, seed) if isinstance(seed, int) else seed for seed in seeds]

    def only(self, rows) -> Streams:
        return Streams([self._each[row] for row in rows])

    def uniform(self, k: int) -> np.ndarray:
        return np.concatenate([each.uniform(k) for each in self._each])

    def normal(self, k: int) -> np.ndarray:
        return np.concatenate([each.normal(k) for each in self._each])


class Constant:
    """Uniforms and normals that are all the same number."""

    def __init__(self, n: int, uniform: float, normal: float = 0.0) -> None:
        self._n, self._uniform, self._normal = n, uniform, normal

    def uniform(self, k: int) -> np.ndarray:
        return np.full((self._n, k), self._uniform)

    def normal(self, k: int) -> np.ndarray:
        return np.full((self._n, k), self._normal)

    def only(self, rows) -> Constant:
        return Constant(len(rows), float(self._uniform), float(self._normal))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Many small operations: a second thread would mostly wait, and on a busy machine for long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def shared() -> type[Shared]:
    return Shared


@pytest.fixture
def streams() -> type[Streams]:
    return Streams


@pytest.fixture
def constant() -> type[Constant]:
    return Constant
