"""Every node explains itself: help pages in two languages, words in three, pictures that exist."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import re
from types import ModuleType
from typing import Any

import pytest
from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "web" / "docs"
LOCALES = ROOT / "locales"


@pytest.fixture(scope="module")
def locales() -> ModuleType:
    spec = importlib.util.spec_from_file_location("drafttree_locales", ROOT / "scripts" / "locales.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _read(language: str, name: str) -> Any:
    return json.loads((LOCALES / language / f"{name}.json").read_text(encoding="utf-8"))


def test_english_is_what_the_nodes_say(ours: Any, locales: ModuleType) -> None:
    written = (LOCALES / "en" / "nodeDefs.json").read_text(encoding="utf-8")
    assert written == locales.text(locales.definitions(ours.extension.NODES)), "bash scripts/run.sh scripts/locales.py"


@pytest.mark.parametrize("name", ["nodeDefs", "settings", "main"])
@pytest.mark.parametrize("language", ["zh", "ja"])
def test_every_word_is_translated(locales: ModuleType, language: str, name: str) -> None:
    english, other = _read("en", name), _read(language, name)
    assert locales.keys(other) == locales.keys(english)
    same = []

    def compare(a: Any, b: Any, path: str) -> None:
        if isinstance(a, dict):
            for key in a:
                compare(a[key], b[key], f"{path}/{key}")
        else:
            assert b.strip()
            if a == b:
                same.append(path)

    compare(english, other, "")
    allowed = re.compile(r".*/(cfg|eta|DraftTree|drafttree)(/name)?$|.*/name$")
    assert [path for path in same if not allowed.match(path)] == []
    script = r"[\u4e00-\u9fff]" if language == "zh" else r"[\u3040-\u30ff\u4e00-\u9fff]"
    if name == "nodeDefs":
        for node in other.values():
            assert re.search(script, node["display_name"]) and re.search(script, node["description"])
            assert all(re.search(script, entry["tooltip"]) for entry in node["inputs"].values())


@pytest.mark.parametrize("language", ["en", "zh", "ja"])
def test_the_setting_has_words(language: str) -> None:
    script = (ROOT / "web" / "drafttree.js").read_text(encoding="utf-8")
    name = re.search(r"SETTING = '([\w.]+)'", script)
    assert name
    words = _read(language, "settings")
    assert set(words) == {name[1].replace(".", "_")} and all(
        set(entry) == {"name", "tooltip"} for entry in words.values()
    )
    category = re.search(r"category: \[([^\]]+)\]", script)
    assert category
    assert set(_read(language, "main")["settingsCategories"]) == set(re.findall(r"'([^']+)'", category[1]))


def test_every_node_has_help_in_two_languages(ours: Any) -> None:
    names = {node.GET_SCHEMA().node_id for node in ours.extension.NODES}
    assert {page.stem for page in DOCS.glob("*.md")} == names
    assert {page.parent.name for page in DOCS.glob("*/zh.md")} == names
    linked = set()
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        pictures = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", text)
        assert pictures and text.startswith("# "), page
        for words, link in pictures:
            assert words.strip() and (DOCS / link).is_file(), (page, link)  # the frontend resolves them from docs
            linked.add(link)
        chinese = bool(re.search(r"[\u4e00-\u9fff]", text))
        assert chinese == (page.name == "zh.md"), page
    assert {f"images/{file.name}" for file in (DOCS / "images").iterdir()} == linked


def test_help_is_titled_as_the_node_is(ours: Any) -> None:
    names = {language: _read(language, "nodeDefs") for language in ("en", "zh")}
    for node in ours.extension.NODES:
        name = node.GET_SCHEMA().node_id
        for language, page in (("en", DOCS / f"{name}.md"), ("zh", DOCS / name / "zh.md")):
            title = page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
            assert title == names[language][name]["display_name"], page


def test_pictures_are_small_and_legible() -> None:
    for file in (DOCS / "images").iterdir():
        with Image.open(file) as picture:
            assert 600 <= picture.width <= 1024, file
        assert file.stat().st_size < 120_000, file


def test_search_words(ours: Any) -> None:
    """ComfyUI 0.3.75 searches names and descriptions; newer releases take words of their own."""
    samplers = ("DraftTreeKSampler", "DraftTreeKSamplerAdvanced", "DraftTreeSampler")
    for node in ours.extension.NODES:
        schema = node.GET_SCHEMA()
        if schema.node_id in samplers:
            assert "faster" in schema.description and "speculative decoding" in schema.description
        aliases = ours.types.found_by("k sampler").get("search_aliases")
        if aliases and schema.node_id != "DraftTreeDemoPrompt":
            assert {"faster", "turbo", "speculative decoding"} <= set(schema.search_aliases)
