"""Live messages: who gets them, how many, and what they say however the run ends."""

from __future__ import annotations

import importlib
import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import tiny_models
import torch


@pytest.fixture
def live(ours: Any, pack: ModuleType) -> ModuleType:
    return importlib.import_module(f"{pack.__name__}.nodes.host.live")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any], str]]:
    """A server with one open page, which runs node 1:6 of prompt p of workflow w; what it was sent."""
    from comfy_execution.utils import CurrentNodeContext

    messages: list[tuple[str, dict[str, Any], str]] = []
    extra = {"extra_pnginfo": {"workflow": {"id": "w"}}}
    queue = SimpleNamespace(currently_running={3: (0, "p", {}, extra, [])})
    server = SimpleNamespace(client_id="page", prompt_queue=queue, send_sync=lambda *message: messages.append(message))
    monkeypatch.setitem(
        sys.modules, "server", SimpleNamespace(PromptServer=SimpleNamespace(instance=server), instance=server)
    )
    with CurrentNodeContext("p", "1:6"):
        yield messages


def run(render: Any, **given: Any) -> dict[str, Any]:
    latent = {"samples": tiny_models.latent("flow", seed=7)}
    prompts = tiny_models.conditioning(1), tiny_models.conditioning(2)
    return render(tiny_models.flow(), latent, *prompts, **{"widths": (1, 1), **given})[1]


def test_a_run_is_told_from_first_to_last(render: Any, sent: list[Any], live: ModuleType) -> None:
    live.PAUSE, pause = 0.0, live.PAUSE
    try:
        report = run(render)
    finally:
        live.PAUSE = pause
    assert {(event, client) for event, _, client in sent} == {("drafttree.stats", "page")}
    payloads = [payload for _, payload, _ in sent]
    assert all((p["node"], p["prompt_id"], p["workflow"]) == ("1:6", "p", "w") for p in payloads)
    assert [p["state"] for p in payloads] == ["running"] * (len(payloads) - 1) + ["done"]
    steps = [p["step"] for p in payloads]
    assert steps[0] == 0 and steps == sorted(steps) and steps[-1] == 6 and {p["steps"] for p in payloads} == {6}
    last = payloads[-1]["report"]
    assert last == report and len(last["sigmas"]) == 7
    before = payloads[-2]
    assert (before["calls"], before["rows"]) == (report["calls"], report["rows"])
    assert (before["accepted"], before["proposed"]) == (report["accepted"], report["proposed"])
    assert [share for _, share in before["points"]] == pytest.approx(report["acceptances"], abs=1e-3)
    json.dumps(payloads, allow_nan=False)


def test_at_most_ten_a_second(live: ModuleType, sent: list[Any]) -> None:
    """In 1000 rounds of a millisecond, and a last one all the same."""
    now = [0.0]
    payloads: list[Any] = []
    watch = live.Watch(payloads.append, {"node": "6"}, [1.0] * 1001, clock=lambda: now[0])
    report = SimpleNamespace(calls=1, rows=5, images=1, accepted=1, proposed=2, seconds=1.0, acceptances=[None] * 1000)
    for step in range(1000):
        now[0] += 0.001
        watch(SimpleNamespace(step=step + 1, total=1000, report=report))
    assert 9 <= len(payloads) <= 11
    watch.stopped("cancelled", "")
    assert payloads[-1]["step"] == 1000 and payloads[-1]["state"] == "cancelled"


@pytest.mark.parametrize("missing", ["server", "page", "prompt"])
def test_nobody_is_told_where_nobody_looks(
    live: ModuleType, sent: list[Any], monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    from comfy_execution.utils import current_executing_context

    if missing == "server":
        monkeypatch.delitem(sys.modules, "server")
    elif missing == "page":
        monkeypatch.setattr(sys.modules["server"].instance, "client_id", None)
    else:
        token = current_executing_context.set(None)
    with live.watching("", torch.ones(3)) as watch:
        assert watch is live.nobody
        watch.done({})
    if missing == "prompt":
        current_executing_context.reset(token)
    assert sent == []


def test_the_node_may_be_another_one_than_runs(live: ModuleType, sent: list[Any]) -> None:
    """A sampler object is sampled by SamplerCustomAdvanced, and shown on the node that made it."""
    with live.watching("1:4", torch.ones(3)):
        pass
    assert sent[0][1]["node"] == "1:4" and sent[0][1]["steps"] == 2


def test_cancelling_and_errors_are_told_and_raised(live: ModuleType, sent: list[Any]) -> None:
    import comfy.model_management as manager

    cases = [
        (manager.InterruptProcessingException(), "cancelled", ""),
        (KeyboardInterrupt(), "cancelled", ""),
        (RuntimeError("no room" * 100), "failed", ("RuntimeError: " + "no room" * 100)[: live.WORDS]),
    ]
    for error, state, words in cases:
        sent.clear()
        with pytest.raises(type(error)), live.watching("", torch.ones(3)):
            raise error
        assert (sent[-1][1]["state"], sent[-1][1]["words"]) == (state, words)


def test_a_prompt_without_a_workflow(live: ModuleType, sent: list[Any]) -> None:
    queue = sys.modules["server"].instance.prompt_queue
    for extra in ({}, {"extra_pnginfo": None}, {"extra_pnginfo": {"workflow": None}}, {"extra_pnginfo": "?"}):
        sent.clear()
        queue.currently_running = {3: (0, "p", {}, extra, [])}
        with live.watching("", torch.ones(3)):
            pass
        assert sent[0][1]["workflow"] == ""


def test_the_chart_gathers_long_schedules(live: ModuleType) -> None:
    points = live.chart([float(n) for n in range(1001, 0, -1)], [None if n % 2 else 1.0 for n in range(1000)])
    assert len(points) <= live.POINTS and {share for _, share in points} == {1.0}
    sigmas = [sigma for sigma, _ in points]
    assert sigmas == sorted(sigmas, reverse=True) and sigmas[0] == 1001
    assert live.chart([1.0, 0.0], []) == [] and live.chart([1.0, 0.5, 0.0], [None, 0.25]) == [[1.0, None], [0.5, 0.25]]


def test_stock_seconds_are_measured_or_absent(render: Any) -> None:
    """With fixed widths nothing was timed; after a plain run of the same model and size it is known."""
    model = tiny_models.flow()
    latent = {"samples": tiny_models.latent("flow", seed=7)}
    prompts = tiny_models.conditioning(1), tiny_models.conditioning(2)
    assert "stock_seconds" not in render(model, latent, *prompts, widths=(1, 1))[1]
    plain = render(model, latent, *prompts, widths=())[1]
    known = render(model, latent, *prompts, widths=(1, 1), steps=12)[1]["stock_seconds"]
    assert known == pytest.approx(2 * plain["seconds"], abs=0.002)
    assert "stock_seconds" not in render(model, latent, *prompts, widths=(1, 1), cfg=1.0)[1]


def test_a_timed_call_is_known_too(render: Any) -> None:
    report = render(tiny_models.flow(), {"samples": tiny_models.latent("flow", seed=7)},
                    tiny_models.conditioning(1), tiny_models.conditioning(2), widths="auto")[1]  # fmt: skip
    assert 0 < report["stock_seconds"] < 60 and report["timing_calls"] > 0
