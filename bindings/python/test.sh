#!/usr/bin/env bash
# Checks the sources, installs the package into a separate environment, like `pip install ./bindings/python` but
# compiled like tests of the library, and runs its tests. `test.sh ARGUMENT…` passes arguments to pytest. Needs
# CPython 3.11 or later, cargo and a C linker; installs the rest from PyPI.
set -euo pipefail
cd "$(dirname "$0")"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/../../target/bindings}
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
say() { printf '[python %4ds] %s\n' "$SECONDS" "$*"; }
may_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

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

command -v cargo >/dev/null || { say "cargo is missing: install Rust 1.89 or newer and try again"; exit 1; }
if ! find_python >/dev/null && may_install; then
    say "installing the distribution's Python"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3 python3-venv >/dev/null; } || true
fi
python=$(find_python) || { say "CPython 3.11 or later is missing: install it, or name one by PYTHON="; exit 1; }
mkdir -p "$CARGO_TARGET_DIR"
venv=$CARGO_TARGET_DIR/venv
# An incomplete environment, or one whose Python was removed, is created again.
"$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear "$venv" || {
    may_install || { say "the module venv is missing: install it (Debian's package is python3-venv)"; exit 1; }
    say "the module venv is missing: installing the distribution's"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv >/dev/null
    "$python" -m venv --clear "$venv"
}

say "installing what tests need"
pip() { "$venv/bin/python" -m pip install -q --prefer-binary "$@"; }
pip 'pytest>=8' 'maturin>=1.9,<2'
# Optional packages, installed together or else one by one: tests of missing ones are skipped.
optional=(numpy pyarrow pandas msgpack mypy matplotlib)
pip --only-binary :all: "${optional[@]}" 2>/dev/null || for package in "${optional[@]}"; do
    pip --only-binary :all: "$package" || say "$package cannot be installed: its tests are skipped"
done

say "format and lints"
export PYO3_PYTHON=$venv/bin/python
cargo fmt --all --check
cargo clippy --workspace --all-targets --quiet -- -D warnings

say "building"
PATH=$venv/bin:$PATH pip --force-reinstall --no-deps --no-build-isolation -C build-args="--profile dev" .

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
