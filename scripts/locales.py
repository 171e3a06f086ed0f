"""Write locales/en/nodeDefs.json from the nodes themselves, and say what the other languages lack.

    bash scripts/run.sh scripts/locales.py

The other languages are written by hand, key by key as in English; tests/host/test_help.py holds them to it.
"""

from __future__ import annotations

import asyncio
import json
import pathlib
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOCALES = ROOT / "locales"
LANGUAGES = ("en", "zh", "ja")


def definitions(nodes: list[Any]) -> dict[str, Any]:
    """What the frontend translates of every node, in English: the content of nodeDefs.json."""
    made = {}
    for node in nodes:
        info = node.GET_NODE_INFO_V1()
        inputs = {}
        for kind in ("required", "optional"):
            for name, (_, options) in info["input"].get(kind, {}).items():
                inputs[name] = {"name": options.get("display_name") or name, "tooltip": options["tooltip"]}
        outputs = {
            str(place): {"name": name, "tooltip": tip}
            for place, (name, tip) in enumerate(zip(info["output_name"], info["output_tooltips"], strict=True))
        }
        head = {"display_name": info["display_name"], "description": info["description"]}
        made[node.GET_SCHEMA().node_id] = {**head, "inputs": inputs, "outputs": outputs}
    return made


def text(value: Any) -> str:
    """The content of a file in locales."""
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def keys(value: Any, path: str = "") -> set[str]:
    """The paths of all words in a file."""
    if not isinstance(value, dict):
        return {path}
    return {key for name, inner in value.items() for key in keys(inner, f"{path}/{name}")}


def main() -> int:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from _host import load_host, load_pack

    load_host()
    extension = asyncio.run(load_pack().comfy_entrypoint())
    made = definitions(asyncio.run(extension.get_node_list()))
    (LOCALES / "en").mkdir(parents=True, exist_ok=True)
    (LOCALES / "en" / "nodeDefs.json").write_text(text(made), encoding="utf-8", newline="\n")
    missing = 0
    for language in LANGUAGES[1:]:
        given = json.loads((LOCALES / language / "nodeDefs.json").read_text(encoding="utf-8"))
        for key in sorted(keys(made) ^ keys(given)):
            print(f"{language}: {key} {'is missing' if key in keys(made) else 'is not in English'}")
            missing += 1
    return min(missing, 1)


if __name__ == "__main__":
    sys.exit(main())
