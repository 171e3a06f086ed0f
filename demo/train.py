"""Train the demo models from nothing: pictures, autoencoder, diffusion model, draft model, files.

usage: bash scripts/run.sh demo/train.py [--minutes 70] [--quick] [--out FOLDER] [--work FOLDER] [--images FOLDER]
       [--further FOLDER]

It continues where it was stopped; delete the work folder to begin anew. Progress is printed as JSON lines.
"""

from __future__ import annotations

import argparse
import pathlib
import sys

import emoji_data
import export
import host_path
import train_mmdit
import train_vae

HERE = pathlib.Path(__file__).resolve().parent
# Shares of the time for the autoencoder, the diffusion model and the draft model.
SHARES = (0.30, 0.52, 0.18)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--minutes", type=float, default=70.0, help="training time, all three networks together (default 70)"
    )
    parser.add_argument("--quick", action="store_true", help="a trial of about a minute; its pictures are noise")
    parser.add_argument(
        "--out", type=pathlib.Path, help="where to write (default demo/models; with --quick: the work folder)"
    )
    parser.add_argument(
        "--work", type=pathlib.Path, help="downloads and unfinished training (default output/demo_training)"
    )
    parser.add_argument(
        "--images", type=pathlib.Path, help=f"the unpacked npm package {emoji_data.PACKAGE}, instead of a download"
    )
    parser.add_argument(
        "--processes", type=int, default=2, help="processes of one thread for the transformers (default 2)"
    )
    parser.add_argument(
        "--further",
        type=pathlib.Path,
        help="models of an earlier run (demo/models): keep the autoencoder, train the diffusion model further at a "
        "third of the rate, the draft model from nothing",
    )
    options = parser.parse_args()
    host_path.use_comfyui()

    work = options.work or HERE.parent / "output" / ("demo_quick" if options.quick else "demo_training")
    out = options.out or (work / "models" if options.quick else HERE / "models")
    work.mkdir(parents=True, exist_ok=True)
    shares = (0.0, 0.7, 0.3) if options.further else SHARES
    seconds = [share * (0.7 if options.quick else options.minutes) * 60 for share in shares]

    package = emoji_data.find_package(work, options.images)
    named, files = emoji_data.catalogue(package)
    print(f"{len(named)} named pictures, {len(files)} in all", flush=True)
    pictures = emoji_data.load_images(package, [picture.file for picture in named])
    everything = emoji_data.load_images(package, files)

    start = None
    if options.further:
        vae, start = export.read(options.further)
    else:
        vae = train_vae.train(pictures, everything, seconds[0], work)
    latents = train_vae.model_latents(vae, pictures)
    big = train_mmdit.train(latents, named, 3, seconds[1], options.processes, work, start=start)
    draft = train_mmdit.train(latents, named, 2, seconds[2], options.processes, work, teacher=big)
    export.write(vae, big, draft, out)
    if not options.quick:
        emoji_data.write_names(named, HERE / "names.txt")
    print(f"wrote {out}")


if __name__ == "__main__":
    sys.exit(main())
