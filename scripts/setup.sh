#!/usr/bin/env bash
# Makes .venv with everything that the demo and the tests need. A second run does nothing and needs no network.
# This file only finds a Python; scripts/setup.py does the work, and lists the arguments.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

fits() { "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 14))' >/dev/null 2>&1; }

if [ -n "${PYTHON:-}" ]; then
    fits "$PYTHON" || die "PYTHON=$PYTHON does not run or is not Python 3.10 to 3.13; set PYTHON to one that is"
    exec "$PYTHON" -m scripts.setup "$@"
fi
for candidate in python3 python3.13 python3.12 python3.11 python3.10 python; do
    # A version manager's shim can be on the PATH and still not run. Only a run shows it.
    if command -v "$candidate" >/dev/null && fits "$candidate"; then
        exec "$candidate" -m scripts.setup "$@"
    fi
done
die "found no Python 3.10 to 3.13; install one, or set PYTHON to its path"
