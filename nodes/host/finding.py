"""What one thing in a graph means for rows that share a call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from torch import Tensor


class Mode(IntEnum):
    """How the rows of a round reach the model, the fastest way first."""

    VECTOR = 0
    """All in one call, each at its own noise level."""
    SIGMA = 1
    """Only rows at noise levels where the same things are at work share a call."""
    NODE = 2
    """One call for each node of the tree, as the stock sampler would make it."""
    PLAIN = 3
    """No tree: the stock sampler."""

    @property
    def label(self) -> str:
        """As it stands in the report."""
        return ("vector", "by sigma", "by node", "plain")[self]


@dataclass(frozen=True)
class Finding:
    """One thing and the fastest mode that is right with it.

    what: its name, with the reason where that is not plain from the mode. active:
    for what asks the first row of a call for its noise level, and only whether it lies in a range: whether each sigma
    of a schedule does; rows that agree share calls. mixes: rows of a call change each other, images of a batch too.
    guess: nothing is known about it, so it is tried before it is relied on.
    """

    what: str
    mode: Mode = Mode.VECTOR
    active: Callable[[Tensor], list[bool]] | None = None
    mixes: bool = False
    guess: bool = False
