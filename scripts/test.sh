#!/usr/bin/env bash
# Set up, lint, type-check and run the tests.
# usage: bash scripts/test.sh [pytest arguments]     (a path among them, e.g. tests/core, runs that part alone)
. "$(dirname "${BASH_SOURCE[0]}")/_env.sh"
cd "$ROOT"
"$PYTHON" -m ruff check .
"$PYTHON" -m ruff format --check .
"$PYTHON" -m mypy
MYPYPATH="$ROOT/.host/typing" "$PYTHON" -m mypy -p drafttree.nodes
what=(tests)
for argument in "$@"; do
    if [ -e "${argument%%::*}" ]; then what=(); fi
done
if [ ${#what[@]} -gt 0 ]; then "$PYTHON" scripts/setup_web.py; fi
exec "$PYTHON" -m pytest -c tests/pytest.ini ${what[@]+"${what[@]}"} "$@"
