#!/usr/bin/env bash
# Render the demo workflow in a real ComfyUI on the CPU and print what the draft tree saved.
# usage: bash scripts/demo.sh [--prompt TEXT] [--seed N] [--out FILE.png] [--json FILE] [...]   (--help lists all)
. "$(dirname "${BASH_SOURCE[0]}")/_env.sh"
exec "$PYTHON" "$ROOT/scripts/demo.py" "$@"
