"""A page of the real ComfyUI frontend in a headless Chromium, for the browser tests and the README's picture.

with HostServer(comfyui) as server, comfy_page.chromium() as browser, comfy_page.open_page(browser, server) as page:
    page.open_template("drafttree_demo")
    page.queue()
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, Response, sync_playwright

import setup_web
from host_server import PACK_NAME, HostServer

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--force-color-profile=srgb"),
)
PANEL = "drafttree_panel"
SETTINGS = {
    # A new user's first page opens with greetings and the template browser; tests come to that by themselves.
    "Comfy.TutorialCompleted": True,
    "Comfy.InstalledVersion": "1.0.0",
    "Comfy.Release.Status": "skipped",
    "Comfy.Workflow.ShowMissingModelsWarning": True,
    "Comfy.VueNodes.AutoScaleLayout": False,
}
# What the frontend says by itself on a machine without a network, and nothing that concerns the pack.
HARMLESS = (
    r"net::ERR_(INTERNET_DISCONNECTED|NAME_NOT_RESOLVED|CONNECTION|BLOCKED_BY_CLIENT|FAILED|TUNNEL|PROXY)",
    r"favicon",
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


class ComfyPage:
    """The page, what it said on its console, and what a person does with it."""

    def __init__(self, page: Page, server: HostServer) -> None:
        self.page, self.server = page, server
        self.errors: list[str] = []
        self.warnings: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.errors.append(f"uncaught: {error}"))
        page.on("response", self._response)

    def _console(self, message: ConsoleMessage) -> None:
        text = f"{message.text} ({(message.location or {}).get('url', '')})"
        if message.type == "error" and not any(re.search(known, text) for known in HARMLESS):
            self.errors.append(text)
        if message.type == "warning":
            self.warnings.append(text)

    def _response(self, answer: Response) -> None:
        if answer.status >= 400 and "drafttree" in answer.url.lower():
            self.errors.append(f"HTTP {answer.status} for {answer.url}")

    # Opening

    def goto(self) -> None:
        """Open the page, or reload it, and wait until the graph can be used."""
        self.page.goto(f"http://127.0.0.1:{self.server.port}/", wait_until="domcontentloaded")
        # Nothing of window.app before it is set up: reading it early makes the frontend itself complain.
        self.page.wait_for_function("() => window.LiteGraph?.registered_node_types?.DraftTreeKSampler", timeout=60_000)
        self.page.wait_for_function("() => document.querySelector('#graph-canvas') && window.app.graph?.nodes")
        self.page.locator("#graph-canvas").wait_for(state="visible")

    def js(self, code: str, argument: Any = None) -> Any:
        """The value of a JavaScript function."""
        return self.page.evaluate(code, argument)
