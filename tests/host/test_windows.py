"""What Windows would stumble over: its code page, its file names, encodings that were left open."""

from __future__ import annotations

import ast
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTS = pathlib.Path(__file__).resolve().parent

SCRIPT = """
import sys
host, root, tests = sys.argv[1:]
sys.argv = sys.argv[:1]
sys.path[:0] = [host, tests]
import comfy.cli_args
comfy.cli_args.args.cpu = True
import utils.install_util
import nodes
import importlib, importlib.util, logging
import torch

spec = importlib.util.spec_from_file_location("pack", root + "/__init__.py", submodule_search_locations=[root])
pack = importlib.util.module_from_spec(spec)
sys.modules["pack"] = pack
print("importing")
spec.loader.exec_module(pack)
import asyncio
for node in asyncio.run(asyncio.run(pack.comfy_entrypoint()).get_node_list()):
    print(node.GET_SCHEMA().node_id)
logging.basicConfig(level=logging.INFO, stream=sys.stdout, force=True, format="%(message)s")
logging.raiseExceptions = True
torch.set_num_threads(1)
import tiny_models
ksampler = importlib.import_module("pack.nodes.ksampler")
types = importlib.import_module("pack.nodes.types")
configure = importlib.import_module("pack.nodes.configure")
latent = {"samples": tiny_models.latent("flow")}
prompts = tiny_models.conditioning(1), tiny_models.conditioning(2)

def run(model=None, widths=(1, 1), eta=1.0, latent=latent, **given):
    return ksampler.SpeculativeKSampler.execute(
        model or tiny_models.flow(), 5, 6, 3.0, "euler_ancestral", "simple", *prompts, latent, 1.0, eta, 1.0,
        tree=types.TreeSettings(widths), **given
    )

for settings in ({}, {"widths": "auto"}, {"eta": 0.0}, {"draft": tiny_models.flow(1)}):
    print(run(**settings).args[1]["summary"])
patched = tiny_models.flow().clone()
patched.set_model_sampler_post_cfg_function(lambda args: args["denoised"])
print(run(patched).args[1]["summary"])
for failing in (
    lambda: run(latent={"samples": torch.zeros(1, 5, 8, 8) + 1}),
    lambda: run(draft=tiny_models.unet()),
    lambda: configure.ConfigureDraftTree.execute("2,x", "rass", "frozen", 8),
):
    try:
        failing()
    except ValueError as error:
        logging.error("%s", error)
    else:
        raise SystemExit("no error")
print("done")
"""


def test_a_console_of_code_page_1252(comfyui_dir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Import, runs, reasons and errors on a console that can only write cp1252, and refuses everything else."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONUTF8", "LC_ALL", "LANG", "LC_CTYPE")}
    environment |= {"PYTHONIOENCODING": "cp1252:strict", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    command = [sys.executable, "-W", "error::EncodingWarning", "-c", SCRIPT, str(comfyui_dir), str(ROOT), str(TESTS)]
    done = subprocess.run(command, capture_output=True, env=environment, cwd=tmp_path, timeout=300)
    out, errors = done.stdout.decode("cp1252"), done.stderr.decode("cp1252")
    assert done.returncode == 0 and out.rstrip().endswith("done"), errors[-2000:]
    assert "--- Logging error ---" not in errors
    ours = out[out.index("importing") :]
    assert ours.isascii() and ours.count("[DraftTree] Speculative KSampler: ") >= 5
    assert "eta is 0" in ours and "post-CFG" in ours and "widths" in ours


@pytest.mark.parametrize("folder", ["nodes", "sampler_core", "demo", "scripts", "benchmarks"])
def test_every_text_file_is_opened_with_an_encoding(folder: str) -> None:
    for file in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            where = f"{file.relative_to(ROOT)}:{node.lineno}"
            given = {keyword.arg for keyword in node.keywords}
            if name in ("read_text", "write_text"):
                assert "encoding" in given, where
            if name == "open" and isinstance(node.func, ast.Name):
                assert "encoding" in given or any("b" in ast.unparse(a) for a in node.args[1:2]), where


@pytest.mark.parametrize("folder", ["nodes", "sampler_core"])
def test_log_lines_are_ascii(folder: str) -> None:
    """Whatever is said to a log, and every message of an error, in the files that a host imports."""
    for file in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            says = isinstance(node, ast.Raise) or (
                isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
                and ast.unparse(node.func.value) in ("_log", "logging")
            )  # fmt: skip
            if says:
                assert ast.unparse(node).isascii(), f"{file.relative_to(ROOT)}:{node.lineno}"


def test_file_names_work_on_windows() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode("utf-8")
    names = [name for name in listed.split("\0") if name]
    assert len(names) > 100
    reserved = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}
    assert len({name.casefold() for name in names}) == len(names)
    for name in names:
        assert name.isascii() and len(name) < 120 and not set(name) & set('<>:"\\|?*'), name
        assert all(part.split(".")[0].lower() not in reserved and part[-1] not in ". " for part in name.split("/")), (
            name
        )
