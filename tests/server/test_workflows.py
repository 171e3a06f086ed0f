"""Every example workflow runs in a real server, and the reports in the history are sane."""

from __future__ import annotations

import json
import math
import pathlib
from typing import Any

import pytest
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "example_workflows").glob("*.json"))


def test_there_are_workflows() -> None:
    assert "drafttree_demo.json" in [file.name for file in FILES]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
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
