"""benchmarks/acceptance.py as a user runs it: from anywhere, JSON alone on stdout."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sampler_core import coupling

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "acceptance.py"


def call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_rows_of_chosen_deltas_and_widths(tmp_path):
    done = call(tmp_path, "--json", "--delta", "0.25,1", "--width", "2")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [(row["delta"], row["K"], row["rule"]) for row in rows] == [
        (delta, 2, name) for delta in (0.25, 1.0) for name in coupling.NODE_NAMES
    ]
    expected = {"reflection": 0.6171, "greedy": 0.7136, "rass": 0.7903, "optimal": 0.7920}  # at delta 1
    for row in rows[len(coupling.NODE_NAMES) :]:
        assert set(row) == {"delta", "K", "rule", "acceptance", "bound"}
        assert row["acceptance"] == pytest.approx(expected[row["rule"]], abs=0.002)
        assert row["bound"] == pytest.approx(0.7920, abs=1e-4)


@pytest.mark.parametrize("arguments", [("--delta", "-1"), ("--width", "0,x")])
def test_bad_lists_are_refused(tmp_path, arguments):
    done = call(tmp_path, "--json", *arguments)
    assert done.returncode == 2 and arguments[0] in done.stderr and not done.stdout


def test_chains(tmp_path):
    """Step by step, a call finishes 1 + a + … + a^L steps, a = 2 Phi(-delta/2)."""
    done = call(tmp_path, "--json", "--delta", "1", "--chain", "1,4")
    assert done.returncode == 0, done.stderr
    one, four = json.loads(done.stdout)
    each = 0.6170750774519738
    assert one["steps"] == pytest.approx(1 + each, abs=0.001) == one["block"]
    assert four["steps"] == pytest.approx(sum(each**i for i in range(5)), abs=0.002)
    assert four["gain"] == pytest.approx(9.4, abs=0.2)
