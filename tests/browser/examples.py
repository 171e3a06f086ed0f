"""The example workflows."""

from __future__ import annotations

import json
import pathlib
import uuid
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "example_workflows").glob("*.json"))


def example(name: str) -> dict[str, Any]:
    """One of them, by the name of its file, with an id of its own: as if nobody had run it yet."""
    found: dict[str, Any] = json.loads((ROOT / "example_workflows" / f"{name}.json").read_text(encoding="utf-8"))
    return found | {"id": str(uuid.uuid4())}
