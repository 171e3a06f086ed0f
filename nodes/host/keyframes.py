"""Keyframes of hooks, set by hand: the host's own only move forward, and a tree comes back to earlier steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor


class Keyframes:
    """Where the stock sampler would have every group of keyframes at each step of a schedule.

    groups: hook groups of the conds. sigmas: [N + 1].
    """

    def __init__(self, patcher: Any, groups: Iterable[Any], sigmas: Tensor) -> None:
        self._patcher = patcher
        self._hooks = [hook for group in groups for hook in group.hooks]
        frames = {id(hook.hook_keyframe): hook.hook_keyframe for hook in self._hooks}
        self._frames = [group for group in frames.values() if len(group.keyframes) > 1]
        values = sigmas[:-1].tolist()
        self._at = [dict(zip(values, _walk(group, sigmas), strict=True)) for group in self._frames]

    def __bool__(self) -> bool:
        return bool(self._frames)

    def places(self, sigmas: Tensor) -> list[tuple[int, ...]]:
        """For each of these sigmas, the keyframe of every group."""
        return [tuple(at[sigma] for at in self._at) for sigma in sigmas.tolist()]

    def set(self, sigma: Tensor) -> None:
        """Bring every group to where it is at this sigma (a scalar tensor of the schedule)."""
        moved = []
        for group, at in zip(self._frames, self._at, strict=True):
            index = at[float(sigma)]
            if group._current_keyframe is not group.keyframes[index]:
                moved.append(group)
            group._current_index = index
            group._current_keyframe = group.keyframes[index]
            group._current_strength = group.keyframes[index].strength
            group._curr_t = sigma  # the host leaves a group alone that has seen this sigma
        if moved:
            self._forget([hook for hook in self._hooks if any(hook.hook_keyframe is group for group in moved)])

    def reset(self) -> None:
        """As before a run."""
        for group in self._frames:
            group.reset()
            group._curr_t = -1.0
        self._forget(self._hooks)

    def _forget(self, hooks: list[Any]) -> None:
        """Drop weights that were patched with other strengths, as the host does when a keyframe changes."""
        patcher = self._patcher
        for cached in list(patcher.cached_hook_patches):
            if any(cached.contains(hook) for hook in hooks):
                patcher.cached_hook_patches.pop(cached)
        current = patcher.current_hooks
        if current is not None and any(current.contains(hook) for hook in hooks):
            patcher.patch_hooks(None)


def _walk(group: Any, sigmas: Tensor) -> list[int]:
    """The index of the keyframe at each step of the stock sampler, [N]."""
    group = group.clone()
    indices = []
    for sigma in sigmas[:-1]:
        group.prepare_current_keyframe(curr_t=sigma, transformer_options={"sample_sigmas": sigmas})
        indices.append(group._current_index)
    return indices
