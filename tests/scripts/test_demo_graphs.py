"""The three graphs of the demo differ in the sampler alone."""

from __future__ import annotations

import copy
from types import ModuleType

import pytest

SETTINGS = {
    "seed": 7,
    "steps": 28,
    "cfg": 4.0,
    "sampler_name": "euler_ancestral",
    "scheduler": "simple",
    "denoise": 1.0,
}
PROMPT = {
    "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "a"}},
    "2": {"class_type": "DraftTreeDemoPrompt", "inputs": {"text": "red heart"}},
    "3": {"class_type": "DraftTreeDemoPrompt", "inputs": {"text": ""}},
    "4": {"class_type": "EmptySD3LatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 1}},
    "5": {"class_type": "DraftTreeConfigure", "inputs": {"widths": "2,2,1,1", "rule": "rass"}},
    "6": {
        "class_type": "DraftTreeKSampler",
        "inputs": {
            **SETTINGS,
            **{"model": ["1", 0], "positive": ["2", 0], "negative": ["3", 0], "latent_image": ["4", 0]},
            **{"eta": 1.0, "s_noise": 1.0, "tree": ["5", 0]},
        },
    },
    "7": {"class_type": "VAEDecode", "inputs": {"samples": ["6", 0], "vae": ["1", 2]}},
    "8": {"class_type": "SaveImage", "inputs": {"images": ["7", 0], "filename_prefix": "x"}},
    "9": {"class_type": "PreviewAny", "inputs": {"source": ["6", 1]}},
    "10": {"class_type": "PreviewAny", "inputs": {"source": ["9", 0]}},
}


@pytest.fixture
def prompt() -> dict:
    return copy.deepcopy(PROMPT)


def test_stock_drops_only_what_reads_the_report(demo_script: ModuleType, prompt: dict) -> None:
    stock = demo_script.stock(prompt)
    assert prompt == PROMPT
    assert stock.keys() == PROMPT.keys() - {"5", "9", "10"}
    links = {name: PROMPT["6"]["inputs"][name] for name in ("model", "positive", "negative", "latent_image")}
    assert stock["6"] == {"class_type": "KSampler", "inputs": SETTINGS | links}
    assert all(stock[node] == PROMPT[node] for node in stock.keys() - {"6"})


@pytest.mark.parametrize("linked", [True, False])
def test_plain_drafts_nothing(demo_script: ModuleType, prompt: dict, linked: bool) -> None:
    if not linked:  # the node alone has a tree by default: a plain run must say so
        del prompt["5"], prompt["6"]["inputs"]["tree"]
    before = copy.deepcopy(prompt)
    plain = demo_script.plain(prompt)
    assert prompt == before
    configure = plain[plain["6"]["inputs"]["tree"][0]]
    assert configure["class_type"] == "DraftTreeConfigure" and configure["inputs"]["widths"] == ""


def test_settings_reach_their_nodes(demo_script: ModuleType, prompt: dict) -> None:
    changed = demo_script.with_settings(prompt, "green apple", 3, "1,1", "greedy")
    assert prompt == PROMPT
    assert changed["2"]["inputs"]["text"] == "green apple" and changed["3"]["inputs"]["text"] == ""
    assert changed["6"]["inputs"]["seed"] == 3
    assert changed["5"]["inputs"] == {"widths": "1,1", "rule": "greedy"}
    assert demo_script.with_settings(prompt, None, None, None, None) == PROMPT


def test_a_workflow_without_the_sampler(demo_script: ModuleType, prompt: dict) -> None:
    del prompt["6"]
    with pytest.raises(SystemExit, match="0 nodes DraftTreeKSampler"):
        demo_script.with_settings(prompt, None, None, None, None)
