"""Build workflow files as the frontend saves them, from nodes named in code and the host's description of each."""

from __future__ import annotations

import json
import math
import uuid
from typing import Any

SPACE = uuid.UUID("6f1a8a52-6a3c-4a6e-9d0e-3a2f3f0c7a11")  # ids are made from names, so that a file stays as it is
GAP = 60  # pixels between nodes: those of Nodes 2.0 are larger than their size says
WIDGETS = ("INT", "FLOAT", "STRING", "BOOLEAN", "COMBO")
TALL = {  # pixels, of nodes that show something
    "SaveImage": (420, 470), "PreviewImage": (420, 470), "PreviewAny": (320, 210), "MarkdownNote": (320, 330),
    "CLIPTextEncode": (320, 170), "DraftTreeDemoPrompt": (320, 120),
}  # fmt: skip
PANEL = {"DraftTreeKSampler", "DraftTreeKSamplerAdvanced", "DraftTreeSampler"}
PANEL_HEIGHT = 130
BASE, SLOT, WIDGET = 40, 20, 28

ObjectInfo = dict[str, Any]


def unique(*names: object) -> str:
    """An id that depends on these names alone."""
    return str(uuid.uuid5(SPACE, "/".join(map(str, names))))


class Node:
    """A node of a graph. node["IMAGE"] is its output of that name (or type, if only one has it), to be connected."""

    def __init__(self, kind: str, number: int, entry: dict[str, Any], outputs: list[tuple[str, str]]) -> None:
        self.kind, self.number, self.entry, self.outputs = kind, number, entry, outputs

    def __getitem__(self, name: str) -> tuple[Node, int]:
        for place, (label, kind) in enumerate(self.outputs):
            if name in (label, kind):
                return self, place
        raise KeyError(f"{self.kind} has no output {name!r}, only {self.outputs}")


class Graph:
    """A workflow in columns, left to right. info: the host's /object_info."""

    def __init__(self, name: str, info: ObjectInfo) -> None:
        self.name, self._info = name, info
        self.nodes: list[dict[str, Any]] = []
        self.links: list[list[Any]] = []
        self._x = self._y = self._widest = 0

    def column(self) -> None:
        """Go on at the top of the next column."""
        self._x += self._widest + GAP
        self._y = self._widest = 0

    def note(self, text: str, height: int | None = None) -> None:
        """A text for people."""
        self._place(
            {"type": "MarkdownNote", "inputs": [], "outputs": [], "widgets_values": [text]}, "MarkdownNote", 0, 0
        )
        if height is not None:
            self._y += height - self.nodes[-1]["size"][1]
            self.nodes[-1]["size"][1] = height

    def add(self, kind: str, title: str | None = None, **given: Any) -> Node:
        """A node; given: its inputs, an output of another node or the value of a widget."""
        info = self._info[kind]
        inputs: list[dict[str, Any]] = []
        values: list[Any] = []
        sockets: list[tuple[int, tuple[Node, int], str]] = []
        for name, spec in {**info["input"].get("required", {}), **info["input"].get("optional", {})}.items():
            options = spec[1] if len(spec) > 1 else {}
            io_type = "COMBO" if isinstance(spec[0], list) else spec[0]
            value = given.pop(name, None)
            if io_type in WIDGETS and not options.get("forceInput"):
                if isinstance(value, tuple):
                    raise TypeError(f"{kind}.{name} is a widget here")
                choices = spec[0] if isinstance(spec[0], list) else options.get("options")
                if value is None:
                    value = options.get("default", choices[0] if choices else None)
                inputs.append({"name": name, "type": io_type, "widget": {"name": name}, "link": None})
                values.append(value)
                if options.get("control_after_generate"):
                    values.append("fixed")
            else:
                if value is not None:
                    sockets.append((len(inputs), value, io_type))
                inputs.append({"name": name, "type": io_type, "link": None})
                if name in info["input"].get("optional", {}):
                    inputs[-1]["shape"] = 7  # how the frontend draws what may stay open
        if given:
            raise TypeError(f"{kind} has no inputs {sorted(given)}")
        # The frontend lists sockets before widgets.
        order = sorted(range(len(inputs)), key=lambda place: "widget" in inputs[place])
        outputs = list(zip(info["output_name"], info["output"], strict=True))
        entry = {
            "type": kind,
            "inputs": [inputs[place] for place in order],
            "outputs": [{"name": name, "type": kind_, "links": None} for name, kind_ in outputs],
            "widgets_values": values,
        }
        if title:
            entry["title"] = title
        node = self._place(entry, kind, sum("widget" not in i for i in inputs), sum("widget" in i for i in inputs))
        for place, (source, slot), io_type in sockets:
            self.connect(source, slot, node, order.index(place), io_type)
        return node

    def connect(self, source: Node, slot: int, target: Node, place: int, io_type: str) -> None:
        """Draw a link."""
        number = len(self.links) + 1
        kind = source.outputs[slot][1]
        self.links.append([number, source.number, slot, target.number, place, kind if io_type == "*" else io_type])
        target.entry["inputs"][place]["link"] = number
        output = source.entry["outputs"][slot]
        output["links"] = [*(output["links"] or []), number]

    def _place(self, entry: dict[str, Any], kind: str, sockets: int, widgets: int) -> Node:
        outputs = [(output["name"], output["type"]) for output in entry["outputs"]]
        width, least = TALL.get(kind, (320, 0))
        height = max(least, BASE + SLOT * max(sockets, len(outputs)) + WIDGET * widgets)
        if kind in PANEL:
            height += PANEL_HEIGHT
        number = len(self.nodes) + 1
        head = {"id": number, "type": entry.pop("type"), "pos": [self._x, self._y], "size": [width, height]}
        head |= {"flags": {}, "order": number - 1, "mode": 0}
        properties = {} if kind == "MarkdownNote" else {"Node name for S&R": kind}
        head |= {"inputs": entry["inputs"], "outputs": entry["outputs"], "properties": properties}
        head["widgets_values"] = entry["widgets_values"]
        if "title" in entry:
            head["title"] = entry["title"]
        self.nodes.append(head)
        self._y += height + GAP
        self._widest = max(self._widest, width)
        return Node(kind, number, head, outputs)

    def workflow(self) -> dict[str, Any]:
        """The file's content."""
        right = max(node["pos"][0] + node["size"][0] for node in self.nodes)
        bottom = max(node["pos"][1] + node["size"][1] for node in self.nodes)
        # The view it opens with: all of it on a page of 1600 x 900, clear of the frontend's bars left and above.
        scale = math.floor(100 * min(0.9, 1480 / right, 700 / bottom)) / 100
        offset = [round(90 / scale), round(140 / scale) + 30]
        return {
            "id": unique(self.name),
            "revision": 0,
            "last_node_id": len(self.nodes),
            "last_link_id": len(self.links),
            "nodes": self.nodes,
            "links": self.links,
            "groups": [],
            "config": {},
            "extra": {"ds": {"scale": scale, "offset": offset}},
            "version": 0.4,
        }

    def blueprint(
        self,
        title: str,
        inputs: dict[str, tuple[str, list[tuple[Node, str]]]],
        outputs: dict[str, tuple[Node, int]],
        values: dict[str, Any],
    ) -> dict[str, Any]:
        """The file of a subgraph. inputs: name -> type and the inputs inside that it feeds; outputs: name -> source.

        values: of the inputs that are widgets, in the order of the inputs.
        """
        inner = [
            {"id": n, "origin_id": a, "origin_slot": i, "target_id": b, "target_slot": j, "type": kind}
            for n, a, i, b, j, kind in self.links
        ]
        ends: dict[str, list[dict[str, Any]]] = {"inputs": [], "outputs": []}
        right = max(node["pos"][0] + node["size"][0] for node in self.nodes)

        def link(**ends_of: Any) -> int:
            inner.append({"id": len(inner) + 1, **ends_of})
            return len(inner)

        for slot, (name, (kind, targets)) in enumerate(inputs.items()):
            numbers = []
            for node, socket in targets:
                place = next(i for i, entry in enumerate(node.entry["inputs"]) if entry["name"] == socket)
                target = {"target_id": node.number, "target_slot": place, "type": kind}
                numbers.append(link(origin_id=-10, origin_slot=slot, **target))
                node.entry["inputs"][place]["link"] = numbers[-1]
            end = {"id": unique(self.name, "input", name), "name": name, "type": kind, "linkIds": numbers}
            ends["inputs"].append({**end, "pos": [-140, 40 + 20 * slot]})
        for slot, (name, (node, place)) in enumerate(outputs.items()):
            kind = node.outputs[place][1]
            number = link(origin_id=node.number, origin_slot=place, target_id=-20, target_slot=slot, type=kind)
            output = node.entry["outputs"][place]
            output["links"] = [*(output["links"] or []), number]
            end = {"id": unique(self.name, "output", name), "name": name, "type": kind, "linkIds": [number]}
            ends["outputs"].append({**end, "pos": [right + 140, 40 + 20 * slot]})
        state = {"lastGroupId": 0, "lastNodeId": len(self.nodes), "lastLinkId": len(inner), "lastRerouteId": 0}
        definition = {
            "id": unique(self.name, "definition"),
            "version": 1,
            "state": state,
            "revision": 0,
            "config": {},
            "name": title,
            "inputNode": {"id": -10, "bounding": [-260, 20, 120, 40 + 20 * len(inputs)]},
            "outputNode": {"id": -20, "bounding": [right + 120, 20, 120, 40 + 20 * len(outputs)]},
            **ends,
            "widgets": [],
            "nodes": self.nodes,
            "groups": [],
            "links": inner,
            "extra": {},
        }
        outer = {
            "id": 1,
            "type": definition["id"],
            "pos": [0, 0],
            "size": [320, BASE + SLOT * max(len(inputs), len(outputs)) + WIDGET * len(values)],
            "flags": {},
            "order": 0,
            "mode": 0,
            "inputs": [
                {"name": name, "type": kind, **({"widget": {"name": name}} if kind in WIDGETS else {}), "link": None}
                for name, (kind, _) in inputs.items()
            ],
            "outputs": [
                {"name": name, "type": node.outputs[place][1], "links": None} for name, (node, place) in outputs.items()
            ],
            "title": title,
            "properties": {},
            "widgets_values": [value for name in inputs if (value := values.get(name)) is not None],
        }
        head = {"id": unique(self.name), "revision": 0, "last_node_id": 1, "last_link_id": 0, "nodes": [outer]}
        head |= {"links": [], "groups": [], "definitions": {"subgraphs": [definition]}}
        return head | {"config": {}, "extra": {}, "version": 0.4}


def text(workflow: dict[str, Any]) -> str:
    """A workflow as it lies in its file."""
    return json.dumps(workflow, ensure_ascii=False, indent=1) + "\n"
