"""scripts/setup_web.py: it says what is missing, and how to get it."""

from __future__ import annotations

import pathlib
import sys
from types import ModuleType
from typing import Any

import pytest


def program(folder: pathlib.Path, name: str, words: str = "") -> pathlib.Path:
    file = folder / name
    file.write_text(f"#!/bin/sh\necho '{words}'\n", encoding="utf-8")
    file.chmod(0o755)
    return file


@pytest.fixture
def path(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """An empty PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CHROMIUM", raising=False)
    return tmp_path


def error(what: str) -> Any:
    return pytest.raises(sys.modules["setup_env"].SetupError, match=what)


def test_no_node(setup_web: ModuleType, path: pathlib.Path) -> None:
    with error("Node.js 20 or newer .* not in PATH.*apt install nodejs"):
        setup_web.node_modules()


def test_old_node(setup_web: ModuleType, path: pathlib.Path) -> None:
    program(path, "npm")
    program(path, "node", "v18.19.0")
    with error("Node.js is v18.19.0.*20 or newer"):
        setup_web.node_modules()


def test_no_browser(setup_web: ModuleType, path: pathlib.Path) -> None:
    """And no apt-get to bring one."""
    with error("none of chromium.*CHROMIUM=/path/to/chrome"):
        setup_web.browser()


def test_which_browser(setup_web: ModuleType, path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The named one, else the first in PATH; a name that is none stops."""
    chrome = program(path, "google-chrome")
    assert setup_web.browser() == str(chrome)
    own = program(path, "my-chrome")
    monkeypatch.setenv("CHROMIUM", str(own))
    assert setup_web.browser() == str(own)
    monkeypatch.setenv("CHROMIUM", str(path / "nothing"))
    with error("CHROMIUM=.*nothing is no program"):
        setup_web.browser()
