#!/usr/bin/env bash
# Installs the package into an environment of its own, as `pip install ./bindings/python` does, and runs its tests.
# `test.sh ARGUMENT…` gives pytest arguments. Needs Python 3.11 or later and cargo; installs the rest from PyPI.
set -euo pipefail
cd "$(dirname "$0")"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target} CARGO_TERM_COLOR=never PIP_DISABLE_PIP_VERSION_CHECK=1
say() { printf '[python %4ds] %s\n' "$SECONDS" "$*"; }

find_python() {
    local name
    for name in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
        if [ -n "$name" ] && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    return 1
}

python=$(find_python) || { say "Python 3.11 or later is missing"; exit 1; }
venv=$CARGO_TARGET_DIR/venv
if ! [ -x "$venv/bin/pip" ]; then
    "$python" -m venv "$venv" || {
        say "the module venv is missing: installing the distribution's"
        apt-get update -qq && apt-get install -y -qq python3-venv
        "$python" -m venv --clear "$venv"
    }
fi

say "installing what tests need"
"$venv/bin/pip" install -q 'pytest>=8'
# What the package works with if it is there: tests of what is missing are skipped.
for package in numpy pyarrow pandas msgpack mypy; do
    "$venv/bin/pip" install -q --only-binary :all: "$package" || say "$package cannot be installed: its tests are skipped"
done

say "building"
"$venv/bin/pip" install -q --force-reinstall --no-deps .

say "testing"
"$venv/bin/python" -m pytest "$@"

if "$venv/bin/python" -c 'import mypy' 2>/dev/null; then
    say "comparing the stubs with the module"
    "$venv/bin/python" -m mypy
    "$venv/bin/python" -m mypy.stubtest --mypy-config-file pyproject.toml bristlecone
fi

say "running the example"
"$venv/bin/python" examples/seasons.py --out "$CARGO_TARGET_DIR/seasons.png"
say "all is well"
