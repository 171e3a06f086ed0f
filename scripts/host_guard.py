"""Run a command until it ends or our standard input closes: `python host_guard.py SCRATCH COMMAND...`.

The parent holds the other end of the pipe, so neither the command nor its SCRATCH folder outlives it, however the
parent dies (kill -9 too).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading

GRACE = 5.0  # seconds between asking and killing


def watch_input(closed: threading.Event) -> None:
    while os.read(0, 1):  # not sys.stdin: its lock, held here, would abort the interpreter's end
        pass
    closed.set()


def end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(GRACE)
    except subprocess.TimeoutExpired:
        child.kill()
    shutil.rmtree(sys.argv[1], ignore_errors=True)


def main() -> int:
    child = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL)
    closed = threading.Event()
    threading.Thread(target=watch_input, args=(closed,), daemon=True).start()
    while child.poll() is None:
        if closed.wait(0.2):
            end(child)
    return child.returncode


if __name__ == "__main__":
    sys.exit(main())
