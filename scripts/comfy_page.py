"""A page of the real ComfyUI frontend in a headless Chromium, for the browser tests and the README's picture.

with HostServer(comfyui) as server, comfy_page.chromium() as browser:
    page = comfy_page.ComfyPage.open(browser, server)
    page.load(workflow)
    page.run()
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, Response, sync_playwright

import setup_web
from host_server import HostServer

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--force-color-profile=srgb"),
)
SIZE = (1600, 900)
SETTINGS: dict[str, Any] = {
    "Comfy.TutorialCompleted": True,  # a new user's first page opens with the template browser
    "Comfy.Workflow.Persist": False,
    "Comfy.Minimap.Visible": False,
    "Comfy.Graph.CanvasInfo": False,
}
# What the frontend itself says on a machine without a network, without saved user data, or with an older server.
THEIRS = (
    r"status of 404 .*/(user\.css|api/userdata|api/jobs|api/assets|templates/|favicon\.ico|api/experiment|api/system)",
    r"Jobs API|JobsApiError|api\.comfy\.org|Content Security Policy|net::ERR_",
    # A card without a picture; whether every example has one is no question to the page.
    r"status of 404 .*/api/workflow_templates/.*\.jpg|Failed to fetch: 404",
    r"Attempted to cleanup event listeners for graph that was never set up",  # the minimap, on opening a subgraph
    r"reading 'id'\)\s+at onChange .*\s+at Proxy\.set",  # 1.32.9: a setting stored before it is registered
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless Chromium with no profile of its own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=setup_web.browser(), args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


def named(settings: dict[str, Any]) -> dict[str, Any]:
    """The ids of settings that were given as keywords."""
    return {name.replace("_", "."): value for name, value in settings.items()}


class ComfyPage:
    """The page, the errors it told, and what a person does with it. Times are seconds."""

    def __init__(self, page: Page, server: HostServer) -> None:
        self.page, self.server = page, server
        self.errors: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.errors.append(f"uncaught: {error}"))
        page.on("response", self._response)

    @classmethod
    def open(
        cls, browser: Browser, server: HostServer, size: tuple[int, int] = SIZE, scale: float = 1, **settings: Any
    ) -> ComfyPage:
        """A fresh page; settings by their ids, with "_" for ".": Comfy_ColorPalette="light"."""
        for name, value in (SETTINGS | named(settings)).items():
            server.post(f"/settings/{name}", value)
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, device_scale_factor=scale, locale="en-US"
        )
        page = cls(context.new_page(), server)
        page.goto()
        return page

    def set(self, **settings: Any) -> None:
        """Change settings as in the settings dialog, without a reload."""
        self.js(
            """async (values) => {
              for (const [id, value] of Object.entries(values)) await window.app.extensionManager.setting.set(id, value)
            }""",
            named(settings),
        )
        self.settle()

    def close(self) -> None:
        self.page.context.close()

    def _console(self, message: ConsoleMessage) -> None:
        text = f"{message.text} ({(message.location or {}).get('url', '')})"
        if message.type == "error" and not any(re.search(known, text) for known in THEIRS):
            self.errors.append(text)

    def _response(self, answer: Response) -> None:
        ours = "drafttree" in answer.url.lower() and not re.search(
            r"comfy\.org|/workflow_templates/.*\.jpg", answer.url
        )
        if answer.status >= 400 and ours:
            self.errors.append(f"HTTP {answer.status} for {answer.url}")

    def js(self, code: str, argument: Any = None) -> Any:
        """The value of a JavaScript function."""
        return self.page.evaluate(code, argument)

    def wait(self, code: str, timeout: float = 30) -> None:
        """Until a JavaScript function gives something true."""
        self.page.wait_for_function(code, timeout=1000 * timeout)

    # Opening

    def goto(self) -> None:
        """Open the page, or reload it, and wait until the graph can be used."""
        self.page.goto(f"http://127.0.0.1:{self.server.port}/", wait_until="domcontentloaded")
        self.ready()

    def ready(self) -> None:
        # Nothing of window.app before it is set up: reading it early makes the frontend complain.
        self.wait("() => window.LiteGraph?.registered_node_types?.DraftTreeKSampler", 60)
        self.wait("() => document.querySelector('#graph-canvas') && window.app?.graph?.nodes", 60)
        # Set up entirely: the default graph is there, or what the last session left.
        self.page.locator("[data-testid=queue-button], .comfyui-queue-button").first.wait_for(state="visible")
        self.page.wait_for_timeout(300)

    def load(self, workflow: dict[str, Any]) -> None:
        """Open a workflow file, as by dropping it onto the page."""
        self.js(
            """async (workflow) => {
              // Into the open tab: with many tabs the newest hides under the buttons.
              const tab = window.app.extensionManager.workflow?.activeWorkflow
              await window.app.loadGraphData(workflow, true, true, tab)
            }""",
            workflow,
        )
        self.settle()

    def settle(self) -> None:
        """Two drawn frames: sizes of nodes follow their contents."""
        self.js("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")
        self.page.wait_for_timeout(150)

    def templates(self) -> None:
        """Open the pack's part of the template browser."""
        dialog = self.page.locator("[role=dialog]").filter(has_text="Templates")
        if not dialog.count():
            self.page.locator(".side-tool-bar-container, .side-bar-panel, nav").get_by_text("Templates").first.click()
        dialog.first.get_by_text("ComfyUI-DraftTree").first.click()
        self.page.locator("[data-testid^=template-workflow-drafttree_]").first.wait_for(state="visible")

    def open_template(self, name: str) -> None:
        """Click a card of the template browser, by the name of its file."""
        self.page.get_by_test_id(f"template-workflow-{name}").first.click()
        self.page.locator("[role=dialog]").filter(has_text="Templates").first.wait_for(state="hidden")
        self.settle()

    # What is in it

    def graph(self) -> dict[str, Any]:
        """The graph as it would be saved now."""
        found: dict[str, Any] = json.loads(self.js("() => JSON.stringify(window.app.graph.serialize())"))
        return found

    def nodes(self, kind: str) -> list[dict[str, Any]]:
        return [node for node in self.graph()["nodes"] if node["type"] == kind]

    def boxes(self, vue: bool) -> dict[str, list[float]]:
        """ "type id" -> [left, top, right, bottom] of each node as drawn, title included, in some unit."""
        found: dict[str, list[float]] = self.js(
            """(vue) => Object.fromEntries(window.app.graph.nodes.map((node) => {
                 const name = `${node.type} ${node.id}`
                 if (!vue) {
                   const [x, y, width, height] = node.boundingRect ?? node.getBounding()
                   return [name, [x, y, x + width, y + height]]
                 }
                 const box = document.querySelector(`[data-node-id="${node.id}"]`).getBoundingClientRect()
                 return [name, [box.left, box.top, box.right, box.bottom]]
               }))""",
            vue,
        )
        return found

    def view(self) -> list[float]:
        """[left, top, right, bottom] of all nodes, in pixels of the page."""
        found: list[float] = self.js(
            """() => {
              const boxes = window.app.graph.nodes.map((n) => n.boundingRect ?? n.getBounding())
              const { scale, offset } = window.app.canvas.ds
              const page = document.querySelector('#graph-canvas').getBoundingClientRect()
              const x = (v) => page.x + scale * (v + offset[0]), y = (v) => page.y + scale * (v + offset[1])
              return [x(Math.min(...boxes.map((b) => b[0]))), y(Math.min(...boxes.map((b) => b[1]))),
                      x(Math.max(...boxes.map((b) => b[0] + b[2]))), y(Math.max(...boxes.map((b) => b[1] + b[3])))]
            }"""
        )
        return found

    def panels(self) -> list[dict[str, str]]:
        """The visible panels from left to right: {"state", "text"}."""
        found: list[dict[str, str]] = self.js(
            """() => [...document.querySelectorAll('.drafttree-panel')].filter((e) => e.offsetWidth)
                 .sort((a, b) => a.getBoundingClientRect().x - b.getBoundingClientRect().x)
                 .map((e) => ({ state: e.dataset.state, text: e.innerText }))"""
        )
        return found

    # Running

    def run(self, timeout: float = 60) -> dict[str, Any]:
        """Press Run and wait for the end; the entry of the history."""
        before = self.known()
        self.press_run()
        return self.ended(before, timeout)

    def known(self) -> Collection[str]:
        """The ids of the prompts that have ended."""
        return list(self.server.get("/history"))

    def press_run(self) -> None:
        self.page.mouse.move(SIZE[0] / 2, SIZE[1] - 40)  # off the tabs, which open previews over the button
        self.page.locator("[data-testid=queue-button] button, button[data-testid=queue-button]").first.click()

    def ended(self, before: Collection[str], timeout: float = 60) -> dict[str, Any]:
        """The history's entry of the next prompt to end."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            for name, entry in self.server.get("/history").items():
                if name not in before:
                    self.page.wait_for_timeout(200)  # the last messages are on their way to the page
                    return dict(entry)
            self.page.wait_for_timeout(100)
        raise TimeoutError(f"no prompt ended within {timeout:.0f} s; the page said {self.errors}")

    def watch_panels(self) -> None:
        """Keep every title a panel shows from now on, for `titles`."""
        self.js(
            """() => {
              window.drafttreeTitles = []
              const note = () => {
                for (const e of document.querySelectorAll('.drafttree-panel')) {
                  const said = e.dataset.state + ': ' + e.querySelector('.title').textContent
                  if (window.drafttreeTitles.at(-1) !== said) window.drafttreeTitles.push(said)
                }
              }
              new MutationObserver(note).observe(document.body, { subtree: true, childList: true, characterData: true })
            }"""
        )

    def titles(self) -> list[str]:
        found: list[str] = self.js("() => window.drafttreeTitles")
        return found
