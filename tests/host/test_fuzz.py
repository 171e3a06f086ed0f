"""Random graphs: speculative against the same run with a call of the stock sampler's for every row.

--fuzz N runs N graphs (40 without it).
"""

from __future__ import annotations

import collections
import re
from types import SimpleNamespace
from typing import Any

import graphs
import numpy as np
import pytest
import random_graphs
import torch

MODES: collections.Counter[str] = collections.Counter()
TOLERANCE = 2e-3
"""Of a latent's greatest value: rounding of batched calls, through all steps."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "number" in metafunc.fixturenames:
        metafunc.parametrize("number", range(metafunc.config.option.fuzz))


class RowByRow:
    """The target as one call of the host for each row: a whole batch at one noise level, mask and all."""

    takes_images = True

    def __init__(self, rows: Any, model: Any, extra_args: dict[str, Any]) -> None:
        self.model, self.extra_args, self.choice, self.images = model, extra_args, rows.choice, rows.images
        self.usage, self.inpaint = rows.usage, rows.inpaint  # the latter for a draft model only

    def __call__(self, x: torch.Tensor, sigma: torch.Tensor, images: np.ndarray) -> torch.Tensor:
        out = []
        for row, level, image in zip(x, sigma, images, strict=True):
            if self.choice.keyframes:
                self.choice.keyframes.set(level)
            batch = torch.stack([row] * self.images)
            out.append(self.model(batch, level.expand(self.images), **self.extra_args)[image])
        return torch.stack(out)


def _run(ours: SimpleNamespace, number: int) -> tuple[torch.Tensor, dict[str, Any]]:
    case = random_graphs.make(number)
    torch.manual_seed(number)
    return graphs.speculative(ours, case.graph, draft=case.draft, **case.tree)


def _digits_apart(error: BaseException) -> str:
    return f"{type(error).__name__}: {re.sub(r'[0-9]+', '#', str(error))}"


def test_graph(ours: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    case = random_graphs.make(number)
    monkeypatch.setattr(ours.host.cost, "table", lambda model, key, rows, call: ((1.0,) * rows, 0))
    monkeypatch.setattr(ours.host.cost, "of_draft", lambda *given: (0.1, 0))
    torch.manual_seed(number)
    try:
        stock = graphs.stock(ours, case.graph)
    except Exception as theirs:
        with pytest.raises(type(theirs)) as mine:
            _run(ours, number)
        assert _digits_apart(mine.value) == _digits_apart(theirs), case.parts
        MODES["ComfyUI fails"] += 1
        return
    result, report = _run(ours, number)
    MODES[report["call_mode"]] += 1
    print(case.parts, report["summary"])
    assert torch.isfinite(result).all() == torch.isfinite(stock).all()
    if report["mode"] == "plain":
        assert report["reason"] and report["reason"] == report["call_reason"]
        if "trial_calls" not in report and not case.random:
            assert torch.equal(result, stock), case.parts
        return
    assert report["model_calls"] >= report["calls"] and not case.random
    rows_of = ours.host.target.rows_of
    monkeypatch.setattr(ours.host.sampler, "rows_of", lambda *given: RowByRow(rows_of(*given), *given[:2]))
    monkeypatch.setattr(ours.host.probe, "tried", lambda *given: ("", 0))
    reference, other = _run(ours, number)
    assert (report["accepted"], report["proposed"]) == (other["accepted"], other["proposed"]), case.parts
    scale = float(reference.abs().max())
    torch.testing.assert_close(
        result, reference, rtol=0, atol=TOLERANCE * scale, msg=lambda text: f"{case.parts}: {text}"
    )
    if number % 4 == 0:
        one, _ = graphs.speculative(ours, random_graphs.make(number).graph, ())
        assert torch.equal(one, stock), case.parts


def test_every_mode_was_met(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> None:
    if sum(MODES.values()) >= 40:
        with capsys.disabled():
            print(f"\n{sum(MODES.values())} random graphs: {dict(MODES.most_common())}")
        assert {"vector", "by sigma", "by node", "plain"} <= set(MODES)
