"""docs/compatibility.md is what this run of the tests found; runs after all others."""

from __future__ import annotations

from typing import Any

import pytest

import compatibility

HOW = "write it anew: bash scripts/run.sh scripts/compatibility.py"


def test_the_table_is_current(request: pytest.FixtureRequest, results: Any, whole_sweep: bool) -> None:
    if request.config.option.write_compatibility:
        assert whole_sweep, "the table is written by a run of the whole sweep in which every test passes"
        compatibility.FILE.write_text(results.markdown(), encoding="utf-8", newline="\n")
    text = compatibility.FILE.read_text(encoding="utf-8")
    written = compatibility.read(text)
    for theme, rows in results.rows().items():
        for feature, row in rows.items():
            given = written.get(theme, {}).get(feature)
            if whole_sweep or given is None:
                assert given == row, HOW
            else:  # a part of the sweep may have recorded a part of the row
                assert set(row[1].split(", ")) <= set(given[1].split(", ")), HOW
    if whole_sweep:
        assert text == results.markdown(), HOW


def test_no_blank_cells() -> None:
    written = compatibility.read(compatibility.FILE.read_text(encoding="utf-8"))
    assert written
    for rows in written.values():
        for row in rows.values():
            assert len(row) == 3 and all(cell.strip() for cell in row)


@pytest.mark.parametrize("text", ["", "  ", "a | b", "a\nb"])
def test_a_blank_result_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="result is"):
        compatibility.Results().add("theme", "feature", "vector", text)


def test_rows_survive_the_page() -> None:
    results = compatibility.Results()
    results.add("Prompts", "masks", "vector", "equal")
    results.add("Prompts", "masks", "by node", "equal too")
    results.add("A", "b", "plain", "c")
    assert compatibility.read(results.markdown()) == results.rows()
    assert results.rows()["Prompts"]["masks"] == ("masks", "by node, vector", "equal; equal too")
