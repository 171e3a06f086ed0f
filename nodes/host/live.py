"""Live numbers of a running sampler, for the panel of the browser that queued the prompt.

A sampler that runs without a server, or for a client that has no open page, gets `nobody`, which does nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from ...sampler_core.engine import Progress

EVENT = "drafttree.stats"
PAUSE = 0.1  # seconds between two messages
POINTS = 64  # of the chart at most
WORDS = 300  # letters of an error; all of them are in the host's own window

Send = Callable[[dict[str, Any]], None]


class Nobody:
    """Tells nothing to nobody."""

    def __call__(self, progress: Progress) -> None:
        """After a round of the engine."""

    def done(self, report: dict[str, Any]) -> None:
        """With the report that leaves the node."""

    def stopped(self, state: str, words: str) -> None:
        """Where there is no report: state is "cancelled" or "failed"."""


nobody = Nobody()


class Watch(Nobody):
    """Sends how a run stands: a first message, at most one every PAUSE seconds, and always a last one.

    send(payload): hands plain JSON values to the page. head: what every message begins with. sigmas: [N + 1].
    """

    def __init__(
        self, send: Send, head: dict[str, Any], sigmas: Sequence[float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._send, self._head, self._sigmas, self._clock = send, head, sigmas, clock
        self._next = 0.0
        self._last: dict[str, Any] = {"step": 0, "steps": max(len(sigmas) - 1, 0), "calls": 0}
        self._tell("running")

    def __call__(self, progress: Progress) -> None:
        report = progress.report
        counts = {"step": progress.step, "steps": progress.total, "calls": report.calls, "seconds": report.seconds}
        self._last = counts
        if self._clock() < self._next:
            return
        more = {name: getattr(report, name) for name in ("rows", "images", "accepted", "proposed")}
        self._tell("running", **more, points=chart(self._sigmas, report.acceptances))

    def done(self, report: dict[str, Any]) -> None:
        self._tell("done", report=dict(report))

    def stopped(self, state: str, words: str) -> None:
        self._tell(state, words=words[:WORDS])

    def _tell(self, state: str, **more: Any) -> None:
        self._next = self._clock() + PAUSE
        self._send({**self._head, "state": state, **self._last, **more})


def chart(sigmas: Sequence[float], acceptances: Sequence[float | None]) -> list[list[float | None]]:
    """At most POINTS pairs of a sigma and the mean acceptance from there on, None where nothing was verified."""
    width = -(-len(acceptances) // POINTS) or 1
    points: list[list[float | None]] = []
    for start in range(0, len(acceptances), width):
        known = [a for a in acceptances[start : start + width] if a is not None]
        points.append([sigmas[start], round(sum(known) / len(known), 3) if known else None])
    return points


def rounded(sigmas: Tensor) -> list[float]:
    """The sigmas with five digits, as a report carries them."""
    return [float(f"{sigma:.5g}") for sigma in sigmas.tolist()]


@contextmanager
def watching(node: str, sigmas: Tensor) -> Iterator[Nobody]:
    """Whoever watches the prompt that runs now; hears of errors and cancelling too.

    node: the id of the node that shows the numbers, "" for the one that runs.
    """
    watch = _watch(node, sigmas)
    try:
        yield watch
    except Exception as error:
        if type(error).__name__ == "InterruptProcessingException":
            watch.stopped("cancelled", "")
        else:
            watch.stopped("failed", f"{type(error).__name__}: {error}")
        raise
    except BaseException:  # newer hosts raise their interrupt as one
        watch.stopped("cancelled", "")
        raise


def _watch(node: str, sigmas: Tensor) -> Nobody:
    server = getattr(getattr(sys.modules.get("server"), "PromptServer", None), "instance", None)
    client = getattr(server, "client_id", None)
    if server is None or client is None:
        return nobody
    prompt, running = _executing()
    if not (node or running):
        return nobody
    head = {"node": node or running, "prompt_id": prompt, "workflow": _workflow(server, prompt)}
    return Watch(lambda payload: server.send_sync(EVENT, payload, client), head, rounded(sigmas))


def _executing() -> tuple[str, str]:
    """The ids of the prompt and of the node that run now; a node in a subgraph is called "1:2:3"."""
    from comfy_execution.utils import get_executing_context

    context = get_executing_context()
    return (str(context.prompt_id), str(context.node_id)) if context else ("", "")


def _workflow(server: Any, prompt: str) -> str:
    """The id of the workflow that the prompt was made from, "" if it came without one.

    Two open workflows may both have a node 6: the page must know which one is meant.
    """
    running = getattr(getattr(server, "prompt_queue", None), "currently_running", {})
    for item in list(running.values()):
        if len(item) > 3 and item[1] == prompt and isinstance(item[3], dict):
            info = item[3].get("extra_pnginfo") or {}
            workflow = info.get("workflow") if isinstance(info, dict) else None
            return str((workflow or {}).get("id") or "")
    return ""
