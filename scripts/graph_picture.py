"""Take the README's picture: the demo workflow in the real frontend, after a run, with the panel on the sampler.

bash scripts/run.sh scripts/graph_picture.py [FILE.png]
"""

from __future__ import annotations

import io
import json
import os
import pathlib
import sys

from PIL import Image

import comfy_page
from comfy_page import ComfyPage
from host_server import ROOT, HostServer

PICTURE = ROOT / "docs" / "demo_graph.png"
WORKFLOW = ROOT / "example_workflows" / "drafttree_demo.json"
SIZE = (1800, 860)
MARGIN = 40  # pixels around the graph
SIDEBAR, TOP = 70, 60  # pixels that the frontend's own buttons take


def fit(page: ComfyPage) -> list[float]:
    """Zoom until the whole graph is in view; its left, top, right and bottom edge in pixels of the page."""
    edges: list[float] = page.js(
        """([left, top, margin]) => {
          const nodes = window.app.graph.nodes
          const box = [Infinity, Infinity, -Infinity, -Infinity]
          for (const n of nodes) {
            box[0] = Math.min(box[0], n.pos[0]); box[1] = Math.min(box[1], n.pos[1] - 30)
            box[2] = Math.max(box[2], n.pos[0] + n.size[0]); box[3] = Math.max(box[3], n.pos[1] + n.size[1])
          }
          const width = window.innerWidth - left - 2 * margin, height = window.innerHeight - top - 2 * margin
          const scale = Math.min(1, width / (box[2] - box[0]), height / (box[3] - box[1]))
          const ds = window.app.canvas.ds
          const canvas = document.querySelector('#graph-canvas').getBoundingClientRect()
          ds.scale = scale
          const x = left + margin + (width - scale * (box[2] - box[0])) / 2 - canvas.x
          const y = top + margin + (height - scale * (box[3] - box[1])) / 2 - canvas.y
          ds.offset[0] = x / scale - box[0]; ds.offset[1] = y / scale - box[1]
          window.app.canvas.setDirty(true, true)
          const place = (v, i) => scale * (v + ds.offset[i % 2]) + (i % 2 ? canvas.y : canvas.x)
          return box.map(place)
        }""",
        [SIDEBAR, TOP, MARGIN],
    )
    page.settle()
    page.page.mouse.move(SIZE[0] / 2, SIZE[1] - 8)
    page.page.wait_for_timeout(400)
    return edges


def tidy(page: ComfyPage) -> None:
    """Close what the frontend says of itself."""
    for banner in ("Introducing Nodes 2.0", "job completed", "jobs completed"):
        found = page.page.get_by_text(banner)
        if found.count():
            found.first.evaluate(
                """(e) => {
                  let box = e
                  while (box.parentElement && box.parentElement.offsetHeight < 60) box = box.parentElement
                  box.style.display = 'none'
                }"""
            )
    page.settle()


def screenshot(page: ComfyPage) -> Image.Image:
    """What the page shows."""
    return Image.open(io.BytesIO(page.page.screenshot())).convert("RGB")


def graph_alone(page: ComfyPage) -> Image.Image:
    """The graph, cut out of the page."""
    left, top, right, bottom = fit(page)
    picture = screenshot(page)
    box = (left - 12, top - 12, right + 12, bottom + 12)
    return picture.crop((max(0, int(box[0])), max(0, int(box[1])), int(box[2]), int(box[3])))


def main() -> int:
    target = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    with HostServer(os.environ["COMFYUI_DIR"]) as server, comfy_page.chromium() as browser:
        page = ComfyPage.open(browser, server, SIZE)
        page.load(json.loads(WORKFLOW.read_text(encoding="utf-8")))
        sampler = next(node for node in page.nodes("DraftTreeKSampler"))["id"]
        for seed in (8, 7):  # the first run loads the model; the picture shows the workflow's own seed
            page.js(
                """([id, seed]) => {
                  window.app.graph.getNodeById(id).widgets.find((w) => w.name === 'seed').value = seed
                }""",
                [sampler, seed],
            )
            page.run()
        page.wait("() => [...document.querySelectorAll('.drafttree-panel')].some((e) => e.dataset.state === 'done')")
        page.page.wait_for_timeout(1500)  # the pictures are loaded after the run's end
        tidy(page)
        fit(page)
        screenshot(page).quantize(192, dither=Image.Dither.NONE).save(target, optimize=True)
        page.close()
    print(target, f"{target.stat().st_size / 1000:.0f} KB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
