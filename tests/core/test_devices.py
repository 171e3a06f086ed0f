"""The core on a device without float64, generators or a sixth dimension; scalars where they belong."""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from card import CARD, CardTensor, Refused, carried, plugged_in

import sampler_core

ROOT = pathlib.Path(__file__).resolve().parents[2]


def target(x: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
    assert x.device == sigma.device
    return torch.tanh(x) * (1 - 0.3 * sigma.reshape(-1, *[1] * (x.ndim - 1)))


def near(x: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
    return target(x, sigma) + 0.01 * torch.cos(x)


KERNELS = ["flow_ancestral", "ancestral", "ddpm", "flow_lcm", "lcm"]
CASES: list[dict[str, Any]] = [
    {"tree": (1, 1, 1), "rule": "optimal", "drafter": "look_ahead"},
    {"tree": "auto", "rule": "optimal", "drafter": "look_ahead", "rows": 6},
    {"tree": (2, 2), "rule": "optimal", "drafter": "look_ahead"},
    {"tree": (3, 1), "rule": "rass", "drafter": "frozen"},
    {"tree": (2, 1), "rule": "greedy", "drafter": "frozen"},
    {"tree": (1, 1), "rule": "block", "drafter": "frozen"},
    {"tree": (1, 1), "rule": "reflection", "drafter": near},
    {"tree": (), "rule": "optimal", "drafter": "look_ahead"},
]


def sample(x: torch.Tensor, kernel: str, case: dict[str, Any], seed: int = 3) -> tuple[torch.Tensor, Any]:
    flow = kernel.startswith("flow")
    sigmas = torch.linspace(1.0 if flow else 12.0, 0, 9)
    return sampler_core.sample(target, x, sigmas, kernel=kernel, seed=seed, **case)


@pytest.mark.parametrize("shape", [(2, 4, 16, 12), (3, 4, 2, 8, 8), (2, 5)], ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['tree']}-{case['rule']}")
def test_a_card_can_do_it(case: dict[str, Any], kernel: str, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    with plugged_in():
        result, report = sample(carried(x), kernel, case)
    assert isinstance(result, CardTensor) and torch.isfinite(result.held).all()
    assert report.mode == ("tree" if case["tree"] else "plain")


@pytest.mark.parametrize("kernel", ["flow_ancestral", "ddpm"])
def test_a_card_gets_the_numbers_of_the_cpu(kernel: str) -> None:
    """One row: the stock sampler. Only on the CPU is 1 added to the seed."""
    x = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(1))
    with plugged_in():
        there, _ = sample(carried(x), kernel, CASES[-1], seed=8)
    here, _ = sample(x, kernel, CASES[-1], seed=7)
    assert isinstance(there, CardTensor)
    torch.testing.assert_close(there.held, here)


PLANTED: dict[str, Callable[[torch.Tensor], Any]] = {
    "float64": lambda x: x.double(),
    "float64 made there": lambda x: torch.zeros(2, dtype=torch.float64, device=CARD),
    "6 dimensions": lambda x: x.reshape(1, 1, 1, 1, 2, -1),
    "tensors of the card and of the CPU": lambda x: x + torch.ones(2, 8),
    "generator": lambda x: torch.randn(2, device=CARD, generator=torch.Generator()),
}


@pytest.mark.parametrize("what", list(PLANTED))
def test_the_card_refuses(what: str) -> None:
    """Planted: each of these must raise, or the tests above would show nothing."""
    with (
        plugged_in(),
        pytest.raises((Refused, RuntimeError), match=None if "generator" in what else what.split(" m")[0]),
    ):
        PLANTED[what](carried(torch.randn(2, 8)))


# Where float64 is meant: scalars on the CPU. Function (or module) -> why.
FLOAT64 = {
    "sampler_core/kernels.py": {"Kernel.__init__"},  # coefficients of the steps
    "sampler_core/rows.py": {"inner_products"},  # one transfer a round
}


def _uses_of_float64(file: pathlib.Path) -> set[str]:
    found: set[str] = set()

    def walk(node: ast.AST, where: tuple[str, ...]) -> None:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            where = (*where, node.name)
        if isinstance(node, ast.Attribute) and node.attr in ("float64", "double", "complex128"):
            found.add(".".join(where))
        for child in ast.iter_child_nodes(node):
            walk(child, where)

    walk(ast.parse(file.read_text(encoding="utf-8")), ())
    return found


@pytest.mark.parametrize("folder", ["sampler_core", "nodes"])
def test_float64_stays_on_the_cpu(folder: str) -> None:
    for file in (ROOT / folder).rglob("*.py"):
        name = file.relative_to(ROOT).as_posix()
        assert _uses_of_float64(file) <= FLOAT64.get(name, set()), f"{name}: a new use; only CPU scalars may be float64"
