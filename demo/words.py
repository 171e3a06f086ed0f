"""Words to numbers for the demo model: no vocabulary, no weights, the same on every machine."""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata

import torch

WIDTH = 128
MAX_WORDS = 8


def split(text: str) -> list[str]:
    """The words the model sees: lower case, accents dropped, at most eight."""
    plain = unicodedata.normalize("NFKD", text.lower())
    plain = "".join(c for c in plain if not unicodedata.combining(c))
    return re.findall(r"[a-z0-9]+", plain)[:MAX_WORDS]


def _vector(kind: str, word: str) -> torch.Tensor:
    """[WIDTH] of mean 0 and variance 1, from the bytes of SHA-256."""
    raw = b"".join(hashlib.sha256(f"{kind}|{word}|{i}".encode()).digest() for i in range(WIDTH // 32))
    return (torch.tensor(list(raw), dtype=torch.float32) - 127.5) / 73.9


def encode(text: str) -> tuple[torch.Tensor, torch.Tensor]:
    """context [1, 8, 128] and pooled [1, 128]; all zeros for an empty prompt. Word order does not count."""
    context = torch.zeros(1, MAX_WORDS, WIDTH)
    pooled = torch.zeros(1, WIDTH)
    words = split(text)
    for i, word in enumerate(words):
        context[0, i] = _vector("tok", word)
        pooled[0] += _vector("pool", word) / math.sqrt(len(words))
    return context, pooled
