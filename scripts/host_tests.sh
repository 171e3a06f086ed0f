#!/usr/bin/env bash
# Run the tests that need ComfyUI against a ComfyUI of your own, whatever its release.
# usage: COMFYUI_DIR=/path/to/ComfyUI DRAFTTREE_VENV=/path/to/its/venv bash scripts/host_tests.sh [pytest arguments]
# The environment needs requirements-dev.txt besides what that ComfyUI asks for; nothing in it is changed.
set -euo pipefail
if [ -z "${COMFYUI_DIR:-}" ]; then
    echo "host_tests.sh: set COMFYUI_DIR to the folder of the ComfyUI to test with" >&2
    exit 2
fi
. "$(dirname "${BASH_SOURCE[0]}")/_env.sh"
cd "$ROOT"
version="$(sed -n 's/^__version__ = "\(.*\)"/\1/p' "$COMFYUI_DIR/comfyui_version.py" 2>/dev/null || true)"
echo "ComfyUI ${version:-of unknown release} in $COMFYUI_DIR"
what=(tests/host tests/server)
for argument in "$@"; do
    if [ -e "${argument%%::*}" ]; then what=(); fi
done
# docs/compatibility.md and the example files are the pinned release's; another one may know more features and outputs.
exec "$PYTHON" -m pytest -c tests/pytest.ini --ignore=tests/host/sweep/test_table.py \
    --deselect=server/test_workflows.py::test_files_are_what_the_script_writes ${what[@]+"${what[@]}"} "$@"
