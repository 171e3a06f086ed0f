"""The sampler object that stands where ComfyUI's own samplers stand."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import comfy.samplers
import numpy as np
from torch import Tensor
from tqdm.auto import tqdm

from ... import sampler_core
from ...sampler_core.errors import InputError, NonFiniteError
from ...sampler_core.noise import image_seed
from ..types import AUTO, SAMPLERS, TreeSettings
from . import compat, cost, draft, live, memory, modes, probe
from .finding import Mode
from .target import Rows, rows_of

if TYPE_CHECKING:
    from comfy.model_patcher import ModelPatcher

_log = logging.getLogger(__name__)


@dataclass
class Settings:
    """What a node asked for.

    sampler_name: one of SAMPLERS. image_numbers: the number of each image within the seed's batch, counted from 0, or
    None to count the latents. node: the name errors are signed with. node_id: the node that shows live numbers, "" for
    the one that runs the sampler. late: the report leaves the node before the sampler has run.
    """

    node: str
    sampler_name: str = "euler_ancestral"
    eta: float = 1.0
    s_noise: float = 1.0
    tree: TreeSettings = field(default_factory=TreeSettings)
    draft: ModelPatcher | None = None
    image_numbers: Sequence[int] | None = None
    node_id: str = ""
    late: bool = False


class SpeculativeSampler(comfy.samplers.KSAMPLER):
    """A KSAMPLER whose sampler function drafts and verifies.

    The host keeps noise scaling, wrappers and callbacks as for any of its samplers. report: what the last run did, as
    plain JSON values.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.report: dict[str, Any] = {"reason": "the sampler has not run yet", "late": settings.late}
        # Not a method of self: that would keep the draft model alive until the garbage collector comes by.
        super().__init__(partial(_run, settings, self.report))


def _run(
    settings: Settings,
    into: dict[str, Any],
    model: Any,
    x: Tensor,
    sigmas: Tensor,
    extra_args: dict[str, Any] | None = None,
    callback: Callable[[dict[str, Any]], None] | None = None,
    disable: bool | None = None,
) -> Tensor:
    """The sampler function the host calls; its report goes `into` a dict and, as one line, to the log."""
    with signed(settings.node), live.watching(settings.node_id, sigmas) as watch:
        latent, report, timing = speculate(settings, model, x, sigmas, extra_args or {}, callback, disable, watch)
    into.clear()
    into.update(as_json(report) | timing | {"sigmas": live.rounded(sigmas), "late": settings.late})
    if timing["call_mode"] not in (Mode.VECTOR.label, Mode.PLAIN.label):
        into["summary"] += f", {into['model_calls']} model calls {into['call_mode']} ({into['call_reason']})"
    if advice := timing.get("advice"):
        into["summary"] += f" ({advice})"
    watch.done(into)
    _log.info("[DraftTree] %s: %s", settings.node, compat.to_ascii(into["summary"]))
    return latent


def as_json(report: sampler_core.Report) -> dict[str, Any]:
    """The report as it leaves the node: the line for people, then the numbers."""
    return {"summary": report.summary(), **report.as_dict()}


def speculate(
    settings: Settings,
    model: Any,
    x: Tensor,
    sigmas: Tensor,
    extra_args: dict[str, Any],
    callback: Callable[[dict[str, Any]], None] | None,
    disable: bool | None,
    watch: live.Nobody = live.nobody,
) -> tuple[Tensor, sampler_core.Report, dict[str, Any]]:
    """The sampler function: from x [B, ...] at sigmas[0] to sigmas[-1]; also what was timed for the plan, if anything.

    model: the host's KSamplerX0Inpaint around the guider. callback: the host's, called with a dict per finished step.
    """
    guider = model.inner_model
    patcher = guider.model_patcher
    model_sampling = patcher.get_model_object("model_sampling")
    kernel = kernel_name(settings.sampler_name, model_sampling)
    scale = compat.noise_scale(model_sampling) if kernel == "flow_ancestral" else 1.0
    seed = int(extra_args.get("seed") or 0)
    numbers = settings.image_numbers
    if numbers is None or len(numbers) != len(x):
        numbers = range(len(x))

    choice = modes.choose(guider, extra_args.get("model_options", {}), sigmas, len(x))
    timing: dict[str, Any] = {"tree": AUTO} if settings.tree.widths == AUTO else {}
    rows, stock = rows_of(model, extra_args, choice, len(x)), partial(_stock_call, model, extra_args)
    seconds_key = _seconds_key(guider, choice, x)
    refusal = nothing_to_draft(settings, len(sigmas) - 1) or _declined(settings, choice)
    if not refusal and (choice.guesses or choice.unsure):
        refusal, timing["trial_calls"] = probe.tried(choice, patcher.model, rows, stock, x, sigmas)
    with ExitStack() as stack:
        bar = stack.enter_context(tqdm(total=max(len(sigmas) - 1, 0), disable=disable))
        target: Callable[..., Tensor] = stock
        tree: tuple[int, ...] | str = ()
        costs: cost.Table | None = None
        drafter: Any = "frozen"
        draft_cost = 0.0
        if not refusal:
            target = rows
            tree = settings.tree.widths
            if tree == AUTO:
                costs, calls = _costs(settings, patcher.model, guider, rows, x, sigmas, seconds_key)
                timing |= {"row_costs": [round(c, 3) for c in costs], "timing_calls": calls}
            drafter = stack.enter_context(_drafter(settings, model, sigmas, extra_args, rows))
            if callable(drafter) and costs and len(costs) > 1:
                draft_cost, calls = _draft_cost(settings, guider, rows, drafter, x, sigmas)
                timing["timing_calls"] += calls
                timing |= {"draft_cost": round(draft_cost, 3)}
                if draft_cost > cost.DEAR * costs[-1]:
                    timing["advice"] = (
                        f"a call of the draft model takes {100 * draft_cost:.0f} % of a model call on one latent; "
                        "drafting without it, by look_ahead, is likely to be faster"
                    )
        rows.usage.calls = 0
        if choice.keyframes:
            choice.keyframes.reset()
        latent, report = sampler_core.sample(
            target,
            x,
            sigmas,
            kernel=kernel,
            eta=settings.eta if settings.sampler_name == "euler_ancestral" else 1.0,
            s_noise=settings.s_noise * scale,
            tree=tree,
            rule=settings.tree.rule,
            drafter=drafter,
            seed=[image_seed(seed, number) for number in numbers],
            callback=_progress(callback, bar, watch),
            rows=settings.tree.most_rows,
            cost=costs,
            draft_cost=draft_cost,
        )
    if refusal:
        report.mode, report.reason = "plain", refusal
        report.drafter = "none"
    elif costs and not report.proposed and len(costs) > 1:
        report.mode = "plain"
        report.reason = (
            f"a call on 2 latents takes {costs[1]:.2f} times a call on one here, so drafting would lose time"
        )
    if report.mode == "plain" and report.calls > 1:
        cost.note_seconds(patcher.model, seconds_key, report.seconds / report.calls)
    if one := cost.seconds(patcher.model, seconds_key):
        timing["stock_seconds"] = round(one * report.steps, 3)
    return latent, report, timing | _calls(report, choice, rows)


def _declined(settings: Settings, choice: modes.Choice) -> str:
    """Why a graph is sampled plainly, "" if it is not."""
    if choice.mode == Mode.PLAIN:
        return choice.reason
    if settings.tree.widths == AUTO and not choice.pays:
        return (
            f"{choice.reason}: every drafted latent needs a call of its own, so drafting would lose time; "
            "widths, such as 1,1, draft all the same"
        )
    return ""


def _calls(report: sampler_core.Report, choice: modes.Choice, rows: Rows) -> dict[str, Any]:
    """How the model was called."""
    if report.mode == "plain":
        return {"call_mode": Mode.PLAIN.label, "call_reason": report.reason, "model_calls": report.calls}
    found = {"call_mode": choice.mode.label, "call_reason": choice.reason, "model_calls": rows.usage.calls}
    if rows.usage.limit is not None:
        found["memory_limit"] = rows.usage.limit
    return found


def cost_key(shape: Sequence[int], cfg: float | None) -> tuple[Any, ...]:
    """What a model's table of costs depends on: the latent batch and whether guidance doubles it."""
    return (*shape, cfg != 1.0)


def _seconds_key(guider: Any, choice: modes.Choice, x: Tensor) -> tuple[Any, ...]:
    """What the seconds of a call on one latent depend on besides: a ControlNet, say, makes it longer."""
    return ("seconds", *cost_key(x.shape, getattr(guider, "cfg", None)), choice.mode, choice.reason)


def _costs(
    settings: Settings, model: object, guider: Any, rows: Rows, x: Tensor, sigmas: Tensor, seconds_key: Hashable
) -> tuple[cost.Table, int]:
    """The table of costs that the plan needs, timed on the first run. The seconds of a single latent are noted too."""

    def call(width: int) -> None:
        started = time.perf_counter()
        _call_once(rows, x, sigmas, width)
        if width == 1:
            cost.note_seconds(model, seconds_key, time.perf_counter() - started)

    return cost.table(model, cost_key(x.shape, getattr(guider, "cfg", None)), settings.tree.most_rows, call)


def _draft_cost(
    settings: Settings, guider: Any, rows: Rows, drafter: Rows, x: Tensor, sigmas: Tensor
) -> tuple[float, int]:
    """What a call of the draft model costs beside one of the target, timed on the first run."""
    assert settings.draft is not None
    key = ("draft", *cost_key(x.shape, getattr(guider, "cfg", None)))
    calls = (partial(_call_once, model, x, sigmas) for model in (drafter, rows))
    return cost.of_draft(settings.draft.model, key, *calls)


def _call_once(rows: Rows, x: Tensor, sigmas: Tensor, width: int = 1) -> None:
    """Evaluate `width` latents of every image and wait for the result."""
    many = x.repeat(width, *[1] * (x.ndim - 1))
    images = np.tile(np.arange(len(x)), width)
    rows(many, sigmas[:1].expand(len(many)), images).flatten()[0].item()


def kernel_name(sampler_name: str, model_sampling: object) -> str:
    """The core's name of a stock sampler on this kind of model. InputError for what has no such kernel."""
    flow = compat.is_flow(model_sampling)
    if not flow and not compat.is_variance_exploding(model_sampling):
        raise InputError(
            f"model: its noise schedule {type(model_sampling).__name__} is of a kind that no kernel is known for. "
            "Use the stock KSampler for this model."
        )
    if sampler_name == "ddpm" and flow:
        raise InputError(
            "sampler_name is ddpm, which is not made for flow models such as SD3 and Flux. "
            "Use euler_ancestral or lcm with this model."
        )
    names = {"euler_ancestral": "ancestral", "lcm": "lcm", "ddpm": "ddpm"}
    if sampler_name not in names:
        raise InputError(f"sampler_name is {sampler_name!r}. Use one of: {', '.join(SAMPLERS)}.")
    return ("flow_" if flow else "") + names[sampler_name]


def _stock_call(model: Any, extra_args: dict[str, Any], x: Tensor, sigma: Tensor) -> Tensor:
    """The call of the stock samplers, mask and all."""
    denoised: Tensor = model(x, sigma, **extra_args)
    return denoised


def nothing_to_draft(settings: Settings, steps: int | None = None) -> str:
    """Why these settings leave nothing to speculate on, "" if they do not. steps: of the schedule, if known."""
    if not settings.tree.widths:
        return "the tree has one row"
    if settings.sampler_name == "euler_ancestral" and settings.eta == 0:
        return "eta is 0: without noise there is nothing to speculate on"
    if settings.s_noise == 0:
        return "s_noise is 0: without noise there is nothing to speculate on"
    if steps == 1:
        return "one step leaves nothing to draft"
    if steps == 2 and settings.draft is None:
        return "two steps leave nothing to draft: the first needs the model's answer, and none follows the second"
    return ""


@contextmanager
def _drafter(settings: Settings, model: Any, sigmas: Tensor, extra_args: dict[str, Any], target: Rows) -> Iterator[Any]:
    """The name of a drafter of the core, or the draft model as a callable."""
    guider, patcher = model.inner_model, settings.draft
    if patcher is None:
        yield settings.tree.drafter
        return
    draft.check(guider.model_patcher, patcher)
    choice = modes.foresee(patcher)
    if choice.mode != Mode.VECTOR:
        _log.warning(
            "[DraftTree] %s: the draft model is not used because of %s; drafting without it instead.",
            settings.node,
            compat.to_ascii(choice.reason),
        )
        yield settings.tree.drafter
        return
    memory.load_beside(guider.model_patcher, patcher, guider.loaded_models)
    mask, seed = extra_args.get("denoise_mask"), extra_args.get("seed")
    with draft.running(patcher, guider, model.noise, model.latent_image, mask, seed) as (predict, conds):
        choice = modes.of_draft(patcher, conds, sigmas, len(model.noise))
        yield Rows(predict, target.images, choice, target.inpaint)


def _progress(
    callback: Callable[[dict[str, Any]], None] | None, bar: Any, watch: live.Nobody
) -> Callable[[sampler_core.Progress], None]:
    """The host's callback counts the step that was just made from 0, and expects the last one to be total - 1."""

    def tell(progress: sampler_core.Progress) -> None:
        bar.update(progress.step - bar.n)
        watch(progress)
        if callback is not None:
            callback(
                {
                    "i": progress.step - 1,
                    "x": progress.x,
                    "denoised": progress.denoised,
                    "sigma": progress.sigma,
                    "sigma_hat": progress.sigma,
                }
            )

    return tell


@contextmanager
def signed(node: str) -> Iterator[None]:
    """Errors about the input name the node; they keep their type. Anything else passes as it is."""
    try:
        yield
    except (InputError, NonFiniteError) as error:
        raise type(error)(f"{node}: {error}") from error
