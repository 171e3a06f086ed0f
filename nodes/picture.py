"""The picture of a report: what the draft trees of a run did. matplotlib is imported when one is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..sampler_core.coupling.expected import expected_acceptance

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIDE = 1024  # pixels; legible where the picture is posted
DPI = 100
INK, QUIET, GRID, PAPER = "#1f2933", "#66727f", "#e4e8ec", "#ffffff"
OURS, DRAFTED, DELTA = "#d1495b", "#f3cdd2", "#30638e"
RULES = {"reflection": "#9aa5b1", "greedy": "#5b8fb9", "rass": "#edae49", "optimal": OURS}
NAMES = {"reflection": "reflection", "greedy": "greedy (D-GRS)", "rass": "RASS", "optimal": "optimal (ours)"}
FEW = 4  # candidates drawn for the rules of trees where the run had chains
BARS, GROUPS = 14, 6  # of steps that are averaged

Report = dict[str, Any]


def draw(report: Report) -> np.ndarray:
    """The picture [H, W, 3] of a finished run's report, 8 bits a channel. ImportError without matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drafted = report["mode"] != "plain" and bool(report.get("rounds"))
    height = SIDE if drafted else 300
    figure = Figure(figsize=(SIDE / DPI, height / DPI), dpi=DPI, facecolor=PAPER)
    canvas = FigureCanvasAgg(figure)
    _heading(figure, report, height)
    if drafted:
        # left, bottom, width, height in parts of the picture
        _rounds(figure.add_axes((0.085, 0.475, 0.875, 0.33)), report)
        _steps(figure.add_axes((0.085, 0.085, 0.375, 0.29)), report)
        _rules(figure.add_axes((0.615, 0.085, 0.345, 0.29)), report)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _heading(figure: Figure, report: Report, height: int) -> None:
    def line(pixels: float, text: str, **style: Any) -> None:
        figure.text(0.045, 1 - pixels / height, text, va="top", color=style.pop("color", INK), **style)

    steps, calls = report["steps"], report["calls"]
    line(34, f"{steps} steps in {calls} model calls" if calls else "Nothing to sample", fontsize=27, weight="bold")
    if calls and report["mode"] != "plain":
        figure.text(
            0.96, 1 - 30 / height, f"{report['calls_ratio']:.2f}x", ha="right", va="top", fontsize=34,
            weight="bold", color=OURS,
        )  # fmt: skip
        figure.text(0.96, 1 - 84 / height, "steps per call", ha="right", va="top", fontsize=11, color=QUIET)
    parts = [f"{report['seconds']:.1f} s"]
    if stock := report.get("stock_seconds"):
        parts.append(f"stock about {stock:.1f} s")
    if report["mode"] == "plain":
        for place, words in enumerate(_wrapped("Plain sampler: " + report["reason"], 84)[:3]):
            line(96 + 28 * place, words, fontsize=15, color=OURS)
        parts = parts if calls else []
        line(
            190,
            "   ".join([*parts, str(report.get("kernel", "")).replace("_", " ")]).strip(),
            fontsize=12.5,
            color=QUIET,
        )
    else:
        parts += [f"{report['rows']} latents judged", f"{report['accepted']} of {report['proposed']} drafts accepted"]
        line(88, "   ".join(parts), fontsize=14)
        drafts = str(report["drafter"]).replace("_", "-")
        how = [str(report["kernel"]).replace("_", " "), f"{drafts} drafts", f"rule {report['rule']}"]
        if report.get("call_mode") not in (None, "vector"):
            how.append(f"{report['model_calls']} model calls {report['call_mode']}")
        line(117, "   ".join(how), fontsize=12, color=QUIET)
    figure.text(0.96, 14 / height, "ComfyUI-DraftTree", ha="right", va="bottom", fontsize=10, color=QUIET)


def _wrapped(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width)


def _panel(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left", fontsize=14, color=INK, weight="bold", pad=10)
    axes.set_xlabel(x, fontsize=11.5, color=QUIET)
    axes.set_ylabel(y, fontsize=11.5, color=QUIET)
    axes.tick_params(labelsize=10.5, colors=QUIET, length=0)
    axes.set_axisbelow(True)
    axes.grid(color=GRID, linewidth=0.8)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(GRID)


def _rounds(axes: Axes, report: Report) -> None:
    """A bar for every call: how far its tree reached, and how many of its steps were kept."""
    from matplotlib.ticker import MaxNLocator

    rounds = np.array(report["rounds"], dtype=float)
    done, depth, width = rounds[:, 0], rounds[:, 2], rounds[:, 3]
    start = np.concatenate([[0.0], done[:-1]])
    call = np.arange(1, len(rounds) + 1)
    reach = np.minimum(start + 1 + depth, report["steps"])
    _panel(axes, "Every model call: steps drafted and steps kept", "step", "call")
    axes.barh(call, reach - start, left=start, height=0.8, color=DRAFTED, label="drafted")
    axes.barh(call, done - start, left=start, height=0.8, color=OURS, label="kept")
    if width.max() > 1 and len(call) <= 24:
        for y, x, rows in zip(call.tolist(), reach.tolist(), rounds[:, 1].astype(int).tolist(), strict=True):
            words = f"{rows} row{'s' * (rows > 1)}"
            axes.text(x + 0.01 * report["steps"], y, words, va="center", fontsize=9, color=QUIET)
    axes.plot(np.arange(1, report["steps"] + 1) - 0.5, np.arange(1, report["steps"] + 1), color=QUIET, lw=1, ls=":")
    low = 0.72 * len(rounds)
    axes.text(low - 0.5 - 0.05 * report["steps"], low, "stock: a call a step", fontsize=10, color=QUIET, ha="right")
    axes.set_xlim(0, report["steps"] * 1.0 + (0.08 * report["steps"] if width.max() > 1 else 0))
    axes.set_ylim(len(rounds) + 0.7, 0.3)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="upper right", frameon=False, fontsize=11, ncols=2, borderaxespad=0.2)


def _steps(axes: Axes, report: Report) -> None:
    """Acceptance over the steps, and their deltas."""
    step = np.arange(1, report["steps"] + 1)
    accepted, delta = (_numbers(report[name]) for name in ("acceptances", "deltas"))
    _panel(axes, "Drafts along the way", "step", "share accepted")
    for group in np.array_split(step, min(BARS, len(step))):
        if np.isfinite(accepted[group - 1]).any():
            share = np.nanmean(accepted[group - 1])
            axes.bar(group.mean(), share, width=0.86 * len(group), color=OURS)
    axes.set_ylim(0, 1.02)
    axes.set_xlim(0.3, report["steps"] + 0.7)
    twin = axes.twinx()
    twin.plot(step, np.maximum(delta, 0.01), color=DELTA, lw=1.8, marker="o", ms=3)
    twin.set_yscale("log")
    twin.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    twin.minorticks_off()
    twin.set_ylabel("delta: a draft's error, in noise", fontsize=11.5, color=DELTA)
    twin.tick_params(labelsize=10.5, colors=DELTA, length=0)
    for spine in twin.spines.values():
        spine.set_visible(False)


def _rules(axes: Axes, report: Report) -> None:
    """What the papers' rules would accept at the deltas of this run, on average and delta by delta."""
    accepted, delta = (_numbers(report[name]) for name in ("acceptances", "deltas"))
    width = max((call[3] for call in report["rounds"]), default=1)
    shown = width if width > 1 else FEW
    known = np.isfinite(delta) & np.isfinite(accepted)
    met, taken = delta[known], accepted[known]
    most = float(np.clip(1.2 * np.quantile(met, 0.9) if len(met) else 2.0, 2.0, 6.0))
    grid = np.linspace(0.02, most, 40)
    _panel(axes, "Rules at these deltas", "delta", "accepted")
    for rule, colour in RULES.items():
        own = 1 if rule == "reflection" else shown
        curve = [expected_acceptance(rule, round(float(d), 3), own) for d in grid]
        mean = np.mean([expected_acceptance(rule, round(float(d), 2), own) for d in met]) if len(met) else np.nan
        name = f"{NAMES[rule]}, {own}: {100 * mean:.0f} %"
        axes.plot(grid, curve, color=colour, lw=2.4 if rule == "optimal" else 1.8, label=name)
    order = np.argsort(met)
    groups = [g for g in np.array_split(order, min(GROUPS, len(order) or 1)) if len(g)]
    points = np.array([(met[g].mean(), taken[g].mean()) for g in groups]).reshape(-1, 2)
    points = points[points[:, 0] <= most]
    found = f": {100 * taken.mean():.0f} %" if len(taken) else ""
    label = f"this run, {width}{found}"
    axes.scatter(points[:, 0], points[:, 1], s=34, color=INK, lw=0, label=label, zorder=3, clip_on=False)
    axes.set_ylim(0, 1.02)
    axes.set_xlim(0, most)
    axes.legend(
        loc="upper right", frameon=False, fontsize=9.5, borderaxespad=0.1, labelspacing=0.25, title="rule, candidates",
        title_fontsize=9.5, alignment="left",
    )  # fmt: skip


def _numbers(values: list[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], dtype=float)
