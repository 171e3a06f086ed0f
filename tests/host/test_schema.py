"""Workflows shared by artists keep working: ids, input names, order and defaults may only grow at the end."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
import tiny_models

GOLDEN = pathlib.Path(__file__).with_name("schema.json")


def describe(node: Any) -> dict[str, Any]:
    """What a saved workflow relies on."""
    info = node.GET_NODE_INFO_V1()
    inputs = {}
    for kind in ("required", "optional"):
        for name, (io_type, options) in info["input"].get(kind, {}).items():
            inputs[name] = {"type": io_type, "required": kind == "required"}
            if "default" in options:
                inputs[name]["default"] = options["default"]
            if io_type == "COMBO" and name not in ("unet_name", "scheduler"):  # those belong to the host
                inputs[name]["options"] = options["options"]
    outputs = dict(zip(info["output_name"], info["output"], strict=True))
    return {"display_name": info["display_name"], "category": info["category"], "inputs": inputs, "outputs": outputs}


def test_golden(ours: Any) -> None:
    """On purpose strict: a new input goes at the end of its node, and into the golden file in the same commit."""
    now = {node.GET_SCHEMA().node_id: describe(node) for node in ours.extension.NODES}
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert now == golden
    for name, node in now.items():
        assert list(node["inputs"]) == list(golden[name]["inputs"])
        assert list(node["outputs"]) == list(golden[name]["outputs"])


@pytest.mark.parametrize("name", ["KSampler", "KSamplerAdvanced"])
def test_drop_in(ours: Any, name: str) -> None:
    """The stock node's inputs, in its order, with its types and limits; ours only come after them."""
    import nodes

    stock = getattr(nodes, name).INPUT_TYPES()["required"]
    twins = {
        "KSampler": ours.ksampler.SpeculativeKSampler,
        "KSamplerAdvanced": ours.ksampler_advanced.SpeculativeKSamplerAdvanced,
    }
    mine = twins[name].INPUT_TYPES()["required"]
    assert list(mine)[: len(stock)] == list(stock)
    for name, (kind, *more) in stock.items():
        options = more[0] if more else {}
        my_kind, my_options = mine[name]
        if isinstance(kind, list):
            assert my_kind == "COMBO" and set(my_options["options"]) <= set(kind)
            continue
        assert my_kind == kind
        for key in ("default", "min", "max", "step", "round", "control_after_generate"):
            assert my_options.get(key) == options.get(key), (name, key)
    assert mine["scheduler"][1]["options"] == stock["scheduler"][0]


def test_every_socket_explains_itself(ours: Any) -> None:
    for node in ours.extension.NODES:
        info = node.GET_NODE_INFO_V1()
        assert info["description"] and info["category"] == "sampling/drafttree"
        for kind in ("required", "optional"):
            for name, (_, options) in info["input"].get(kind, {}).items():
                assert len(options.get("tooltip", "")) > 20, (node.__name__, name)
        assert all(len(tip or "") > 10 for tip in info["output_tooltips"]), node.__name__


def test_rules_are_those_of_the_core(ours: Any) -> None:
    assert set(ours.configure.RULES) == set(ours.core.coupling.NAMES)


def test_no_state_in_node_classes(ours: Any, render: Any) -> None:
    """The host locks V3 classes: a run leaves no trace in ours."""
    for node in ours.extension.NODES:
        node.GET_SCHEMA()  # the host's own cache of the schema
    before = [dict(vars(node)) for node in ours.extension.NODES]
    latent = {"samples": tiny_models.latent("flow")}
    render(tiny_models.flow(), latent, tiny_models.conditioning(1), tiny_models.conditioning(2), widths=(2, 1))
    ours.sampler.SpeculativeSampler.execute("euler_ancestral", 1.0, 1.0)
    ours.configure.ConfigureDraftTree.execute("2,1", "rass", "frozen", 8)
    assert [dict(vars(node)) for node in ours.extension.NODES] == before


def test_demo_models_are_listed(pack: Any) -> None:
    """The stock loaders show the model that ships with the pack."""
    import asyncio

    import folder_paths

    extension = asyncio.run(pack.comfy_entrypoint())
    assert asyncio.run(extension.get_node_list())
    models = pathlib.Path(pack.__file__).parent / "demo" / "models"
    for kind in ("checkpoints", "diffusion_models"):
        assert str(models / kind) in folder_paths.get_folder_paths(kind)
        assert {p.name for p in (models / kind).glob("*.safetensors")} <= set(folder_paths.get_filename_list(kind))


def test_weight_dtypes_are_those_of_the_stock_loader(ours: Any) -> None:
    import nodes

    stock = nodes.UNETLoader.INPUT_TYPES()["required"]["weight_dtype"][0]
    assert list(stock) == ours.draft_model.WEIGHT_DTYPES == list(ours.host.draft.WEIGHT_DTYPES)
