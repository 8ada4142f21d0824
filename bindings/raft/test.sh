#!/usr/bin/env bash
# What must hold of the crate: format, lints, documents, tests of the store, and three nodes under kills and partitions.
# `test.sh long` kills stores 300 times in each configuration, and disturbs each cluster for 10 minutes.
# Partitions need network namespaces and the program ip (Debian's package is iproute2); without them they are left out.
set -euo pipefail
cd "$(dirname "$0")"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/../../target/bindings} CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0
say() { printf '[raft %4ds] %s\n' "$SECONDS" "$*"; }

command -v cargo >/dev/null || { say "cargo is missing: install Rust 1.89 or newer and try again"; exit 1; }
if ! command -v ip >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing iproute2"
    { apt-get update -qq && apt-get install -y -qq iproute2 >/dev/null; } || say "it cannot be installed"
fi
if [ "${1:-}" = long ]; then
    export BRISTLECONE_RAFT_ROUNDS=${BRISTLECONE_RAFT_ROUNDS:-300} BRISTLECONE_RAFT_SECONDS=${BRISTLECONE_RAFT_SECONDS:-600}
fi

say "format, lints, documents"
cargo fmt --all --check
cargo clippy --workspace --all-targets --quiet -- -D warnings
RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --quiet
say "tests of the store"
cargo test --quiet -p bristlecone-raft
say "three nodes"
# One cluster after the other: elections must not wait for other clusters.
cargo test --quiet -p bristlecone-raft-node -- --test-threads 1 --nocapture
say "all is well"
