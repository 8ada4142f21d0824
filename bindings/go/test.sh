#!/usr/bin/env bash
# Builds the C library, and checks and tests the package for Go. `test.sh ARGUMENT…` passes arguments to `go test`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
name=go
. "$here/../library.sh"
need go
build_library
cd "$here"
# cgo keeps what pkg-config has said.
export GOFLAGS=-buildvcs=false GOCACHE="$CARGO_TARGET_DIR/go-cache"
say "gofmt and vet"
[ -z "$(gofmt -l .)" ] || { gofmt -d .; exit 1; }
go vet ./...
say "tests, with the race detector"
timeout 580 go test -race "$@" ./...
say "all is well"
