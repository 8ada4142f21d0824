# Sourced by the test scripts of bindings over the C library: builds it like tests, installs it under the project's
# target folder, and lets compilers and programs find it. `$here` is the folder of the binding, `$name` its name.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$here/../../target/bindings} CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0
say() { printf '[%s %4ds] %s\n' "$name" "$SECONDS" "$*"; }

# Ends the script if a tool is missing: a machine needs only the languages that it uses.
need() {
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null || { say "$tool is missing: skipped"; exit 0; }
    done
}

build_library() {
    local usr
    need cargo cc make pkg-config
    say "the C library"
    mkdir -p "$CARGO_TARGET_DIR"
    usr=$(cd "$CARGO_TARGET_DIR" && pwd)/usr
    make -s -C "$here/../c" PROFILE=dev PREFIX="$usr" install
    export PKG_CONFIG_PATH="$usr/lib/pkgconfig" LD_LIBRARY_PATH="$usr/lib" BRISTLECONE_LIBRARY="$usr/lib/libbristlecone.so.1"
}
