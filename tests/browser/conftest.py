"""The real frontend, served by the real host, in a headless Chromium: the host's own frontend and a much newer one."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from examples import ROOT

PICTURES = ROOT / "output" / "browser"
FRONTENDS = ("pinned", "newer")
DEFAULTS = {"Comfy_VueNodes_Enabled": False, "Comfy_ColorPalette": "dark", "DraftTree_Panel": True}


@pytest.fixture(scope="session")
def chromium(comfy_page: ModuleType) -> Iterator[Any]:
    with comfy_page.chromium() as browser:
        yield browser


@pytest.fixture(scope="session", params=FRONTENDS)
def frontend(request: pytest.FixtureRequest, comfyui_dir: pathlib.Path, setup_web: ModuleType) -> Iterator[Any]:
    """A server with one of the frontends; its name is in `frontend.label`."""
    arguments: tuple[str, ...] = ()
    if request.param == "newer":
        arguments = ("--front-end-root", str(setup_web.newer_frontend()))
    with sys.modules["host_server"].HostServer(comfyui_dir, arguments=arguments) as server:
        server.label = request.param
        yield server


@pytest.fixture(scope="session")
def first_page(frontend: Any, chromium: Any, comfy_page: ModuleType) -> Iterator[Any]:
    """The one page that all tests share: opening one takes longer than most tests. It opens as for a new user."""
    page = comfy_page.ComfyPage.open(chromium, frontend, Comfy_TutorialCompleted=False)
    yield page
    page.close()


@pytest.fixture
def visit(first_page: Any) -> Iterator[Callable[..., Any]]:
    """visit(**settings) -> the page, with these settings; at the end of the test it must have told no error."""

    def change(**settings: Any) -> Any:
        first_page.page.keyboard.press("Escape")
        first_page.set(**(DEFAULTS | settings))
        return first_page

    yield change
    errors, first_page.errors = first_page.errors, []
    assert errors == []


@pytest.fixture
def keep(frontend: Any) -> Callable[[Any, str], None]:
    """keep(page, name): a picture of the page for people, in output/browser."""

    def shoot(page: Any, name: str) -> None:
        PICTURES.mkdir(parents=True, exist_ok=True)
        page.page.screenshot(path=PICTURES / f"{frontend.label}_{name}.png")

    return shoot
