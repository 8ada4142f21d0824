#!/usr/bin/env bash
# Builds the C library, and checks and tests the package for Java by Maven. `test.sh ARGUMENT…` passes arguments to Maven.
# Needs a JDK of version 22 or newer: that of JAVA_HOME, or the newest below /usr/lib/jvm.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
name=java
. "$here/../library.sh"
need mvn

release_of() { "$1/bin/java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p'; }
find_jdk() {
    local home best='' release newest=21
    for home in "${JAVA_HOME:-}" /usr/lib/jvm/*; do
        [ -x "$home/bin/javac" ] || continue
        release=$(release_of "$home")
        if [ "${release:-0}" -gt "$newest" ]; then best=$home newest=$release; fi
    done
    echo "$best"
}
JAVA_HOME=$(find_jdk)
[ -n "$JAVA_HOME" ] || { say "no JDK of version 22 or newer: skipped"; exit 0; }
export JAVA_HOME
build_library
cd "$here"
say "checkstyle, javac, javadoc and tests, with $JAVA_HOME"
timeout 580 mvn --batch-mode --quiet -Dbuild.folder="$(cd "$CARGO_TARGET_DIR" && pwd)/java" "$@" verify javadoc:javadoc
say "all is well"
