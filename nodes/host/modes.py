"""Chooses how the rows of a round reach the model, and says why.

Most ComfyUI extras look at the first row of a call only. What is known leaves rows together as far as it is right;
what is unknown gets one call for each node, and is tried first.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from . import compat, inspection
from .finding import Finding, Mode
from .keyframes import Keyframes


@dataclass(frozen=True)
class Choice:
    """How the target is called.

    mode, reason: as in the report ("" where nothing stands in the way). whole_batches: rows must stand on a grid of
    all images. classes: with Mode.SIGMA, sigma -> the class of sigmas it may share a call with.
    guesses: unknown things that must be tried before they are relied on. unsure: known things in a release of ComfyUI
    where they may have changed, tried in another way. keyframes: of hooks, set before each call.
    """

    mode: Mode = Mode.VECTOR
    reason: str = ""
    whole_batches: bool = False
    classes: Mapping[float, int] | None = None
    guesses: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()
    keyframes: Keyframes | None = None

    @property
    def pays(self) -> bool:
        """Whether calls can be saved: where every node needs one of its own, every step still costs one."""
        return self.mode <= Mode.SIGMA


def choose(guider: Any, model_options: Mapping[str, Any], sigmas: Tensor, images: int) -> Choice:
    """Look at a guider that is about to sample: its model, options and processed conds.

    sigmas: [N + 1], the schedule. images: B.
    """
    conds = [cond for group in guider.conds.values() for cond in group or ()]
    findings = list(inspection.graph(guider, model_options))
    keyframes = Keyframes(guider.model_patcher, inspection.hook_groups(conds), sigmas)
    return _choose(findings, conds, sigmas, images, keyframes)


def of_draft(model: Any, conds: Mapping[str, Any], sigmas: Tensor, images: int) -> Choice:
    """The same for a draft model with conds of its own (processed, by name)."""
    flat = [cond for group in conds.values() for cond in group or ()]
    findings = [*inspection.model(model), *inspection.options(model.model_options), *inspection.conditioning(flat)]
    return _choose(findings, flat, sigmas, images, None)


def foresee(patcher: Any, conds: Sequence[Mapping[str, Any]] = ()) -> Choice:
    """As far as a model shows it before sampling; conds as they come from a node."""
    findings = [*inspection.model(patcher), *inspection.options(patcher.model_options)]
    for kind in ("wrapper", "callback"):
        findings += inspection.wrappers(kind, vars(patcher).get(f"{kind}s", {}))
    findings += inspection.conditioning(conds)
    mode = max((finding.mode for finding in findings), default=Mode.VECTOR)
    return Choice(mode, _reason(findings, mode))


def _choose(
    findings: list[Finding],
    conds: Sequence[Mapping[str, Any]],
    sigmas: Tensor,
    images: int,
    keyframes: Keyframes | None,
) -> Choice:
    found = list(findings)
    batches = set(inspection.batches(conds))
    if None in batches:
        found.append(Finding("conditioning of an unknown kind", Mode.NODE, guess=True))
    for uneven in sorted(n for n in batches if n is not None and images % n):
        what = f"a conditioning batch of {uneven} for {images} image{'s' * (images > 1)}"
        found.append(Finding(what, Mode.NODE))
    if images > 1 and (mixing := [finding for finding in found if finding.mixes]):
        found.append(Finding(f"{_names(mixing)} mixes the images of a batch", Mode.PLAIN))
    mode = max((finding.mode for finding in found), default=Mode.VECTOR)
    classes = None
    if mode == Mode.VECTOR and (splits := _splits(found, sigmas[:-1].cpu(), keyframes)):
        mode, classes = Mode.SIGMA, _classes(sigmas, [flags for _, flags in splits])
        found += [Finding(what, Mode.SIGMA) for what, _ in splits]
    return Choice(
        mode,
        _reason(found, mode),
        whole_batches=images > 1 and (mode == Mode.NODE or any(n != 1 for n in batches)),
        classes=classes,
        guesses=tuple(dict.fromkeys(finding.what for finding in found if finding.guess)),
        unsure=() if compat.is_checked() or mode > Mode.SIGMA else tuple(sorted({finding.what for finding in found})),
        keyframes=keyframes or None,
    )


def _splits(
    findings: Iterable[Finding], steps: Tensor, keyframes: Keyframes | None
) -> list[tuple[str, Sequence[Hashable]]]:
    """What changes along the schedule, and its state at each step."""
    states: list[tuple[str, Sequence[Hashable]]] = [(f.what, f.active(steps)) for f in findings if f.active]
    if keyframes:
        states.append(("hooks with keyframes", keyframes.places(steps)))
    return [(what, state) for what, state in states if len(set(state)) > 1]


def _classes(sigmas: Tensor, states: Sequence[Sequence[Hashable]]) -> dict[float, int]:
    """sigma -> the number of its combination of states."""
    known: dict[Hashable, int] = {}
    keys = zip(*states, strict=True)
    return {s: known.setdefault(key, len(known)) for s, key in zip(sigmas[:-1].tolist(), keys, strict=True)}


def _reason(findings: Iterable[Finding], mode: Mode) -> str:
    return _names(finding for finding in findings if finding.mode == mode) if mode else ""


def _names(findings: Iterable[Finding]) -> str:
    return "; ".join(dict.fromkeys(finding.what for finding in findings))
