"""Acceptance rules: each turns K draft candidates into one exact draw from the target.

A rule sees one scalar problem per verification: candidates u_1…u_K ~ N(0, 1) along the direction in which
draft and target differ, and a target N(delta, 1) on that axis. `Block` alone judges all steps of a chain together.
"""

from __future__ import annotations

from ..errors import InputError
from .block import Block
from .bound import bound
from .greedy import Greedy
from .optimal import Optimal
from .ranked import Ranked
from .reflection import Reflection
from .rule import Draws, Rule

_RULES: dict[str, type[Rule]] = {
    "reflection": Reflection,
    "greedy": Greedy,
    "rass": Ranked,
    "optimal": Optimal,
    "block": Block,
}

NAMES: tuple[str, ...] = tuple(_RULES)
NODE_NAMES: tuple[str, ...] = tuple(name for name in _RULES if name != "block")
"""The rules that judge a node at a time, in trees of any shape."""


def get(name: str) -> Rule:
    """The rule called `name`; InputError (listing NAMES) if there is none."""
    try:
        return _RULES[name]()
    except (KeyError, TypeError):
        raise InputError(f"rule: {name!r} is not an acceptance rule; choose one of {', '.join(NAMES)}") from None


__all__ = ["NAMES", "NODE_NAMES", "Block", "Draws", "Rule", "bound", "get"]
