"""Draw a sheet: a row of pictures for each prompt.

usage: bash scripts/run.sh demo/pictures.py OUT.png [--draft] [--steps 28] [--cfg 4] [PROMPT ...]
"""

from __future__ import annotations

import argparse
import pathlib

import numpy
from PIL import Image, ImageDraw

from stock import Stock

HERE = pathlib.Path(__file__).resolve().parent
PROMPTS = [
    "red heart",
    "rocket",
    "cat face",
    "dog face",
    "pizza",
    "tulip",
    "red apple",
    "face",
    "heart",
    "clock",
    "book",
    "person",
]
CELL, LABEL = 128, 150


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("prompts", nargs="*", default=PROMPTS)
    parser.add_argument("--models", type=pathlib.Path, default=HERE / "models")
    parser.add_argument("--draft", action="store_true", help="sample with the draft model")
    parser.add_argument("--count", type=int, default=8, help="pictures in a row")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=28)
    parser.add_argument("--cfg", type=float, default=4.0)
    parser.add_argument("--sampler", default="euler_ancestral")
    options = parser.parse_intermixed_args()

    stock = Stock(options.models)
    model = stock.draft if options.draft else stock.model
    sheet = Image.new("RGB", (LABEL + CELL * options.count, CELL * len(options.prompts)), "white")
    for row, text in enumerate(options.prompts):
        latents = stock.sample(model, text, options.seed, options.count, options.steps, options.cfg, options.sampler)
        for column, picture in enumerate(stock.decode(latents)):
            pixels = Image.fromarray((picture.clamp(0, 1) * 255).round().numpy().astype(numpy.uint8))
            sheet.paste(pixels.resize((CELL, CELL), Image.Resampling.LANCZOS), (LABEL + CELL * column, CELL * row))
        ImageDraw.Draw(sheet).text((6, CELL * row + CELL // 2), text, fill="black")
    sheet.save(options.out)


if __name__ == "__main__":
    main()
