#!/usr/bin/env bash
# Tests the C library, bristlecone.hpp and the shim for PiBench, from compiler warnings to a killed writer. Installs its
# requirements if permitted; what is unavailable is skipped, and reported.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$here/../../target/bindings} CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0
strict=(-Wall -Wextra -Werror -pedantic -O1 -g)
work=$(mktemp -d /tmp/bristlecone-c.XXXXXX)
trap 'rm -rf "$work" /dev/shm/bristlecone-c-*' EXIT
say() { printf '[c %4ds] %s\n' "$SECONDS" "$*"; }

# Package by package, so that an unavailable one does not prevent the others.
install() {
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null && continue
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
            say "installing $tool"
            [ -n "${updated:-}" ] || apt-get update -qq || true
            updated=1
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$tool" >/dev/null || true
        fi
    done
}
install gcc g++ make cmake valgrind pkg-config
for tool in cargo gcc g++ make; do
    command -v "$tool" >/dev/null || { say "$tool is missing: install it and try again"; exit 1; }
done

say "the crate: format, lints, tests"
(cd "$here" && cargo fmt --check && cargo clippy --all-targets --quiet -- -D warnings && cargo test --quiet)

say "make install"
make -s -C "$here" PROFILE=dev install PREFIX="$work/usr"
export PKG_CONFIG_PATH="$work/usr/lib/pkgconfig" LD_LIBRARY_PATH="$work/usr/lib"
if command -v pkg-config >/dev/null; then
    flags=$(pkg-config --cflags --libs bristlecone)
else
    say "no pkg-config: its file is not tried"
    flags="-I$work/usr/include -L$work/usr/lib -lbristlecone"
fi

say "symbols"
nm -D --defined-only "$work/usr/lib/libbristlecone.so" | awk '$2 == "T" { print $3 }' | sort >"$work/found"
grep -o '\bbristlecone_[a-z0-9_]*(' "$here/include/bristlecone.h" | tr -d '(' | sort -u | sed 's/$/@@BRISTLECONE_1/' >"$work/declared"
diff "$work/declared" "$work/found"
linked=$(readelf -d "$work/usr/lib/libbristlecone.so")
[[ $linked == *"[libbristlecone.so.1]"* && $linked == *NODELETE* ]]

say "C and C++, every warning an error"
compile() { # program, source, flags
    local program=$1 source=$2
    shift 2
    case $source in
        # shellcheck disable=SC2086
        *.c) gcc -std=c11 "${strict[@]}" -I"$here/tests" "$source" "$@" $flags -lpthread -o "$work/$program" ;;
        # shellcheck disable=SC2086
        *) g++ -std="${standard:-c++17}" "${strict[@]}" -I"$here/tests" "$source" "$@" $flags -lpthread -o "$work/$program" ;;
    esac
}
compile api-c "$here/tests/api.c"
compile many "$here/tests/many.c"
compile hard "$here/tests/hard.c"
compile several "$here/tests/several.c"
compile damage "$here/tests/damage.c"
compile kill "$here/tests/kill.c"
compile follow "$here/tests/follow.c"
compile journal "$here/tests/journal.c"
compile changes "$here/tests/changes.c"
compile api-cpp "$here/tests/api.cpp"
compile conformance "$here/tests/conformance.cpp" -O0
standard=c++20 compile api-cpp20 "$here/tests/api.cpp"
compile tour-c "$here/examples/tour.c"
compile tour-cpp "$here/examples/tour.cpp"
printf '#include <bristlecone.h>\nint main(void) { return bristlecone_abi_version() != 1; }\n' >"$work/alone.c"
compile alone "$work/alone.c"
cp "$work/alone.c" "$work/alone.cpp"
compile alone "$work/alone.cpp"

say "tests"
for program in api-c many hard several damage kill follow journal changes api-cpp api-cpp20 alone; do timeout 120 "$work/$program"; done
timeout 200 "$work/conformance" "$here/../conformance"
for tour in tour-c tour-cpp; do
    for _ in 1 2; do timeout 60 "$work/$tour" "/dev/shm/bristlecone-c-$$-$tour.pool" >"$work/$tour.out"; done
done
grep -q 'visit 2 of page 7' "$work/tour-c.out" && grep -q 'refused: the tree' "$work/tour-cpp.out"

say "the static library, under AddressSanitizer"
flags="-I$work/usr/include $work/usr/lib/libbristlecone.a -lgcc_s -lutil -lrt -lm -ldl"
if echo 'int main(void) { return 0; }' | gcc -x c -fsanitize=address,undefined - -o "$work/probe" 2>/dev/null && "$work/probe"; then
    for program in api many hard several damage follow journal changes; do compile "asan-$program" "$here/tests/$program.c" -fsanitize=address,undefined; done
    compile asan-cpp "$here/tests/api.cpp" -O0 -fsanitize=address,undefined
    # A test has its own handler for SIGBUS.
    export ASAN_OPTIONS=handle_sigbus=0
    for program in asan-api asan-many asan-hard asan-several asan-damage asan-follow asan-journal asan-changes asan-cpp; do timeout 300 "$work/$program"; done
else
    say "no AddressSanitizer: skipped"
fi

if command -v valgrind >/dev/null; then
    say "a tour under valgrind"
    for tour in tour-c tour-cpp; do
        timeout 300 valgrind --quiet --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite \
            "$work/$tour" "/dev/shm/bristlecone-c-$$-valgrind-$tour.pool" >/dev/null
    done
else
    say "no valgrind: skipped"
fi

if command -v cmake >/dev/null; then
    say "a project of CMake's"
    mkdir "$work/project"
    cp "$here/examples/tour.c" "$here/examples/tour.cpp" "$work/project"
    cat >"$work/project/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.10)
project(tour C CXX)
set(CMAKE_CXX_STANDARD 17)
find_package(bristlecone 0.1 REQUIRED)
add_executable(tour_c tour.c)
target_link_libraries(tour_c bristlecone::bristlecone)
add_executable(tour_cpp tour.cpp)
target_link_libraries(tour_cpp bristlecone::static)
CMAKE
    cmake -S "$work/project" -B "$work/project/build" -DCMAKE_PREFIX_PATH="$work/usr" >/dev/null
    cmake --build "$work/project/build" >/dev/null
    for tour in tour_c tour_cpp; do "$work/project/build/$tour" "/dev/shm/bristlecone-c-$$-cmake.pool" >/dev/null; done
else
    say "no cmake: skipped"
fi

say "PiBench's shim"
shim=$here/../pibench
make -s -C "$shim" PROFILE=dev PIBENCH="$shim/tests" CXXFLAGS="${strict[*]}"
g++ -std=c++17 "${strict[@]}" -I"$shim/tests" "$shim/tests/driver.cpp" -ldl -lpthread -o "$work/driver"
timeout 200 "$work/driver" "$shim/build/dev/libbristlecone_pibench.so"
g++ -std=c++17 "${strict[@]}" -DWITH_BULK_LOAD -fsyntax-only -I"$shim/tests" -I"$here/include" "$shim/shim.cpp"

say "make uninstall"
make -s -C "$here" PROFILE=dev uninstall PREFIX="$work/usr"
[ -z "$(find "$work/usr" -type f -o -type l)" ]
say "all is well"
