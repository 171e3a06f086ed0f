"""Render the demo workflow in a real ComfyUI on the CPU, beside its one-row and its stock version, and compare.

Run by scripts/demo.sh. The three graphs differ only in the sampler: the workflow as it is shared; the same node with an
empty tree (one row, nothing drafted); the stock KSampler with the same seed and settings. They run in turn, so that
their seconds are paired; the first round warms up and is not counted.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import pathlib
import shutil
import signal
import statistics
import sys
import textwrap
import time
from types import FrameType
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from host_server import ROOT, HostError, HostServer, Prompt, Result, has_seed_fault

OURS, STOCK, CONFIGURE, WORDS = "DraftTreeKSampler", "KSampler", "DraftTreeConfigure", "DraftTreeDemoPrompt"
TREE = {"widths": "auto", "rule": "optimal", "drafter": "look_ahead", "rows": 8}  # the node's defaults
BUDGET = 20.0  # seconds of rendering
VARIANTS = {"drafttree": "draft tree", "plain": "plain, one row", "stock": "stock KSampler"}
STOCK_INPUTS = (
    *("model", "seed", "steps", "cfg", "sampler_name", "scheduler"),
    *("positive", "negative", "latent_image", "denoise"),
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="demo.sh", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--prompt", help="words for the picture (default: the workflow's)")
    parser.add_argument("--seed", type=int, help="seed of the picture (default: the workflow's)")
    parser.add_argument("--tree", help="widths by depth, such as 1,1,1, or auto (default: the workflow's)")
    parser.add_argument("--rule", help="coupling rule, such as optimal or greedy (default: the workflow's)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "output" / "drafttree_demo.png", metavar="FILE.png")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="also write the numbers as JSON")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="timed rounds at most (default: 3)")
    parser.add_argument(
        "--workflow", type=pathlib.Path, default=ROOT / "example_workflows" / "drafttree_demo.json", metavar="FILE"
    )
    given = parser.parse_args()
    if given.repeats < 1:
        parser.error(f"argument --repeats: {given.repeats} is too few, 1 or more")
    if given.seed is not None and not 0 <= given.seed < 2**64:
        parser.error(f"argument --seed: {given.seed} is not between 0 and 18446744073709551615")
    if given.out.suffix.lower() != ".png":
        parser.error(f"argument --out: {given.out} does not end in .png")
    return given


# The three graphs


def find(prompt: Prompt, kind: str) -> str:
    """The id of the one node of a kind."""
    found = [node for node, entry in prompt.items() if entry["class_type"] == kind]
    if len(found) != 1:
        raise SystemExit(f"demo: the workflow has {len(found)} nodes {kind}, the demo needs exactly one")
    return found[0]


def with_settings(prompt: Prompt, words: str | None, seed: int | None, tree: str | None, rule: str | None) -> Prompt:
    """The workflow's prompt with the given settings in place of its own."""
    prompt = copy.deepcopy(prompt)
    inputs = prompt[find(prompt, OURS)]["inputs"]
    if seed is not None:
        inputs["seed"] = seed
    if words is not None:
        source = prompt[inputs["positive"][0]]
        if source["class_type"] != WORDS:
            raise SystemExit(f"demo: --prompt needs a {WORDS} at the sampler's positive input")
        source["inputs"]["text"] = words
    if tree is not None or rule is not None:
        configure = configure_node(prompt)
        if tree is not None:
            configure["inputs"]["widths"] = tree
        if rule is not None:
            configure["inputs"]["rule"] = rule
    return prompt


def configure_node(prompt: Prompt) -> dict[str, Any]:
    """The Configure Draft Tree at the sampler, added where the workflow leaves it out."""
    inputs = prompt[find(prompt, OURS)]["inputs"]
    if "tree" not in inputs:
        prompt["draft-tree"] = {"class_type": CONFIGURE, "inputs": dict(TREE)}
        inputs["tree"] = ["draft-tree", 0]
    entry: dict[str, Any] = prompt[inputs["tree"][0]]
    return entry


def plain(prompt: Prompt) -> Prompt:
    """Our node with nothing drafted."""
    prompt = copy.deepcopy(prompt)
    configure_node(prompt)["inputs"]["widths"] = ""
    return prompt


def stock(prompt: Prompt) -> Prompt:
    """The stock KSampler in our node's place, without the nodes that only our node can feed."""
    prompt = copy.deepcopy(prompt)
    sampler = find(prompt, OURS)
    inputs = prompt[sampler]["inputs"]
    prompt[sampler] = {"class_type": STOCK, "inputs": {name: inputs[name] for name in STOCK_INPUTS}}
    gone = {node for node, entry in prompt.items() if entry["class_type"] == CONFIGURE}
    while True:  # whatever reads the report, or reads a reader of it
        readers = {
            node
            for node, entry in prompt.items()
            for value in entry["inputs"].values()
            if isinstance(value, list) and len(value) == 2 and (value[0] in gone or (value[0] == sampler and value[1]))
        }
        if readers <= gone:
            return {node: entry for node, entry in prompt.items() if node not in gone}
        gone |= readers


# Running them


class Live:
    """One line that says where things stand; a line per stage where no terminal is."""

    def __init__(self) -> None:
        self.live = sys.stderr.isatty()

    def stage(self, text: str) -> None:
        self.text = text
        if not self.live:
            print(text, file=sys.stderr, flush=True)
        self.show("")

    def event(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "progress" and data["max"] > 1:
            done = 24 * data["value"] // data["max"]
            self.show(f"[{'#' * done}{'.' * (24 - done)}] {data['value']}/{data['max']}")

    def show(self, more: str) -> None:
        if self.live:
            print(f"\r\033[K{self.text}  {more}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self.live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def pictures_of(server: HostServer, result: Result) -> pathlib.Path:
    """The first picture that the prompt saved."""
    entries = [entry for output in result.outputs.values() for entry in output.get("images", [])]
    saved = [entry for entry in entries if entry.get("type") == "output"] or entries
    if not saved:
        raise SystemExit("demo: the workflow saved no picture")
    return server.picture(saved[0])


def render(server: HostServer, graphs: dict[str, Prompt], sampler: str, repeats: int, live: Live) -> dict[str, Any]:
    """Every graph `repeats` times in turn, after one round to warm up; seconds of the sampler node alone.

    At least one round is timed; no further one starts once BUDGET is spent, on a slow or busy machine.
    """
    seconds: dict[str, list[float]] = {name: [] for name in graphs}
    results: dict[str, Result] = {}
    begun = time.monotonic()
    for turn in range(repeats + 1):
        if turn > 1 and time.monotonic() - begun > BUDGET:
            break
        for name, graph in graphs.items():
            count = f"round {turn} of {repeats}" if turn else "warming up"
            live.stage(f"rendering: {VARIANTS[name]}, {count}")
            results[name] = server.run(graph, live.event)
            if turn:
                seconds[name].append(results[name].seconds[sampler])
    return {
        name: {
            "picture": pictures_of(server, result),
            "seconds": statistics.median(seconds[name]),
            "rounds": len(seconds[name]),
            "report": (result.outputs.get(sampler, {}).get("drafttree_report") or [None])[0],
        }
        for name, result in results.items()
    }


# Telling


def side_by_side(pictures: dict[str, pathlib.Path], captions: dict[str, str], file: pathlib.Path) -> None:
    """The pictures in a row, each under its caption."""
    images = {name: Image.open(picture).convert("RGB") for name, picture in pictures.items()}
    width, height = next(iter(images.values())).size
    width, height, strip, gap = max(width, 192), max(height, 192) if height < 192 else height, 26, 8
    sheet = Image.new("RGB", (len(images) * (width + gap) - gap, height + strip), "gainsboro")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=13)
    for place, (name, image) in enumerate(images.items()):
        left = place * (width + gap)
        sheet.paste(image.resize((width, height), Image.Resampling.LANCZOS), (left, strip))
        draw.text((left + width / 2, strip / 2), captions[name], fill="black", font=font, anchor="mm")
    sheet.save(file)


def table(columns: dict[str, dict[str, Any]]) -> str:
    """The columns by name, each a dict of the rows."""
    rows = list(next(iter(columns.values())))
    lines = [["", *(VARIANTS[name] for name in columns)]]
    lines += [[row, *(str(columns[name][row]) for name in columns)] for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    return "\n".join([text[0], "-" * len(text[0]), *text[1:]])


def column(report: dict[str, Any] | None, steps: int, seconds: float) -> dict[str, Any]:
    if report is None:  # the stock sampler reports nothing; it calls once per step
        report = {"steps": steps, "calls": steps, "rows": steps, "accepted": 0, "proposed": 0}
    return {
        "steps": report["steps"],
        "model calls": report["calls"],
        "calls per step": f"{report['calls'] / report['steps']:.2f}",
        "rows (latents evaluated)": report["rows"],
        "rows per step": f"{report['rows'] / report['steps']:.2f}",
        "drafts accepted / proposed": f"{report['accepted']} / {report['proposed']}" if report["proposed"] else "-",
        "seconds in the sampler": f"{seconds:.2f}",
    }


def notes(ratio: float, version: str, fault: bool) -> str:
    """What the numbers do not say by themselves."""
    if ratio > 1:
        said = [
            f"Calls saved are not seconds saved here: the draft tree took {ratio:.1f} times the stock sampler's"
            " seconds. On a CPU, or a GPU that one picture already fills, a call costs in proportion to its rows;"
            " fewer calls save time only where several rows cost about as much as one."
        ]
    else:
        said = [
            f"The draft tree took {ratio:.2f} times the stock sampler's seconds on this machine, less than its rows"
            " suggest: a call on several rows costs less than as many calls. Where one picture already fills the"
            " device, as SD3.5 at 1024 x 1024 fills most GPUs, calls saved are not seconds saved."
        ]
    if fault:
        said.append(
            f"The stock picture carries a fault of ComfyUI {version} on the CPU: it seeds the first step's noise like"
            " the initial noise, so the two are equal and the picture is not the one it should be. Newer releases"
            " repair this; the plain picture is what the stock sampler gives without the fault."
        )
    return "\n".join(textwrap.fill(text, 100, initial_indent="* ", subsequent_indent="  ") for text in said)


def keep(runs: dict[str, dict[str, Any]], steps: int, out: pathlib.Path) -> dict[str, pathlib.Path]:
    """Copy the pictures out of the server's folder, and draw them side by side: variant or "comparison" -> file."""
    out.parent.mkdir(parents=True, exist_ok=True)
    files = {"drafttree": out}
    files |= {name: out.with_stem(f"{out.stem}_{name}") for name in ("plain", "stock")}
    for name, file in files.items():
        shutil.copyfile(runs[name]["picture"], file)
    captions = {
        name: f"{VARIANTS[name]}: {run['report']['calls'] if run['report'] else steps} calls"
        for name, run in runs.items()
    }
    sheet = out.with_stem(f"{out.stem}_comparison")
    side_by_side(files, captions, sheet)
    return files | {"comparison": sheet}


def demo(given: argparse.Namespace) -> None:
    started = time.monotonic()
    workflow = json.loads(given.workflow.read_text(encoding="utf-8"))
    comfyui = pathlib.Path(os.environ["COMFYUI_DIR"])
    live = Live()
    live.stage("starting ComfyUI on the CPU")
    with HostServer(comfyui) as server:
        shared = with_settings(server.to_api(workflow), given.prompt, given.seed, given.tree, given.rule)
        sampler = find(shared, OURS)
        inputs = shared[sampler]["inputs"]
        graphs = {"drafttree": shared, "plain": plain(shared), "stock": stock(shared)}
        runs = render(server, graphs, sampler, given.repeats, live)
        live.clear()
        files = keep(runs, inputs["steps"], given.out.absolute())
        version = server.version()

    words = shared[inputs["positive"][0]]["inputs"].get("text")
    report = runs["drafttree"]["report"]
    fault = inputs["sampler_name"].startswith("euler_ancestral") and has_seed_fault(comfyui)
    print(f'"{words}", seed {inputs["seed"]}, {inputs["sampler_name"]}, {inputs["steps"]} steps, cfg {inputs["cfg"]:g}')
    tree = report["tree"] if isinstance(report["tree"], str) else ",".join(map(str, report["tree"]))
    print(f"tree {tree}, rule {report['rule']}, drafts: {report['drafter']}")
    print(f"ComfyUI {version} on the CPU; seconds: median of {runs['stock']['rounds']} warm rounds in turn\n")
    print(table({name: column(run["report"], inputs["steps"], run["seconds"]) for name, run in runs.items()}))
    print(f"\n{notes(runs['drafttree']['seconds'] / runs['stock']['seconds'], version, fault)}")
    print(f"\npicture       {files['drafttree']}\nside by side  {files['comparison']}")
    print(f"{time.monotonic() - started:.0f} s in all")

    if given.json is not None:
        numbers = {
            "image": str(files["drafttree"]),
            **{f"{name}_image": str(files[name]) for name in ("stock", "plain", "comparison")},
            **{name: report[name] for name in ("steps", "calls", "rows", "accepted", "proposed", "rule", "tree")},
            "seconds": runs["drafttree"]["seconds"],
            **{f"{name}_seconds": runs[name]["seconds"] for name in ("stock", "plain")},
            "prompt": words,
            **{name: inputs[name] for name in ("seed", "sampler_name", "cfg")},
            "rounds": runs["stock"]["rounds"],
            "host_version": version,
            "stock_seed_fault": fault,
            "report": report,
            "plain_report": runs["plain"]["report"],
        }
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")


def leave(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main() -> int:
    given = arguments()
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), leave)  # an exception, so that the server is stopped on the way out
    try:
        demo(given)
    except HostError as error:
        print(f"\ndemo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted; the server is stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
