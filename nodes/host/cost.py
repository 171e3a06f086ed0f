"""What a call on several latents costs beside a call on one: timed once for each model and size of latent.

The plan may follow it without touching the law: it knows nothing of any noise. It is timed once, not from run to run,
so that a seed gives the same picture again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from weakref import WeakKeyDictionary

Table = tuple[float, ...]
"""[w - 1]: the time of a call on w latents of every image, in units of a call on one."""

# A cache, as of a function of the model's weights: gone with the model.
_known: WeakKeyDictionary[object, dict[Hashable, Table]] = WeakKeyDictionary()

QUICK = 0.1  # seconds: shorter calls are timed several times
BEST = 0.9  # of its drafts that a plan may hope to keep
CHEAP = 1.5  # a second latent for less than half a call: worth timing a full call too
DEAR = 0.02  # of a full call: a draft model that costs more seldom saves as much as look-ahead drafts do for nothing


def known(model: object, key: Hashable) -> Table | None:
    """The table of a model, from an earlier run."""
    return _known.get(model, {}).get(key)


def table(model: object, key: Hashable, rows: int, call: Callable[[int], None]) -> tuple[Table, int]:
    """The table for up to `rows` latents, and how many calls were made to find it (0 where it was known).

    call(w): evaluates w latents of every image and waits for the result.
    """
    if (found := known(model, key)) is not None and len(found) >= rows:
        return found[:rows], 0
    if rows == 1:
        return (1.0,), 0
    watch = _Watch()
    warm = watch(lambda: call(1), 1)
    repeat = 3 if warm < QUICK else 1
    one = watch(lambda: call(1), repeat)
    points = {1: 1.0, 2: watch(lambda: call(2), repeat) / one}
    if points[2] < CHEAP and rows > 2:
        points[rows] = watch(lambda: call(rows), repeat) / one
    found = interpolate(points, rows)
    _known.setdefault(model, {})[key] = found
    return found, watch.made


def seconds(model: object, key: Hashable) -> float | None:
    """The seconds of a call on one latent of every image, None where none was timed."""
    found = known(model, key)
    return found[0] if found else None


def note_seconds(model: object, key: Hashable, measured: float) -> None:
    """Remember them; of several, the least: the first calls of a model also load and compile."""
    before = seconds(model, key)
    _known.setdefault(model, {})[key] = (measured if before is None else min(measured, before),)


def of_draft(model: object, key: Hashable, draft: Callable[[], None], target: Callable[[], None]) -> tuple[float, int]:
    """What a call of a draft model costs, in units of the target's, and how many calls were made to find it.

    draft(), target(): each evaluates one latent of every image and waits for the result. model: the draft's.
    """
    if (found := known(model, key)) is not None:
        return found[0], 0
    watch = _Watch()
    warm = watch(target, 1) + watch(draft, 1)
    repeat = 3 if warm < QUICK else 1
    share = watch(draft, repeat) / watch(target, repeat)
    _known.setdefault(model, {})[key] = (share,)
    return share, watch.made


class _Watch:
    """Times calls; made: how many."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, call: Callable[[], None], repeat: int) -> float:
        best = float("inf")
        for _ in range(repeat):
            start = time.perf_counter()
            call()
            best = min(best, time.perf_counter() - start)
        self.made += repeat
        return best


def may_pay(costs: Table) -> bool:
    """Whether any number of latents could pay: a call on w of them finishes w steps at the very best."""
    return any(costs[w - 1] < w * BEST for w in range(2, len(costs) + 1))


def interpolate(points: dict[int, float], rows: int) -> Table:
    """Linear between and beyond the measured points, never falling."""
    widths = sorted(points)
    out: list[float] = []
    for w in range(1, rows + 1):
        right = next((i for i in range(1, len(widths)) if widths[i] >= w), len(widths) - 1)
        a, b = widths[right - 1], widths[right]
        value = points[a] + (points[b] - points[a]) * (w - a) / (b - a)
        out.append(max(value, out[-1] if out else 1.0))
    return tuple(out)
