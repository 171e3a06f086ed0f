"""Draw docs/demo_graph.png: the demo workflow in the real ComfyUI frontend, run, with its panel and its picture.

bash scripts/run.sh scripts/graph_picture.py [--out FILE.png] [--workflow FILE.json] [--palette dark|light] [--nodes2]
The seconds on it are this machine's: draw it where nothing else runs.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys

from comfy_page import ComfyPage, chromium
from host_server import ROOT, HostServer
from setup_env import SetupError

MARGIN = 24  # pixels around the nodes
WIDTH = 1600  # pixels of the nodes' own width; the picture has twice as many, for sharp screens


def draw(workflow: dict[str, object], out: pathlib.Path, palette: str, nodes2: bool) -> None:
    """Load, run twice (the first run warms up), fit the view to the nodes, and keep that part of the page."""
    with HostServer(os.environ["COMFYUI_DIR"]) as server, chromium() as browser:
        page = ComfyPage.open(
            browser,
            server,
            (WIDTH + 400, 1200),
            scale=1.5,
            Comfy_ColorPalette=palette,
            Comfy_VueNodes_Enabled=nodes2,
            Comfy_NodeBadge_NodeSourceBadgeMode="None",
        )
        page.load(workflow)
        seeds = "window.app.graph.nodes.flatMap((n) => n.widgets ?? []).filter((w) => w.name === 'seed')"
        wanted = page.js(f"() => {seeds}.map((w) => w.value)")
        page.js(f"() => {seeds}.forEach((w) => {{ w.value += 1 }})")
        page.run()
        page.js(f"(wanted) => {seeds}.forEach((w, i) => {{ w.value = wanted[i] }})", wanted)
        page.run()
        # The view, so that the nodes fill the width and lie clear of the frontend's own bars.
        box = page.js(
            """([width]) => {
              const boxes = window.app.graph.nodes.map((n) => n.boundingRect ?? n.getBounding())
              const left = Math.min(...boxes.map((b) => b[0])), top = Math.min(...boxes.map((b) => b[1]))
              const right = Math.max(...boxes.map((b) => b[0] + b[2]))
              const bottom = Math.max(...boxes.map((b) => b[1] + b[3]))
              const ds = window.app.canvas.ds
              ds.scale = width / (right - left)
              ds.offset = [260 / ds.scale - left, 250 / ds.scale - top]
              window.app.canvas.setDirty(true, true)
              return [260, 250, (right - left) * ds.scale, (bottom - top) * ds.scale]
            }""",
            [WIDTH],
        )
        page.settle()
        page.page.mouse.move(5, 1190)
        # Bars of the frontend that float over the graph are no part of it.
        page.page.add_style_tag(content=".p-toast, .actionbar, .actionbar-container { visibility: hidden !important }")
        page.page.wait_for_timeout(1000)
        x, y, width, height = box
        clip = {"x": x - MARGIN, "y": y - MARGIN, "width": width + 2 * MARGIN, "height": height + 2 * MARGIN}
        out.parent.mkdir(parents=True, exist_ok=True)
        page.page.screenshot(path=out, clip=clip)  # type: ignore[arg-type]
        print(f"{out}: {', '.join(panel['text'].splitlines()[0] for panel in page.panels())}")
        if page.errors:
            print("the page told errors:", *page.errors, sep="\n", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "demo_graph.png", metavar="FILE.png")
    parser.add_argument(
        "--workflow", type=pathlib.Path, default=ROOT / "example_workflows" / "drafttree_demo.json", metavar="FILE.json"
    )
    parser.add_argument("--palette", choices=("dark", "light"), default="dark")
    parser.add_argument("--nodes2", action="store_true", help="in the newer renderer")
    given = parser.parse_args()
    try:
        draw(json.loads(given.workflow.read_text(encoding="utf-8")), given.out, given.palette, given.nodes2)
    except SetupError as error:
        print(f"graph_picture: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
