"""Workflow files in the real frontend: each example opens and is saved as it was; the files of older releases too."""

from __future__ import annotations

import copy
import json
import pathlib
from typing import Any

import pytest
from examples import FILES as EXAMPLES
from examples import ROOT

OLD = sorted((pathlib.Path(__file__).parent / "old_workflows").glob("*.json"))
GOLDEN = pathlib.Path(__file__).with_name("widgets.json")


def test_every_example_opens_from_the_template_browser(visit: Any, keep: Any) -> None:
    """And what the page would save, opened and saved again, is the same to the letter."""
    page = visit()
    for file in EXAMPLES:
        page.templates()
        page.open_template(file.stem)
        wanted = json.loads(file.read_text(encoding="utf-8"))
        saved = page.graph()
        assert [node["type"] for node in saved["nodes"]] == [node["type"] for node in wanted["nodes"]]
        missing = page.js(
            """() => window.app.graph.nodes.map((n) => n.type)
                 .filter((type) => !window.LiteGraph.registered_node_types[type])"""
        )
        assert [kind for kind in missing if kind != "MarkdownNote"] == []
        assert overlapping(page.boxes(False)) == [], file.name
        left, top, right, bottom = page.view()  # all of it, clear of the frontend's own bars
        bars = 125 if page.server.label == "pinned" else 95
        assert left > 60 and top > bars and right < 1600 and bottom < 900, (file.name, page.view())
        keep(page, f"example_{file.stem}")
        page.load(saved)
        again = page.graph()
        assert text(again) == text(saved), file.name
        check_panels(page)


def check_panels(page: Any) -> None:
    """A panel on every sampler, whatever is open."""
    kinds = ("DraftTreeKSampler", "DraftTreeKSamplerAdvanced", "DraftTreeSampler")
    samplers = page.js(
        """(kinds) => window.app.graph.nodes.filter((n) => kinds.includes(n.type))
             .map((n) => n.widgets.map((w) => w.name))""",
        list(kinds),
    )
    assert all(names.count("drafttree_panel") == 1 and names[-1] == "drafttree_panel" for names in samplers)


def test_examples_in_nodes_2(visit: Any, keep: Any) -> None:
    """Nodes stand clear of each other there too, where they are larger than the files say."""
    page = visit(Comfy_VueNodes_Enabled=True)
    overlaps = {}
    for file in EXAMPLES:
        page.load(json.loads(file.read_text(encoding="utf-8")))
        page.js("() => window.app.extensionManager.command.execute('Comfy.Canvas.FitView')")
        page.page.wait_for_timeout(250)
        keep(page, f"nodes2_{file.stem}")
        if found := overlapping(page.boxes(True)):
            overlaps[file.stem] = found
    assert overlaps == {}


def overlapping(boxes: dict[str, list[float]]) -> list[str]:
    """Pairs of boxes [left, top, right, bottom] that share more than their rims."""
    names = list(boxes)
    return [
        f"{one} and {other}"
        for i, one in enumerate(names)
        for other in names[i + 1 :]
        if min(boxes[one][2], boxes[other][2]) - max(boxes[one][0], boxes[other][0]) > 1
        and min(boxes[one][3], boxes[other][3]) - max(boxes[one][1], boxes[other][1]) > 1
    ]


def text(workflow: dict[str, Any]) -> str:
    """What a person would call the same file: where the view stood is not part of it."""
    kept = copy.deepcopy(workflow)
    kept.get("extra", {}).pop("ds", None)
    return json.dumps(kept, sort_keys=True)


@pytest.mark.parametrize("vue", [False, True], ids=["canvas", "nodes2"])
def test_files_of_the_first_release(visit: Any, vue: bool) -> None:
    """Every value, link, title and place is as the file says; a sampler may have grown, by its panel."""
    page = visit(Comfy_VueNodes_Enabled=vue)
    assert len(OLD) == 3
    for file in OLD:
        check_old(page, json.loads(file.read_text(encoding="utf-8")), vue)


def check_old(page: Any, wanted: dict[str, Any], vue: bool) -> None:
    page.load(wanted)
    now = page.graph()
    by_id = {str(node["id"]): node for node in now["nodes"]}
    assert by_id.keys() == {str(node["id"]) for node in wanted["nodes"]}
    for node in wanted["nodes"]:
        found = by_id[str(node["id"])]
        assert found["type"] == node["type"] and found.get("title") == node.get("title")
        values = found.get("widgets_values") or []
        assert values[: len(node.get("widgets_values") or [])] == (node.get("widgets_values") or []), node["type"]
        assert inputs(found, True) == inputs(node, True), node["type"]
        if not vue:
            assert list(found["pos"]) == list(node["pos"])
    assert [list(link) for link in now["links"]] == [list(link) for link in wanted["links"]]
    # The prompt it makes is the one the host's own converter makes of the file.
    prompt = page.js("async () => (await window.app.graphToPrompt()).output")
    expected = page.server.to_api(wanted)
    assert prompt.keys() == expected.keys()
    for node, entry in expected.items():  # a stock node may have got more widgets since, such as a preview's text
        ours = entry["class_type"].startswith("DraftTree")
        sent = {k: v for k, v in prompt[node]["inputs"].items() if ours or k in entry["inputs"]}
        assert sent == entry["inputs"]


def inputs(node: dict[str, Any], linked: bool) -> dict[str, Any]:
    return {slot["name"]: slot["link"] for slot in node.get("inputs", []) if linked == (slot.get("link") is not None)}


def test_save_reload_open(visit: Any) -> None:
    """Through the server: saved under a name, the page reloaded, opened again: identical."""
    page = visit()
    page.load(json.loads(EXAMPLES[0].read_text(encoding="utf-8")))
    saved = page.graph()
    stored = page.js(
        """async (workflow) => {
          const { api } = await import('/scripts/api.js')
          const options = { overwrite: true, stringify: true, throwOnError: true }
          const answer = await api.storeUserData('workflows/kept.json', workflow, options)
          return answer.status
        }""",
        saved,
    )
    assert stored == 200
    page.goto()
    kept = page.js(
        "async () => { const { api } = await import('/scripts/api.js')\n"
        "return await (await api.getUserData('workflows/kept.json')).json() }"
    )
    page.load(kept)
    assert text(page.graph()) == text(saved)


def test_order_of_widgets(visit: Any) -> None:
    """Values are saved by position: a widget may only be added after those of the golden file."""
    page = visit()
    found = page.js(
        """() => Object.fromEntries(Object.keys(window.LiteGraph.registered_node_types)
          .filter((type) => type.startsWith('DraftTree')).map((type) => {
            const node = window.LiteGraph.createNode(type)
            return [type, (node.widgets ?? []).filter((w) => w.serialize !== false).map((w) => w.name)]
          }))"""
    )
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert golden.keys() <= found.keys(), "a node has gone"
    assert {kind: found[kind][: len(widgets)] for kind, widgets in golden.items()} == golden


def test_the_blueprint(visit: Any) -> None:
    """As from the node library: one node with its own widgets, the sampler and its panel inside."""
    (file,) = (ROOT / "subgraphs").glob("*.json")
    page = visit()
    page.load(json.loads(file.read_text(encoding="utf-8")) | {"id": "3d1b8a55-2c52-4c55-9a44-2b3a0f6f7d10"})
    widgets = page.js("() => window.app.graph.nodes[0].widgets.map((w) => [w.name, w.value])")
    assert widgets == [["seed", 7], ["steps", 28], ["cfg", 4], ["denoise", 1]]
    page.js("() => { const n = window.app.graph.nodes[0]; window.app.canvas.openSubgraph(n.subgraph, n) }")
    page.settle()
    kinds = page.js("() => window.app.canvas.graph.nodes.map((n) => n.type)")
    assert {"DraftTreeKSampler", "DraftTreeConfigure", "DraftTreeReport", "VAEDecode"} == set(kinds)
    page.wait("() => document.querySelector('.drafttree-panel')")
    page.js("() => window.app.canvas.setGraph(window.app.graph)")
