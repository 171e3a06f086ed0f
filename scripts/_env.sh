# Sourced by the other scripts: sets everything up and defines ROOT, PYTHON and COMFYUI_DIR.
set -euo pipefail
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"

_base_python() {
    local candidate
    for candidate in "${DRAFTTREE_PYTHON:-}" python3 python3.13 python3.12 python3.11 python; do
        if [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 \
            && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    echo "[set-up] failed: no Python 3.11 or newer found; install one, or name it with DRAFTTREE_PYTHON=/path/to/python3" >&2
    return 1
}

_base="$(_base_python)"
_lines="$("$_base" "$ROOT/scripts/setup_env.py" </dev/null)"
PYTHON="$(printf '%s\n' "$_lines" | sed -n 1p)"
COMFYUI_DIR="$(printf '%s\n' "$_lines" | sed -n 2p)"
export COMFYUI_DIR
# Threads that spin while they wait make torch many times slower when anything else wants the cores.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-PASSIVE}"
