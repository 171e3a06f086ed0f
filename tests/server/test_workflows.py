"""Every example workflow runs in a real server, and the reports in the history are sane."""

from __future__ import annotations

import json
import math
import pathlib
import sys
from types import ModuleType
from typing import Any

import pytest
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "example_workflows").glob("*.json"))
RUNNABLE = [file for file in FILES if "sd35" not in file.stem]  # the others need weights of several GB


@pytest.fixture(scope="module")
def write_examples() -> ModuleType:
    """scripts/write_examples.py, its neighbours beside it."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import write_examples
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    return write_examples


def test_files_are_what_the_script_writes(server: Any, write_examples: ModuleType) -> None:
    made = write_examples.files(server.object_info())
    there = {*FILES, *(ROOT / "subgraphs").glob("*.json")}
    assert set(made) == there
    for file, content in made.items():
        assert file.read_text(encoding="utf-8") == content, "bash scripts/run.sh scripts/write_examples.py"


def test_every_example_has_a_thumbnail() -> None:
    for file in FILES:
        with Image.open(file.with_suffix(".jpg")) as picture:
            assert picture.width == 512 and 150 <= picture.height <= 512
        assert file.with_suffix(".jpg").stat().st_size < 80_000
    assert {file.stem for file in (ROOT / "example_workflows").glob("*.jpg")} == {file.stem for file in FILES}


def test_only_core_nodes_and_ours(server: Any) -> None:
    ours = "custom_nodes.ComfyUI-DraftTree"
    for file in FILES:
        for node in json.loads(file.read_text(encoding="utf-8"))["nodes"]:
            if node["type"] != "MarkdownNote":
                module = server.object_info()[node["type"]]["python_module"]
                assert module == ours or module == "nodes" or module.startswith("comfy_extras."), (file, node["type"])


def test_nodes_do_not_overlap() -> None:
    """With a gap for Nodes 2.0, whose nodes are larger than a file says."""
    for file in FILES:
        boxes = [(*n["pos"], *n["size"]) for n in json.loads(file.read_text(encoding="utf-8"))["nodes"]]
        for i, (x, y, w, h) in enumerate(boxes):
            for other_x, other_y, other_w, other_h in boxes[:i]:
                apart_x = max(other_x - x - w, x - other_x - other_w)
                apart_y = max(other_y - y - h, y - other_y - other_h)
                assert max(apart_x, apart_y) >= 60, file


@pytest.mark.parametrize("file", [file for file in FILES if file not in RUNNABLE], ids=lambda file: file.stem)
def test_only_weights_are_missing(server: Any, file: pathlib.Path) -> None:
    """The server takes the workflow but for the names of files that are not here."""
    prompt = server.to_api(json.loads(file.read_text(encoding="utf-8")))
    with pytest.raises(sys.modules["host_server"].PromptRejected) as caught:
        server.run(prompt)
    errors = [error for entry in caught.value.node_errors.values() for error in entry["errors"]]
    assert errors
    for error in errors:
        name = error["extra_info"]["input_name"]
        assert error["type"] == "value_not_in_list" and name in ("ckpt_name", "unet_name", *CLIPS), error


CLIPS = ("clip_name1", "clip_name2", "clip_name3")


def test_the_blueprint_is_offered(server: Any) -> None:
    listed = server.get("/global_subgraphs")
    (name,) = [key for key, entry in listed.items() if "DraftTree" in str(entry.get("info", {}).get("node_pack"))]
    assert listed[name]["name"] == "Speculative sampling"
    content = json.loads(server.get(f"/global_subgraphs/{name}")["data"])
    (definition,) = content["definitions"]["subgraphs"]
    assert content["nodes"][0]["type"] == definition["id"]
    names = [end["name"] for end in definition["inputs"]]
    assert names[:5] == ["model", "positive", "negative", "latent_image", "vae"]
    assert names[5:] == ["seed", "steps", "cfg", "denoise"]
    links = {link["id"] for link in definition["links"]}
    for end in (*definition["inputs"], *definition["outputs"]):
        assert end["linkIds"] and set(end["linkIds"]) <= links


@pytest.mark.parametrize("file", RUNNABLE, ids=lambda file: file.stem)
def test_workflow_runs(server: Any, file: pathlib.Path) -> None:
    result = server.run(server.to_api(json.loads(file.read_text(encoding="utf-8"))))
    assert result.status == "success"
    reports = [report for output in result.outputs.values() for report in output.get("drafttree_report", [])]
    assert reports
    for report in reports:
        check_report(report)
    pictures = [server.picture(entry) for output in result.outputs.values() for entry in output.get("images", [])]
    assert pictures
    for picture in pictures:
        low, high = Image.open(picture).convert("L").getextrema()
        assert high - low > 64, f"{picture} is nearly one colour"


def check_report(report: dict[str, Any]) -> None:
    steps, images = report["steps"], report["images"]
    assert report["calls"] > 0 and 0 <= report["accepted"] <= report["proposed"]
    assert report["rows"] >= steps * images
    assert report["seconds"] > 0 and report["summary"]
    assert len(report["deltas"]) == len(report["acceptances"]) == steps
    assert all(delta is None or (math.isfinite(delta) and delta >= 0) for delta in report["deltas"])
    if report["mode"] == "plain":
        assert report["reason"] and report["calls"] >= steps and report["proposed"] == 0
    else:
        assert report["calls"] < steps * images and report["accepted"] > 0


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_conversion_keeps_every_widget(server: Any, file: pathlib.Path) -> None:
    """By the names in /object_info: each widget's value lands in its input, seeds lose their after-run control."""
    workflow = json.loads(file.read_text(encoding="utf-8"))
    prompt = server.to_api(workflow)
    for node in workflow["nodes"]:
        if str(node["id"]) not in prompt:
            assert node["type"] in ("Note", "MarkdownNote", "Reroute", "PrimitiveNode") or node["mode"] in (2, 4)
            continue
        entry = prompt[str(node["id"])]
        schema = server.object_info()[node["type"]]
        links = {slot["name"] for slot in node.get("inputs", []) if slot.get("link") is not None}
        assert {name for name, value in entry["inputs"].items() if isinstance(value, list)} == links
        assert set(schema["input"].get("required", {})) <= entry["inputs"].keys()
        expected = []
        for name in [*schema["input_order"].get("required", []), *schema["input_order"].get("optional", [])]:
            if name in entry["inputs"] and name not in links:
                expected.append(entry["inputs"][name])
                spec = (schema["input"].get("required", {}) | schema["input"].get("optional", {}))[name]
                if len(spec) > 1 and spec[1].get("control_after_generate"):
                    expected.append("fixed")
        stored = [value for value in node.get("widgets_values") or [] if value != "image"]  # the upload button
        assert expected == stored
