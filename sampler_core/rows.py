"""Rows of a call: consecutive ones are sliced, so that nothing is copied; others are indexed."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

Rows = np.ndarray | slice


def as_slice(rows: np.ndarray) -> Rows:
    """The same rows as a slice, if they are consecutive."""
    if len(rows) == 0 or (len(rows) > 1 and not (rows[1:] - rows[:-1] == 1).all()):
        return rows
    return slice(int(rows[0]), int(rows[-1]) + 1)


def pick(x: Tensor, rows: Rows) -> Tensor:
    """x[rows]: a view for a slice, a copy for indices."""
    return x[rows] if isinstance(rows, slice) else x[torch.from_numpy(rows).to(x.device)]
