"""The server's life: progress and cancelling, and no server left behind however its user ends."""

from __future__ import annotations

import copy
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import psutil
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / "example_workflows" / "drafttree_demo.json"

KEEPER = f"""
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite started in the background hands down "ignored"
sys.path.insert(0, {str(ROOT / "scripts")!r})
from host_server import HostServer
with HostServer(sys.argv[1]) as server:
    print(server.port, server.base, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def demo_prompt(server: Any) -> dict[str, Any]:
    return server.to_api(json.loads(WORKFLOW.read_text(encoding="utf-8")))


def sampler_of(prompt: dict[str, Any]) -> str:
    return next(node for node, entry in prompt.items() if entry["class_type"] == "DraftTreeKSampler")


def with_inputs(prompt: dict[str, Any], **inputs: Any) -> dict[str, Any]:
    prompt = copy.deepcopy(prompt)
    prompt[sampler_of(prompt)]["inputs"] |= inputs
    return prompt


def test_progress_counts_steps(server: Any, demo_prompt: dict[str, Any]) -> None:
    """It never goes back, counts the steps of the latent, and ends at their number."""
    node = sampler_of(demo_prompt)
    result = server.run(with_inputs(demo_prompt, seed=11, steps=20))
    counted = [(value, maximum) for where, value, maximum in result.progress if where == node]
    assert counted and {maximum for _, maximum in counted} == {20}
    values = [value for value, _ in counted]
    assert values == sorted(values) and values[-1] == 20


def test_cancel(server: Any, demo_prompt: dict[str, Any]) -> None:
    """Cancelling in the middle of the sampler ends the prompt, and the next one runs."""
    node = sampler_of(demo_prompt)
    cancelled = threading.Event()

    def cancel(kind: str, data: dict[str, Any]) -> None:
        if kind == "progress" and str(data["node"]) == node and not cancelled.is_set():
            cancelled.set()
            server.interrupt()

    result = server.run(with_inputs(demo_prompt, seed=12, steps=800), cancel)
    assert cancelled.is_set() and result.status == "interrupted"
    assert max(value for _, value, _ in result.progress) < 800
    assert server.run(with_inputs(demo_prompt, seed=13, steps=4)).status == "success"


def test_the_same_seed_gives_the_same_picture(server: Any, demo_prompt: dict[str, Any]) -> None:
    """Another run between, so that the second is computed, not remembered."""
    pictures = []
    for seed in (14, 15, 14):
        result = server.run(with_inputs(demo_prompt, seed=seed, steps=8))
        assert sampler_of(demo_prompt) in result.seconds
        saver = next(node for node, entry in demo_prompt.items() if entry["class_type"] == "SaveImage")
        (entry,) = result.outputs[saver]["images"]  # the report's picture shows the seconds
        pictures.append(server.picture(entry).read_bytes())
    assert pictures[0] == pictures[2] != pictures[1]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_server_outlives_its_user(comfyui_dir: pathlib.Path, how: signal.Signals) -> None:
    user = subprocess.Popen([sys.executable, "-c", KEEPER, comfyui_dir], stdout=subprocess.PIPE, text=True)
    try:
        assert user.stdout is not None
        port, base = user.stdout.readline().split()
        ours = [p for p in psutil.process_iter(["cmdline"]) if base in (p.info["cmdline"] or [])]
        assert len(ours) == 2  # the guard and the server
        user.send_signal(how)
        user.wait(120)
        _, alive = psutil.wait_procs(ours, timeout=120)
        assert not alive
        deadline = time.monotonic() + 10
        while os.path.exists(base) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not os.path.exists(base)
    finally:
        user.kill()
        user.communicate()


def test_a_host_that_does_not_start(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error holds the end of the log, and nothing is left running."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # the log is kept, here
    errors = sys.modules["host_server"]
    (tmp_path / "main.py").write_text("print('the reason'); raise SystemExit(3)\n", encoding="utf-8")
    server = errors.HostServer(tmp_path)
    with pytest.raises(errors.HostError, match="the reason"):
        server.start()
    assert not server.alive() and not server.base.exists()


def test_demo(comfyui_dir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The command of the README: a picture, a table, the numbers as JSON, and no server afterwards."""
    numbers_file, picture = tmp_path / "new" / "numbers.json", tmp_path / "picture.png"
    before = servers()
    done = subprocess.run(
        [
            "bash",
            str(ROOT / "scripts" / "demo.sh"),
            "--json",
            "new/numbers.json",
            "--out",
            "picture.png",
            "--repeats",
            "1",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert servers() <= before
    numbers = json.loads(numbers_file.read_text(encoding="utf-8"))
    assert numbers["calls"] < numbers["steps"] <= numbers["rows"]
    assert 0 < numbers["accepted"] <= numbers["proposed"]
    assert min(numbers[name] for name in ("seconds", "stock_seconds", "plain_seconds")) > 0
    assert numbers["image"] == str(picture) and numbers["rule"] and numbers["tree"]
    for name in ("image", "stock_image", "plain_image", "comparison_image"):
        assert pathlib.Path(numbers[name]).read_bytes().startswith(b"\x89PNG")
    for words in ("model calls", "rows (latents evaluated)", "accepted / proposed", "seconds", "not seconds saved"):
        assert words in done.stdout
    assert done.stdout.count("carries a fault of ComfyUI") == int(numbers["stock_seed_fault"])


def servers() -> set[int]:
    return {p.pid for p in psutil.process_iter(["cmdline"]) if "--base-directory" in (p.info["cmdline"] or [])}
