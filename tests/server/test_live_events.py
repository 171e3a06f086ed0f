"""The live messages of a real server, and what its history keeps for a page that is opened later."""

from __future__ import annotations

import copy
import json
import pathlib
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / "example_workflows" / "drafttree_demo.json"


@pytest.fixture
def demo(server: Any) -> dict[str, Any]:
    return server.to_api(json.loads(WORKFLOW.read_text(encoding="utf-8")))


def run(server: Any, prompt: dict[str, Any]) -> tuple[Any, list[dict[str, Any]]]:
    seen: list[dict[str, Any]] = []
    result = server.run(prompt, lambda kind, data: seen.append(data) if kind == "drafttree.stats" else None)
    return result, seen


def node_of(prompt: dict[str, Any], kind: str) -> str:
    return next(node for node, entry in prompt.items() if entry["class_type"] == kind)


def test_the_sampler_node(server: Any, demo: dict[str, Any]) -> None:
    node = node_of(demo, "DraftTreeKSampler")
    demo[node]["inputs"] |= {"seed": 31, "steps": 60}
    result, seen = run(server, demo)
    assert {message["node"] for message in seen} == {node}
    assert {message["prompt_id"] for message in seen} == {result.prompt_id}
    steps = [message["step"] for message in seen]
    assert steps == sorted(steps) and steps[0] == 0 and steps[-1] == 60 and len(set(steps)) > 2
    assert seen[-1]["state"] == "done" and seen[-1]["report"] == result.outputs[node]["drafttree_report"][0]


def test_the_sampler_object(server: Any, demo: dict[str, Any]) -> None:
    """SamplerCustomAdvanced runs it; the numbers belong to the node that made it, and so does the record.

    Two such nodes with the same settings each show their own run, although the host remembers equal nodes.
    """
    settings = demo[node_of(demo, "DraftTreeKSampler")]["inputs"]
    decode = node_of(demo, "VAEDecode")
    rest = ("DraftTreeKSampler", "DraftTreeReport", "PreviewAny", "PreviewImage")
    prompt = {node: entry for node, entry in copy.deepcopy(demo).items() if entry["class_type"] not in rest}
    add = lambda node, kind, **inputs: prompt.update({node: {"class_type": kind, "inputs": inputs}})  # noqa: E731
    add("g", "CFGGuider", model=settings["model"], positive=settings["positive"], negative=settings["negative"], cfg=4)
    add("s", "BasicScheduler", model=settings["model"], scheduler="simple", steps=16, denoise=1.0)
    for name, seed in (("a", 1), ("b", 2)):
        add(f"n{name}", "RandomNoise", noise_seed=seed)
        add(name, "DraftTreeSampler", sampler_name="euler_ancestral", eta=1.0, s_noise=1.0)
        parts = {"noise": [f"n{name}", 0], "guider": ["g", 0], "sampler": [name, 0], "sigmas": ["s", 0]}
        add(f"run{name}", "SamplerCustomAdvanced", **parts, latent_image=settings["latent_image"])
        picture = prompt[decode]["inputs"] | {"samples": [f"run{name}", 0]}
        add(f"decode{name}", "VAEDecode", **picture)
        add(f"save{name}", "SaveImage", images=[f"decode{name}", 0], filename_prefix=f"live_{name}")
    prompt = {n: e for n, e in prompt.items() if n != decode and e["class_type"] != "ImageScale"}
    prompt = {n: e for n, e in prompt.items() if e["class_type"] != "SaveImage" or n.startswith("save")}
    result, seen = run(server, prompt)
    assert {message["node"] for message in seen} == {"a", "b"}
    for name in "ab":
        last = [message for message in seen if message["node"] == name][-1]
        assert last["state"] == "done" and last["report"]["steps"] == 16
        assert result.outputs[name]["drafttree_report"] == [last["report"]]


def test_cancel_and_error_are_told(server: Any, demo: dict[str, Any]) -> None:
    node = node_of(demo, "DraftTreeKSampler")
    demo[node]["inputs"] |= {"seed": 32, "steps": 800}
    seen: list[dict[str, Any]] = []

    def cancel(kind: str, data: dict[str, Any]) -> None:
        if kind == "drafttree.stats":
            seen.append(data)
            if data["step"] > 3:
                server.interrupt()

    assert server.run(demo, cancel).status == "interrupted"
    assert seen[-1]["state"] == "cancelled" and 3 < seen[-1]["step"] < 800
