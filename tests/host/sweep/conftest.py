"""The sweep: what ComfyUI can put into a graph, and what becomes of it; its results are docs/compatibility.md.

A test records (feature, mode, result) once it has passed. The table in docs is held against what was recorded in the
same run, so nothing runs twice; `bash scripts/run.sh scripts/compatibility.py` writes it anew.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest

import compatibility

FOLDER = pathlib.Path(__file__).resolve().parent
RESULTS = pytest.StashKey[compatibility.Results]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash.setdefault(RESULTS, compatibility.Results())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The test of the table comes last; it asks for every row if the whole sweep runs."""
    config.stash.setdefault(RESULTS, compatibility.Results())
    items.sort(key=lambda item: item.path.name == "test_table.py")


@pytest.fixture
def results(request: pytest.FixtureRequest) -> compatibility.Results:
    """All that was recorded so far in this run."""
    return request.config.stash[RESULTS]


@pytest.fixture
def whole_sweep(request: pytest.FixtureRequest) -> bool:
    """Whether this run holds every test of the sweep, and all of them have passed so far."""
    config = request.config
    if config.option.keyword or config.option.deselect or any("::" in arg for arg in config.args):
        return False
    files = {item.path for item in request.session.items}
    return set(FOLDER.glob("test_*.py")) <= files and request.session.testsfailed == 0


@pytest.fixture
def record(request: pytest.FixtureRequest, results: compatibility.Results) -> Callable[..., None]:
    """record(feature, mode, result), to be called when a feature has passed; the theme is the module's THEME.

    mode: "vector", "by sigma", "by node", "plain", "declined", or a run's report, whose call_mode it is. result: a
    sentence without measured numbers, the same in every run. Several cases of one feature may record it.
    """

    def note(feature: str, mode: str | dict[str, Any], result: str) -> None:
        mode = mode if isinstance(mode, str) else mode["call_mode"]
        results.add(request.module.THEME, feature, mode, result)

    return note
