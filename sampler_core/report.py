"""What happened in a run, counted as in the papers and in rows and seconds besides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Report:
    """Counts of one run.

    steps: steps of the schedule. images: images of the batch. calls: batched evaluations of the target. rows: latents
    it evaluated. draft_calls, draft_rows: the same of a draft model. proposed: transitions for which candidates came
    before the rule; accepted: those where one was taken. deltas, acceptances: [steps] means over the verified
    transitions of a step, None where there was none. mode: "tree" or "plain", with the reason. seconds: wall clock.
    draft_faults: guesses of a draft model that were not finite. rounds: for every call that judged drafts or came
    between such calls, (steps the slowest image has finished after it, rows, depth and width of its tree); none of a
    plain run.
    """

    steps: int
    images: int = 1
    kernel: str = ""
    rule: str = ""
    tree: tuple[int, ...] = ()
    drafter: str = ""
    mode: str = "tree"
    reason: str = ""
    calls: int = 0
    rows: int = 0
    draft_calls: int = 0
    draft_rows: int = 0
    draft_faults: int = 0
    seconds: float = 0.0
    rounds: list[tuple[int, int, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._counts = np.zeros((3, self.steps))
        self._uncounted: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    @property
    def proposed(self) -> int:
        return int(self._sums()[0].sum())

    @property
    def accepted(self) -> int:
        return int(self._sums()[1].sum())

    @property
    def deltas(self) -> list[float | None]:
        return self._means(2)

    @property
    def acceptances(self) -> list[float | None]:
        return self._means(1)

    @property
    def calls_ratio(self) -> float:
        """Steps per call."""
        return self.steps / self.calls if self.calls else 1.0

    @property
    def rows_ratio(self) -> float:
        """Rows per step and image; the plain sampler has 1."""
        return self.rows / (self.steps * self.images) if self.rows else 1.0

    def add(self, steps: np.ndarray, deltas: np.ndarray, accepted: np.ndarray) -> None:
        """Count verified transitions: their steps, deltas and whether a candidate was taken, all [n]."""
        self._uncounted.append((steps, accepted, deltas))

    def _sums(self) -> np.ndarray:
        """Transitions, those accepted and sums of deltas of every step: [3, steps]. Summed when somebody asks."""
        if self._uncounted:
            steps, *values = (np.concatenate(parts) for parts in zip(*self._uncounted, strict=True))
            for sums, value in zip(self._counts, (None, *values), strict=True):
                sums += np.bincount(steps, value, self.steps)
            self._uncounted.clear()
        return self._counts

    def _means(self, which: int) -> list[float | None]:
        sums = self._sums()
        return [float(total / n) if n else None for total, n in zip(sums[which], sums[0], strict=True)]

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, strings and lists: safe for JSON."""
        names = (
            "steps images kernel rule drafter mode reason calls rows draft_calls draft_rows draft_faults "
            "proposed accepted calls_ratio rows_ratio seconds deltas acceptances"
        )
        values = {name: getattr(self, name) for name in names.split()}
        return {**values, "tree": list(self.tree), "rounds": [list(call) for call in self.rounds]}

    def summary(self) -> str:
        """One line for a log or a node."""
        if not self.calls:
            return f"nothing to sample: {self.reason or 'no steps'}"
        took = f"{self.steps} steps in {self.calls} calls"
        if self.mode == "plain":
            return f"{took}, plain sampler ({self.reason}), {self.seconds:.2f} s"
        share = f"{self.accepted}/{self.proposed} accepted"
        return (
            f"{took} ({self.calls_ratio:.2f}x), {self.rows} rows ({self.rows_ratio:.1f} a step), {share}, "
            f"{self.seconds:.2f} s"
        )
