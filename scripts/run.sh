#!/usr/bin/env bash
# Run a Python file, of the repository or from elsewhere, in the project's environment from the repository's root.
# usage: bash scripts/run.sh FILE [ARGUMENTS...]     (`import sampler_core` works in FILE)
set -euo pipefail
if [ $# -lt 1 ]; then
    echo "usage: bash scripts/run.sh FILE [ARGUMENTS...]" >&2
    exit 2
fi
. "$(dirname "${BASH_SOURCE[0]}")/_env.sh"
file="$1"
shift
if [ -e "$file" ]; then
    file="$(cd "$(dirname "$file")" && pwd -P)/$(basename "$file")"
elif [ -e "$ROOT/$file" ]; then
    file="$ROOT/$file"
else
    echo "run.sh: no file $file, neither here nor in $ROOT" >&2
    exit 2
fi
cd "$ROOT"
export PYTHONPATH="$ROOT/.host/path${PYTHONPATH:+:$PYTHONPATH}"
exec "$PYTHON" "$file" "$@"
