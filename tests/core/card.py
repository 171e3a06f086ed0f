"""A device that is not there: it takes no float64, no generators, at most five dimensions, and no tensor of the CPU.

Its tensors say that they are on a device of its own, and hold one of the CPU. Inside `plugged_in()` torch's own calls
with that device make such tensors too. What a card of this kind would refuse raises Refused, with the operation's name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_map

CARD = torch.device("lazy")  # the one kind that torch lets through to us without a driver
MOVES = ("aten::_to_copy", "aten::copy_")
DIMENSIONS = 5


class Refused(Exception):
    """The card cannot do this."""


class CardTensor(torch.Tensor):
    """A tensor on the card; `held` is what it holds."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> CardTensor:
        made = torch.Tensor._make_wrapper_subclass(
            cls, held.size(), strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype, device=CARD
        )
        made.held = held
        return made

    def __repr__(self, **_: Any) -> str:
        return f"CardTensor({self.held!r})"

    def tolist(self) -> Any:
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _dispatch(func, args, kwargs or {})


class _Plugged(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _dispatch(func, args, kwargs or {})


def _dispatch(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    name = func._schema.name
    given: list[torch.Tensor] = []
    tree_map(lambda t: given.append(t) if isinstance(t, torch.Tensor) else None, (args, kwargs))
    cards = [t for t in given if isinstance(t, CardTensor)]
    there = kwargs.get("device") == CARD or (bool(cards) and kwargs.get("device") is None)
    if cards and name not in MOVES and any(t.ndim for t in given if not isinstance(t, CardTensor)):
        raise Refused(f"{name}: tensors of the card and of the CPU")
    if there and kwargs.get("generator") is not None:
        raise Refused(f"{name}: a generator of the CPU for a tensor of the card")
    if name == "aten::copy_":
        there = isinstance(args[0], CardTensor)
    inner = {k: torch.device("cpu") if k == "device" and v == CARD else v for k, v in kwargs.items()}
    plain_args, plain = tree_map(lambda t: t.held if isinstance(t, CardTensor) else t, (args, inner))
    out = func(*plain_args, **plain)

    def wrap(t: Any) -> Any:
        if not (there and isinstance(t, torch.Tensor)):
            return t
        if t.dtype in (torch.float64, torch.complex128):
            raise Refused(f"{name}: float64")
        if t.ndim > DIMENSIONS:
            raise Refused(f"{name}: {t.ndim} dimensions")
        return CardTensor(t)

    wrapped = tree_map(wrap, out)
    return return_and_correct_aliasing(func, args, kwargs, wrapped) if there else wrapped


@contextmanager
def plugged_in() -> Iterator[None]:
    """Let torch's factory functions make tensors on the card."""
    with _Plugged():
        yield


def carried(x: torch.Tensor) -> torch.Tensor:
    """x on the card."""
    return CardTensor(x)
