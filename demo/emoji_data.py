"""The pictures and their names: Noto Emoji, 64 px, from the npm package emoji-datasource-google."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import random
import re
import shutil
import subprocess
import tarfile

import torch

import words

PACKAGE = "emoji-datasource-google@16.0.0"
SIZE = 64
# Typography in Unicode's names ("heavy black heart" is the red one): not what a person would type.
TYPOGRAPHY = {"black", "white", "heavy", "sign", "symbol"}
CODE = re.compile(r"\b[a-z]+\d|cjk|ideograph")  # "cow2", "u6709"
# Subcategories of Unicode as words that an artist might type on their own.
KINDS = {
    "animal": "animal", "fruit": "fruit", "vegetable": "vegetable", "flower": "flower", "drink": "drink",
    "bird": "bird", "mammal": "animal", "marine": "sea", "bug": "insect", "clothing": "clothing",
    "building": "building", "prepared": "food", "asian": "food", "sweet": "sweet", "sport": "sport",
    "instrument": "instrument", "air": "vehicle", "ground": "vehicle", "water": "vehicle", "plant": "plant",
    "tool": "tool", "weather": "weather", "hands": "hand", "fingers": "hand", "heart": "heart",
    "person": "person", "face": "face", "role": "person", "fantasy": "person", "computer": "machine",
    "geometric": "shape", "zodiac": "zodiac", "monkey": "animal", "time": "clock",
}  # fmt: skip


@dataclasses.dataclass
class Picture:
    """One emoji: its main name, other names for it, and words for its kind."""

    file: str
    name: str
    aliases: list[str]
    kinds: list[str]


def find_package(work: pathlib.Path, given: pathlib.Path | None) -> pathlib.Path:
    """The unpacked package: the folder given, or fetched by the npm client into the work folder."""
    folder = given or work / "package"
    if (folder / "emoji.json").is_file():
        return folder
    if given is not None:
        raise SystemExit(f"{given} holds no emoji.json: give the unpacked package {PACKAGE}")
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit(
            f"npm is not installed: install it, or unpack the npm package {PACKAGE} and pass --images FOLDER"
        )
    done = subprocess.run([npm, "pack", PACKAGE, "--silent"], cwd=work, check=True, capture_output=True, text=True)
    with tarfile.open(work / done.stdout.split()[-1]) as archive:
        archive.extractall(work, filter="data")
    return folder


def catalogue(package: pathlib.Path) -> tuple[list[Picture], list[str]]:
    """The named single-codepoint pictures, and the files of all pictures (skin tones, flags and families too)."""
    import emoji

    named: list[Picture] = []
    files: list[str] = sorted(path.name for path in (package / "img/google/64").glob("*.png"))
    for entry in json.loads((package / "emoji.json").read_text(encoding="utf-8")):
        points = [int(point, 16) for point in entry["unified"].split("-")]
        if len([p for p in points if p != 0xFE0F]) != 1 or entry["subcategory"] in ("skin-tone", "country-flag"):
            continue
        if entry["image"] not in files:
            continue
        known = emoji.EMOJI_DATA.get("".join(map(chr, points)), {})
        name = _tidy(known.get("en", entry["name"]))
        unicode_name = [w for w in words.split(entry["name"]) if w not in TYPOGRAPHY or w in name.split()]
        others = [" ".join(unicode_name), *map(_tidy, entry["short_names"]), *map(_tidy, known.get("alias", []))]
        aliases = sorted({alias for alias in others if alias and alias != name and not CODE.search(alias)})
        parts = entry["subcategory"].replace("-", " ").split()
        kinds = sorted({KINDS[part] for part in parts if part in KINDS})
        named.append(Picture(entry["image"], name, aliases, kinds))
    taken = {picture.name for picture in named}
    for picture in named:
        picture.aliases = [alias for alias in picture.aliases if alias not in taken]
    return named, files


def _tidy(name: str) -> str:
    return " ".join(words.split(name.replace("_", " ")))


def load_images(package: pathlib.Path, files: list[str]) -> torch.Tensor:
    """[N, 3, 64, 64] uint8, on white."""
    import numpy
    from PIL import Image

    images = []
    for file in files:
        picture = Image.open(package / "img/google/64" / file).convert("RGBA")
        page = Image.new("RGBA", (SIZE, SIZE), "white")
        picture.thumbnail((SIZE, SIZE), Image.Resampling.LANCZOS)
        page.alpha_composite(picture, ((SIZE - picture.width) // 2, (SIZE - picture.height) // 2))
        images.append(torch.from_numpy(numpy.array(page.convert("RGB"))).permute(2, 0, 1))
    return torch.stack(images)


def write_names(named: list[Picture], path: pathlib.Path) -> None:
    """One picture a line: its name, and in brackets the other names the model was told."""
    lines = [picture.name + (f" ({', '.join(picture.aliases)})" if picture.aliases else "") for picture in named]
    path.write_text("\n".join(sorted(lines)) + "\n", encoding="utf-8", newline="\n")


def caption(picture: Picture, rng: random.Random) -> str:
    """What this picture is called this time: its name, an alias or some of the words (so "face" means many faces)."""
    name = picture.name
    if picture.aliases and rng.random() < 0.25:
        name = rng.choice(picture.aliases)
    if rng.random() < 0.5:
        return name
    pool = list(dict.fromkeys(name.split() + picture.kinds))
    return " ".join(rng.sample(pool, rng.randint(1, len(pool))))
