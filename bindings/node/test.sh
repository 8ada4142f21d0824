#!/usr/bin/env bash
# Builds the C library and the addon, and checks and tests the package for Node.js. `test.sh ARGUMENT…` passes arguments to
# `node --test`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
name=node
. "$here/../library.sh"
need node npm
major=$(node -p 'process.versions.node.split(".")[0]')
[ "$major" -ge 20 ] || { say "Node.js 20 or newer is needed, and this is $major: skipped"; exit 0; }
build_library
cd "$here"
say "npm install"
npm install --no-audit --no-fund --no-package-lock --loglevel error
say "eslint and TypeScript"
npm run --silent lint
say "tests"
timeout 580 node --expose-gc --test "$@" test/*.test.js >"$CARGO_TARGET_DIR/node.tap" || { grep -A 30 '^not ok' "$CARGO_TARGET_DIR/node.tap"; exit 1; }
grep -E '^# (pass|fail|skipped)' "$CARGO_TARGET_DIR/node.tap"
say "the example"
node examples/ages.js "$CARGO_TARGET_DIR/ages.pool" >/dev/null
say "the package"
files=$(npm pack --dry-run --json --silent | node -p 'JSON.parse(require("fs").readFileSync(0))[0].files.map((file) => file.path).join(" ")')
for file in lib/index.js lib/index.d.ts native/addon.c native/build.js native/shim.c native/shim_expiring.c native/buffer.h README.md; do
    [[ " $files " == *" $file "* ]] || { say "the package lacks $file"; exit 1; }
done
say "all is well"
