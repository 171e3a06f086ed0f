"""The shipped demo models, through ComfyUI's stock loaders, sampler and autoencoder."""

from __future__ import annotations

import logging
import pathlib
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from PIL import Image

MODELS = pathlib.Path(__file__).resolve().parents[2] / "demo" / "models"
# The sheet originals.png, by rows: Noto Emoji pictures as the models saw them.
NAMES = [
    "red heart", "rocket", "cat face", "dog face",
    "pizza", "tulip", "red apple", "soccer ball",
    "banana", "blue book", "smiling face with sunglasses", "crescent moon",
    "three o clock", "green apple", "umbrella", "strawberry",
]  # fmt: skip


@pytest.fixture(scope="module")
def stock(comfyui_dir: pathlib.Path, host: pathlib.Path, demo: Callable[[str], ModuleType]) -> SimpleNamespace:
    """The models, with what was logged while they were loaded."""
    lines: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    listener = Listener(logging.INFO)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COMFYUI_DIR", str(comfyui_dir))
        demo("words")
        demo("host_path")
        module = demo("stock")
        root = logging.getLogger()
        level = root.level
        root.addHandler(listener)
        root.setLevel(logging.INFO)
        try:
            loaded = module.Stock(MODELS)
        finally:
            root.removeHandler(listener)
            root.setLevel(level)
    return SimpleNamespace(use=loaded, lines=lines)


@pytest.fixture(scope="module")
def originals() -> torch.Tensor:
    """[16, 64, 64, 3] in 0..1."""
    with Image.open(pathlib.Path(__file__).parent / "originals.png") as sheet:
        pixels = torch.from_numpy(numpy.array(sheet.convert("RGB"))).float() / 255
    return pixels.reshape(4, 64, 4, 64, 3).transpose(1, 2).reshape(16, 64, 64, 3)


def test_nothing_is_missing(stock: SimpleNamespace) -> None:
    """ComfyUI only logs missing weights, and leaves them as uninitialised memory."""
    words = ("missing", "unexpected", "leftover", "unet")
    bad = [line for line in stock.lines if any(w in line.lower() for w in words) and "torchaudio" not in line]
    assert bad == []


@pytest.mark.parametrize("which", ["model", "draft"])
def test_recognised_as_sd3(stock: SimpleNamespace, which: str) -> None:
    import comfy.latent_formats
    import comfy.model_base

    patcher = getattr(stock.use, which)
    assert type(patcher.model) is comfy.model_base.SD3
    assert isinstance(patcher.model.latent_format, comfy.latent_formats.SD3)
    assert patcher.model.latent_format.latent_channels == 16
    assert patcher.model.model_sampling.shift == 3.0


def test_draft_is_smaller(stock: SimpleNamespace) -> None:
    sizes = [sum(p.numel() for p in m.model.diffusion_model.parameters()) for m in (stock.use.model, stock.use.draft)]
    assert sizes[1] < sizes[0] / 3


def test_files_are_small_and_say_what_they_are() -> None:
    from safetensors import safe_open

    files = sorted(MODELS.rglob("*.safetensors"))
    assert len(files) == 2 and sum(file.stat().st_size for file in files) < 25e6
    for file in files:
        with safe_open(file, framework="pt") as opened:
            note = opened.metadata()
            assert "toy" in note["description"] and "Apache-2.0" in note["license"]
            assert all(torch.isfinite(opened.get_tensor(name)).all() for name in opened.keys())  # noqa: SIM118


def test_autoencoder_round_trip(stock: SimpleNamespace, originals: torch.Tensor) -> None:
    """These were training pictures: 27.4 dB on the average of these sixteen when the files were made."""
    latents = stock.use.encode(originals)
    assert latents.shape == (16, 16, 8, 8)
    assert psnr(stock.use.decode(latents), originals).mean() > 26.9


def test_latents_have_the_scale_of_the_format(stock: SimpleNamespace, originals: torch.Tensor) -> None:
    seen = stock.use.model.model.process_latent_in(stock.use.encode(originals))
    assert abs(float(seen.mean())) < 0.15 and 0.8 < float(seen.std()) < 1.2


@pytest.mark.parametrize("which", ["model", "draft"])
def test_names_give_their_pictures(stock: SimpleNamespace, originals: torch.Tensor, which: str) -> None:
    """Each sampled picture is nearest to the original of its own name."""
    right = 0
    for i, name in enumerate(NAMES):
        picture = stock.use.decode(stock.use.sample(getattr(stock.use, which), name, 11 + i, 1))
        assert picture.shape == (1, 64, 64, 3) and torch.isfinite(picture).all()
        right += int((picture - originals).square().mean((1, 2, 3)).argmin()) == i
    assert right >= (15 if which == "model" else 13)


def test_an_ambiguous_word_gives_different_pictures(stock: SimpleNamespace) -> None:
    pictures = stock.use.decode(stock.use.sample(stock.use.model, "face", 3, 6))
    spread = (pictures[:, None] - pictures[None]).square().mean((2, 3, 4))
    assert float(spread.sum() / 30) > 0.01


def test_no_prompt_is_finite(stock: SimpleNamespace) -> None:
    latents: Any = stock.use.sample(stock.use.model, "", 4, 2, steps=6)
    assert torch.isfinite(latents).all()


def psnr(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """In dB, one a picture."""
    return -10 * torch.log10((a - b).square().mean((1, 2, 3)))
