"""Set up what the tests of the browser side need beyond scripts/setup_env.py, and say what is missing.

Three things, each fetched once: the JavaScript tools of package-lock.json (into node_modules), a ComfyUI frontend much
newer than the host's own (into .host), and a Chromium. Node.js itself and, without root, the Chromium must be there.

Run by scripts/test.sh; the tests call the same functions.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

from setup_env import HOST_HOME, ROOT, SetupError, locked, pip, say

NODE = 20  # the major version the tools need
LOCK_FILE = ROOT / "package-lock.json"
NEWER_FRONTEND = "1.58.1"
STATIC = "comfyui_frontend_package/static/"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def node_modules() -> pathlib.Path:
    """node_modules with exactly what the lock file names. SetupError where Node.js is missing or npm fails."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise SetupError(
            f"Node.js {NODE} or newer with npm is needed for the JavaScript tests, and is not in PATH. Install it "
            "(Debian and Ubuntu: apt install nodejs npm; macOS: brew install node; else a release from nodejs.org), or "
            "run the other parts alone, such as `bash scripts/test.sh tests/core`"
        )
    version = _output("node", "--version")
    if int(re.sub(r"\D*(\d+).*", r"\1", version) or 0) < NODE:
        raise SetupError(
            f"Node.js is {version}; the JavaScript tests need {NODE} or newer: install one that is first in PATH"
        )
    folder = ROOT / "node_modules"
    done = folder / ".drafttree-done"
    wanted = LOCK_FILE.read_text(encoding="utf-8")
    HOST_HOME.mkdir(exist_ok=True)
    with locked(HOST_HOME / "web.lock"):
        if done.is_file() and done.read_text(encoding="utf-8") == wanted:
            return folder
        say("fetching the JavaScript tools (60 MB)")
        run = subprocess.run(
            [npm, "ci", "--no-audit", "--no-fund", "--no-update-notifier"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode != 0:
            raise SetupError(
                f"npm ci ended with {run.returncode}. Is the network up? Its words:\n{run.stderr.strip()[-2000:]}"
            )
        done.write_text(wanted, encoding="utf-8")
    return folder


def newer_frontend() -> pathlib.Path:
    """The folder, for --front-end-root, of a frontend much newer than the one the host asks for."""
    folder = HOST_HOME / f"frontend-{NEWER_FRONTEND}"
    HOST_HOME.mkdir(exist_ok=True)
    with locked(HOST_HOME / "frontend.lock"):
        if (folder / "index.html").is_file():
            return folder
        say(f"fetching the frontend {NEWER_FRONTEND} (29 MB)")
        with tempfile.TemporaryDirectory(dir=HOST_HOME, prefix="part-") as scratch:
            package = f"comfyui-frontend-package=={NEWER_FRONTEND}"
            environment = pathlib.Path(sys.prefix)
            pip(environment, "download", "--no-deps", "--only-binary", ":all:", "--dest", scratch, package)
            wheel = next(pathlib.Path(scratch).glob("*.whl"))
            with zipfile.ZipFile(wheel) as archive:
                names = [n for n in archive.namelist() if n.startswith(STATIC) and not n.endswith(".map")]
                archive.extractall(scratch, names)
            (pathlib.Path(scratch) / STATIC).rename(folder)
    return folder


def browser() -> str:
    """The path of a Chromium: $CHROMIUM, one in PATH, or one installed now where that is possible."""
    if given := os.environ.get("CHROMIUM"):
        if found := shutil.which(given):
            return found
        raise SetupError(f"CHROMIUM={given} is no program: name the file of a Chromium or Chrome")
    if found := _in_path():
        return found
    apt = shutil.which("apt-get")
    if apt and hasattr(os, "geteuid") and os.geteuid() == 0:
        say("installing Chromium with apt-get (100 MB)")
        for command in (("update",), ("install", "-y", "--no-install-recommends", "chromium")):
            run = subprocess.run(
                [apt, *command],
                env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            if run.returncode != 0 and command[0] == "install":
                raise SetupError(f"apt-get install chromium ended with {run.returncode}:\n{run.stderr.strip()[-2000:]}")
        if found := _in_path():
            return found
    raise SetupError(
        f"the browser tests need a Chromium or Chrome, and none of {', '.join(BROWSERS)} is in PATH. Install one "
        "(Debian: sudo apt-get install chromium), or name its file with CHROMIUM=/path/to/chrome"
    )


def _in_path() -> str | None:
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def main() -> int:
    try:
        node_modules()
        newer_frontend()
        browser()
    except SetupError as error:
        say(f"failed: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
