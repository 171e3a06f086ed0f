"""Write the example workflows, the subgraph blueprint, and the thumbnails that workflows can render of themselves.

    bash scripts/run.sh scripts/write_examples.py [--thumbnails]

With --thumbnails the examples that need no more than the demo model are run, and their last picture becomes the
thumbnail; those of SD3.5, whose weights are not part of this pack, show the graph (scripts/graph_picture.py).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any

from PIL import Image

import comfy_page
import graph_picture
from host_server import ROOT, HostServer
from workflow_files import Graph, Node, ObjectInfo, text
from workflow_notes import NOTES

FOLDER = ROOT / "example_workflows"
BLUEPRINTS = ROOT / "subgraphs"
DEMO: dict[str, Any] = {"steps": 28, "cfg": 4.0, "sampler_name": "euler_ancestral", "scheduler": "simple"}
SIDE = 512  # pixels of a thumbnail


def demo_inputs(g: Graph, positive: str, batch: int = 1) -> tuple[Node, Node, Node, Node]:
    """Checkpoint, both prompts, empty latent."""
    model = g.add("CheckpointLoaderSimple", ckpt_name="drafttree-demo.safetensors")
    words = g.add("DraftTreeDemoPrompt", "Positive", text=positive)
    nothing = g.add("DraftTreeDemoPrompt", "Negative", text="")
    return model, words, nothing, g.add("EmptySD3LatentImage", width=64, height=64, batch_size=batch)


def picture(g: Graph, latent: tuple[Node, int], vae: tuple[Node, int], prefix: str) -> None:
    """Decode, enlarge the tiny picture, save."""
    decoded = g.add("VAEDecode", samples=latent, vae=vae)
    large = g.add(
        "ImageScale", image=decoded["IMAGE"], upscale_method="lanczos", width=512, height=512, crop="disabled"
    )
    g.column()
    g.add("SaveImage", images=large["IMAGE"], filename_prefix=prefix)


def demo(g: Graph) -> None:
    model, words, nothing, latent = demo_inputs(g, "red heart")
    g.column()
    tree = g.add("DraftTreeConfigure", widths="1,1,1,1")
    g.note(NOTES["demo"])
    g.column()
    sampler = g.add(
        "DraftTreeKSampler", model=model["MODEL"], positive=words["conditioning"], negative=nothing["conditioning"],
        latent_image=latent["LATENT"], tree=tree["tree"], seed=7, **DEMO,
    )  # fmt: skip
    g.column()
    drawn = g.add("DraftTreeReport", report=sampler["report"])
    g.add("PreviewAny", "Report", source=drawn["text"])
    picture(g, sampler["latent"], model["VAE"], "drafttree_demo")
    g.column()
    g.add("PreviewImage", "What the tree did", images=drawn["image"])


def draft_model(g: Graph) -> None:
    model, words, nothing, latent = demo_inputs(g, "dog face")
    g.column()
    tree = g.add("DraftTreeConfigure", widths="2,1,1,1")
    draft = g.add("DraftTreeLoadDraft", unet_name="drafttree-demo-draft.safetensors")
    g.note(NOTES["draft_model"])
    g.column()
    sampler = g.add(
        "DraftTreeKSampler", model=model["MODEL"], positive=words["conditioning"], negative=nothing["conditioning"],
        latent_image=latent["LATENT"], tree=tree["tree"], draft=draft["draft"], seed=7, **DEMO,
    )  # fmt: skip
    g.column()
    g.add("PreviewAny", "Report", source=sampler["report"])
    picture(g, sampler["latent"], model["VAE"], "drafttree_demo_draft")


def img2img(g: Graph) -> None:
    model, words, nothing, latent = demo_inputs(g, "red heart")
    others = g.add("DraftTreeDemoPrompt", "Second picture", text="green heart")
    g.column()
    tree = g.add("DraftTreeConfigure", widths="1,1,1,1")
    g.note(NOTES["img2img"])
    g.column()
    given: dict[str, Any] = {"model": model["MODEL"], "negative": nothing["conditioning"], "tree": tree["tree"], **DEMO}
    first = g.add(
        "DraftTreeKSampler", positive=words["conditioning"], latent_image=latent["LATENT"], seed=7, **given
    )  # fmt: skip
    g.column()
    second = g.add(
        "DraftTreeKSampler", positive=others["conditioning"], latent_image=first["latent"], seed=8, denoise=0.6, **given
    )
    g.column()
    g.add("PreviewAny", "Report", source=second["report"])
    picture(g, second["latent"], model["VAE"], "drafttree_img2img")


def inpaint(g: Graph) -> None:
    model, words, nothing, latent = demo_inputs(g, "red heart")
    others = g.add("DraftTreeDemoPrompt", "For the masked half", text="blue heart")
    g.column()
    tree = g.add("DraftTreeConfigure", widths="1,1,1,1")
    kept = g.add("SolidMask", "Keep: 0", value=0.0, width=64, height=64)
    new = g.add("SolidMask", "Paint: 1", value=1.0, width=32, height=64)
    mask = g.add("MaskComposite", destination=kept["MASK"], source=new["MASK"], x=32, y=0, operation="add")
    g.column()
    given: dict[str, Any] = {"model": model["MODEL"], "negative": nothing["conditioning"], "tree": tree["tree"], **DEMO}
    first = g.add("DraftTreeKSampler", positive=words["conditioning"], latent_image=latent["LATENT"], seed=7, **given)
    masked = g.add("SetLatentNoiseMask", samples=first["latent"], mask=mask["MASK"])
    g.column()
    second = g.add("DraftTreeKSampler", positive=others["conditioning"], latent_image=masked["LATENT"], seed=8, **given)
    g.note(NOTES["inpaint"])
    g.column()
    g.add("PreviewAny", "Report", source=second["report"])
    picture(g, second["latent"], model["VAE"], "drafttree_inpaint")


def custom(g: Graph) -> None:
    model, words, nothing, latent = demo_inputs(g, "rocket")
    g.column()
    noise = g.add("RandomNoise", noise_seed=7)
    guider = g.add(
        "CFGGuider", model=model["MODEL"], positive=words["conditioning"], negative=nothing["conditioning"], cfg=4.0
    )
    sigmas = g.add("BasicScheduler", model=model["MODEL"], scheduler="simple", steps=28, denoise=1.0)
    g.column()
    tree = g.add("DraftTreeConfigure", widths="auto")
    sampler = g.add("DraftTreeSampler", tree=tree["tree"])
    g.column()
    run = g.add(
        "SamplerCustomAdvanced", noise=noise["NOISE"], guider=guider["GUIDER"], sampler=sampler["sampler"],
        sigmas=sigmas["SIGMAS"], latent_image=latent["LATENT"],
    )  # fmt: skip
    g.note(NOTES["custom"])
    g.column()
    drawn = g.add("DraftTreeReport", report=sampler["report"], after=run["output"])
    picture(g, run["output"], model["VAE"], "drafttree_custom")
    g.column()
    g.add("PreviewImage", "What the tree did", images=drawn["image"])


def same_distribution(g: Graph) -> None:
    model, words, nothing, latent = demo_inputs(g, "face", batch=16)
    g.note(NOTES["same_distribution"])
    g.column()
    tree = g.add("DraftTreeConfigure", widths="1,1,1,1")
    sides: dict[str, Any] = {
        "model": model["MODEL"],
        "positive": words["conditioning"],
        "negative": nothing["conditioning"],
    }
    sides["latent_image"] = latent["LATENT"]
    ours = g.add("DraftTreeKSampler", **sides, tree=tree["tree"], seed=1, **DEMO)
    g.column()
    stock = g.add("KSampler", **sides, seed=2, **DEMO)
    g.add("PreviewAny", "Report", source=ours["report"])
    g.column()
    for title, source in (("16 by Speculative KSampler", ours["latent"]), ("16 by KSampler", stock["LATENT"])):
        decoded = g.add("VAEDecode", samples=source, vae=model["VAE"])
        g.add("SaveImage", title, images=decoded["IMAGE"], filename_prefix="drafttree_ab")


SD35: dict[str, Any] = {"sampler_name": "euler_ancestral", "scheduler": "simple"}


def sd35(g: Graph, checkpoint: str, words: str, clips: bool, draft: str, note: str, **settings: Any) -> None:
    """A picture of 1024 x 1024 by SD3.5."""
    loaded = g.add("CheckpointLoaderSimple", ckpt_name=checkpoint)
    clip = loaded["CLIP"]
    if clips:
        names = {"clip_name1": "clip_g.safetensors", "clip_name2": "clip_l.safetensors"}
        clip = g.add("TripleCLIPLoader", **names, clip_name3="t5xxl_fp8_e4m3fn_scaled.safetensors")["CLIP"]
    model = g.add("ModelSamplingSD3", model=loaded["MODEL"], shift=3.0)
    latent = g.add("EmptySD3LatentImage", width=1024, height=1024, batch_size=1)
    g.column()
    positive = g.add("CLIPTextEncode", "Positive", clip=clip, text=words)
    negative = g.add("CLIPTextEncode", "Negative", clip=clip, text="")
    g.note(note + "\n\n" + NOTES["sd35"])
    g.column()
    more: dict[str, Any] = {}
    if draft:
        more["draft"] = g.add("DraftTreeLoadDraft", unet_name=draft)["draft"]
    tree = g.add("DraftTreeConfigure", widths="auto", rows=8)
    sampler = g.add(
        "DraftTreeKSampler", model=model["MODEL"], positive=positive["CONDITIONING"], negative=negative["CONDITIONING"],
        latent_image=latent["LATENT"], tree=tree["tree"], seed=7, **SD35, **settings, **more,
    )  # fmt: skip
    g.column()
    decoded = g.add("VAEDecode", samples=sampler["latent"], vae=loaded["VAE"])
    drawn = g.add("DraftTreeReport", report=sampler["report"])
    g.add("PreviewAny", "Report", source=drawn["text"])
    g.column()
    g.add("SaveImage", images=decoded["IMAGE"], filename_prefix=g.name)
    g.column()
    g.add("PreviewImage", "What the tree did", images=drawn["image"])


def medium(g: Graph) -> None:
    note = NOTES["medium"]
    words = "a red fox asleep in fresh snow, early morning light, 85 mm photograph"
    checkpoint = "sd3.5_medium_incl_clips_t5xxlfp8scaled.safetensors"
    sd35(g, checkpoint, words, False, "", note, steps=40, cfg=4.5)


def large(g: Graph) -> None:
    note = NOTES["large"]
    words = "an old lighthouse on a cliff in a storm, oil painting, thick brush strokes"
    sd35(g, "sd3.5_large.safetensors", words, True, "", note, steps=28, cfg=4.5)


def large_draft(g: Graph) -> None:
    note = NOTES["large_draft"]
    words = "a glass greenhouse full of ferns at night, lit from inside, cinematic"
    sd35(g, "sd3.5_large.safetensors", words, True, "sd3.5_medium.safetensors", note, steps=50, cfg=4.0)


EXAMPLES: dict[str, Callable[[Graph], None]] = {
    "drafttree_demo": demo,
    "drafttree_demo_draft_model": draft_model,
    "drafttree_demo_img2img": img2img,
    "drafttree_demo_inpaint": inpaint,
    "drafttree_demo_custom_sampler": custom,
    "drafttree_same_distribution": same_distribution,
    "drafttree_sd35_medium": medium,
    "drafttree_sd35_large": large,
    "drafttree_sd35_large_draft_model": large_draft,
}
BLUEPRINT = "Speculative sampling"


def blueprint(info: ObjectInfo) -> dict[str, Any]:
    """Sampler, tree, decoder and report in one node."""
    g = Graph("blueprint", info)
    tree = g.add("DraftTreeConfigure", widths="auto", rows=8)
    g.column()
    sampler = g.add("DraftTreeKSampler", tree=tree["tree"], seed=7, **DEMO)
    g.column()
    decoded = g.add("VAEDecode", samples=sampler["latent"])
    drawn = g.add("DraftTreeReport", report=sampler["report"])
    inputs = {
        "model": ("MODEL", [(sampler, "model")]),
        "positive": ("CONDITIONING", [(sampler, "positive")]),
        "negative": ("CONDITIONING", [(sampler, "negative")]),
        "latent_image": ("LATENT", [(sampler, "latent_image")]),
        "vae": ("VAE", [(decoded, "vae")]),
        "seed": ("INT", [(sampler, "seed")]),
        "steps": ("INT", [(sampler, "steps")]),
        "cfg": ("FLOAT", [(sampler, "cfg")]),
        "denoise": ("FLOAT", [(sampler, "denoise")]),
    }
    outputs = {"image": decoded["IMAGE"], "report": drawn["image"], "text": drawn["text"]}
    return g.blueprint(BLUEPRINT, inputs, outputs, {"seed": 7, "steps": 28, "cfg": 4.0, "denoise": 1.0})


def files(info: ObjectInfo) -> dict[pathlib.Path, str]:
    """Every file this script writes but the thumbnails."""
    made = {}
    for name, build in EXAMPLES.items():
        g = Graph(name, info)
        build(g)
        made[FOLDER / f"{name}.json"] = text(g.workflow())
    made[BLUEPRINTS / f"{BLUEPRINT}.json"] = text(blueprint(info))
    return made


def thumbnail(saved: list[list[Image.Image]]) -> Image.Image:
    """What each SaveImage node saved: one picture as a square, or batches as grids side by side."""
    if len(saved) == 1 and len(saved[0]) == 1:
        return saved[0][0].convert("RGB").resize((SIDE, SIDE))
    gap = SIDE // 32
    width = (SIDE - gap * (len(saved) - 1)) // len(saved)
    page = Image.new("RGB", (SIDE, width), "white")
    for block, pictures in enumerate(saved):
        columns = math.isqrt(len(pictures))
        side = width // columns
        for place, one in enumerate(pictures):
            corner = block * (width + gap) + place % columns * side, place // columns * side
            page.paste(one.convert("RGB").resize((side, side)), corner)
    return page


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--thumbnails", action="store_true", help="run the examples too")
    options = parser.parse_args()
    with HostServer(os.environ["COMFYUI_DIR"]) as server:
        for file, content in files(server.object_info()).items():
            file.parent.mkdir(exist_ok=True)
            file.write_text(content, encoding="utf-8", newline="\n")
        if options.thumbnails:
            with comfy_page.chromium() as browser:
                page = comfy_page.ComfyPage.open(browser, server, graph_picture.SIZE)
                for name in sorted(EXAMPLES, key=lambda name: "sd35" not in name):  # graphs while no run has been
                    workflow = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
                    made = _drawn(page, workflow) if "sd35" in name else _rendered(server, workflow)
                    made.save(FOLDER / f"{name}.jpg", quality=86)
                    print(name, made.size)
                page.close()
    return 0


def _drawn(page: comfy_page.ComfyPage, workflow: dict[str, Any]) -> Image.Image:
    page.load(workflow)
    graph_picture.tidy(page)
    graph = graph_picture.graph_alone(page)
    part = graph.crop((0, 0, min(graph.width, round(1.5 * graph.height)), graph.height))  # the loaders to the sampler
    return part.resize((SIDE, round(part.height * SIDE / part.width)), Image.Resampling.LANCZOS)


def _rendered(server: HostServer, workflow: dict[str, Any]) -> Image.Image:
    prompt = server.to_api(workflow)
    result = server.run(prompt)
    savers = [node for node, entry in prompt.items() if entry["class_type"] == "SaveImage"]
    return thumbnail(
        [[Image.open(server.picture(entry)) for entry in result.outputs[node]["images"]] for node in savers]
    )


if __name__ == "__main__":
    sys.exit(main())
