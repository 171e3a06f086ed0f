"""Bad input to a real server: a message that names the input and says what would work, and the next prompt runs."""

from __future__ import annotations

import copy
import json
import pathlib
import sys
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

DRAFT = "drafttree-demo-draft.safetensors"

# input changed (class, name, value), and words that the message must hold
CASES = {
    "unknown sampler": ("DraftTreeKSampler", "sampler_name", "euler", ["sampler_name", "euler_ancestral"]),
    "ddpm on a flow model": ("DraftTreeKSampler", "sampler_name", "ddpm", ["ddpm", "flow", "euler_ancestral"]),
    "negative eta": ("DraftTreeKSampler", "eta", -0.5, ["eta", "-0.5"]),
    "eta above 1": ("DraftTreeKSampler", "eta", 1.5, ["eta", "1.5"]),
    "eta as a word": ("DraftTreeKSampler", "eta", "much", ["eta", "much"]),
    "negative s_noise": ("DraftTreeKSampler", "s_noise", -1.0, ["s_noise", "-1"]),
    "no steps": ("DraftTreeKSampler", "steps", 0, ["steps", "0"]),
    "negative seed": ("DraftTreeKSampler", "seed", -1, ["seed", "-1"]),
    "denoise above 1": ("DraftTreeKSampler", "denoise", 2.0, ["denoise", "2"]),
    "a letter in widths": ("DraftTreeConfigure", "widths", "2,x", ["widths", "2,x", "2,2,1,1"]),
    "zero in widths": ("DraftTreeConfigure", "widths", "2,0,1", ["widths", "2,0,1"]),
    "widths far too large": ("DraftTreeConfigure", "widths", "9,9,9,9", ["widths", "9,9,9,9", "2,2,1,1"]),
    "unknown rule": ("DraftTreeConfigure", "rule", "lucky", ["rule", "lucky", "rass"]),
    "no model": ("DraftTreeKSampler", "model", None, ["model"]),
    "image where a tree belongs": ("DraftTreeKSampler", "tree", ["CheckpointLoaderSimple", 2], ["tree", "DRAFT_TREE"]),
    "no such draft file": ("DraftTreeLoadDraft", "unet_name", "nowhere.safetensors", ["unet_name", "nowhere"]),
    "unknown weight dtype": ("DraftTreeLoadDraft", "weight_dtype", "int3", ["weight_dtype", "int3", "fp8_e4m3fn"]),
    "the model as its own draft": ("DraftTreeKSampler", "draft", ["DraftTreeFromModel", 0], ["draft", "itself"]),
}


@pytest.fixture(scope="module")
def good(server: Any) -> dict[str, Any]:
    """The demo workflow with few steps."""
    file = ROOT / "example_workflows" / "drafttree_demo.json"
    prompt = server.to_api(json.loads(file.read_text(encoding="utf-8")))
    prompt[node_of(prompt, "DraftTreeKSampler")]["inputs"]["steps"] = 4
    return prompt


def node_of(prompt: dict[str, Any], kind: str) -> str:
    return next(node for node, entry in prompt.items() if entry["class_type"] == kind)


def add_missing(prompt: dict[str, Any], kind: str) -> None:
    """Nodes that a case needs and the workflow lacks, fed as an artist would feed them."""
    if any(entry["class_type"] == kind for entry in prompt.values()):
        return
    sampler = prompt[node_of(prompt, "DraftTreeKSampler")]["inputs"]
    if kind == "DraftTreeFromModel":
        prompt["own"] = {"class_type": kind, "inputs": {"model": sampler["model"]}}
    elif kind == "DraftTreeLoadDraft":
        prompt["draft"] = {"class_type": kind, "inputs": {"unet_name": DRAFT, "weight_dtype": "default"}}
        sampler["draft"] = ["draft", 0]


def spoil(prompt: dict[str, Any], kind: str, name: str, value: Any) -> dict[str, Any]:
    prompt = copy.deepcopy(prompt)
    if isinstance(value, list):
        add_missing(prompt, value[0])
        value = [node_of(prompt, value[0]), value[1]]
    add_missing(prompt, kind)
    inputs = prompt[node_of(prompt, kind)]["inputs"]
    if value is None:
        del inputs[name]
    else:
        inputs[name] = value
    return prompt


@pytest.mark.parametrize("case", CASES)
def test_bad_input(server: Any, good: dict[str, Any], case: str) -> None:
    errors = sys.modules["host_server"]
    kind, name, value, words = CASES[case]
    with pytest.raises((errors.PromptRejected, errors.PromptFailed)) as caught:
        server.run(spoil(good, kind, name, value))
    message = str(caught.value)
    assert all(word in message for word in words), message
    result = server.run(good)
    assert result.status == "success"
