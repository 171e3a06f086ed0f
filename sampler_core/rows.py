"""Rows of a call: consecutive ones are sliced, so that nothing is copied; others are indexed."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

Rows = np.ndarray | slice


def as_slice(rows: np.ndarray) -> Rows:
    """The same rows as a slice, if they are consecutive."""
    if (n := rows.size) == 0:
        return rows
    first, last = int(rows[0]), int(rows[-1])
    if last - first != n - 1 or (n > 2 and not (rows[1:] - rows[:-1] == 1).all()):
        return rows
    return slice(first, last + 1)


def pick(x: Tensor, rows: Rows) -> Tensor:
    """x[rows]: a view for a slice, a copy for indices."""
    return x[rows] if isinstance(rows, slice) else x[torch.from_numpy(rows).to(x.device)]


def put(x: Tensor, rows: Rows, values: Tensor | float) -> None:
    """x[rows] = values."""
    x[rows if isinstance(rows, slice) else torch.from_numpy(rows).to(x.device)] = values
