"""The prompt encoder gives the same numbers on every machine: the shipped weights depend on them."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch


def test_known_bytes(words: ModuleType) -> None:
    """The first bytes of SHA-256 of "tok|heart|0", worked out with `printf '%s' 'tok|heart|0' | sha256sum`."""
    context, _ = words.encode("heart")
    bytes_ = (context[0, 0, :4] * 73.9 + 127.5).round().int().tolist()
    assert bytes_ == [34, 110, 21, 20]


def test_shapes_and_scale(words: ModuleType) -> None:
    context, pooled = words.encode("a red heart on the moon")
    assert context.shape == (1, 8, 128) and pooled.shape == (1, 128)
    assert context.dtype == pooled.dtype == torch.float32
    used = context[0, :6]
    assert (context[0, 6:] == 0).all()
    assert used.mean().abs() < 0.15 and 0.85 < used.std() < 1.15 and 0.7 < pooled.std() < 1.3


@pytest.mark.parametrize("text", ["", "  ", "!?", "\n"])
def test_empty_prompt_is_zero(words: ModuleType, text: str) -> None:
    context, pooled = words.encode(text)
    assert not context.any() and not pooled.any()


@pytest.mark.parametrize("same", ["Red Heart", " red,  heart!", "RED-HEART", "réd heart"])
def test_writing_does_not_count(words: ModuleType, same: str) -> None:
    for a, b in zip(words.encode("red heart"), words.encode(same), strict=True):
        assert torch.equal(a, b)


def test_order_does_not_count_for_pooled(words: ModuleType) -> None:
    torch.testing.assert_close(words.encode("red heart")[1], words.encode("heart red")[1])


def test_words_beyond_the_eighth_are_dropped(words: ModuleType) -> None:
    for a, b in zip(words.encode("a b c d e f g h"), words.encode("a b c d e f g h i j"), strict=True):
        assert torch.equal(a, b)


def test_no_global_randomness(words: ModuleType) -> None:
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    words.encode("rocket")
    assert torch.equal(before, torch.random.get_rng_state())
