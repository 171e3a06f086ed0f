"""Rows of a call: consecutive ones are sliced, so that nothing is copied; others are indexed. Their inner products."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

Rows = np.ndarray | slice
VECDOT = getattr(np, "vecdot", None)  # numpy 2: on the CPU half of torch's time


def which(flags: np.ndarray) -> np.ndarray:
    """The places of the true ones: np.flatnonzero, which goes a long way round."""
    return flags.nonzero()[0]


def as_slice(rows: np.ndarray) -> Rows:
    """The same rows as a slice, if they are consecutive."""
    if (n := rows.size) == 0:
        return rows
    first = int(rows[0])
    if n == 1:
        return slice(first, first + 1)
    last = int(rows[-1])
    if last - first != n - 1 or (n > 2 and not (rows[1:] - rows[:-1] == 1).all()):
        return rows
    return slice(first, last + 1)


def pick(x: Tensor, rows: Rows | None) -> Tensor:
    """x[rows]: a view for a slice, a copy for indices; x itself for None."""
    if rows is None:
        return x
    return x[rows] if isinstance(rows, slice) else x[torch.from_numpy(rows).to(x.device)]


def put(x: Tensor, rows: Rows | None, values: Tensor) -> Tensor:
    """x with x[rows] = values; for None the values themselves."""
    if rows is None:
        return values
    x[rows if isinstance(rows, slice) else torch.from_numpy(rows).to(x.device)] = values
    return x


def inner_products(*pairs: tuple[Tensor, Tensor]) -> list[np.ndarray]:
    """<x, y> of all rows of each pair, [rows] in float64; x, y: [rows, elements]. One transfer for them all."""
    if VECDOT and pairs[0][0].device.type == "cpu":
        with np.errstate(all="ignore"):  # as torch does
            return [VECDOT(x.numpy(), y.numpy()).astype(np.float64) for x, y in pairs]
    found = torch.cat([torch.linalg.vecdot(x, y, dim=1) for x, y in pairs]).cpu().numpy().astype(np.float64)
    return np.split(found, np.cumsum([x.shape[0] for x, _ in pairs])[:-1])
