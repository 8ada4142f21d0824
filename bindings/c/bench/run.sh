#!/usr/bin/env bash
# Compares C with Rust: runs both programs alternately, and prints the median of the ratios of
# adjacent runs. `bench/run.sh [KEYS [TURNS [DESIGN…]]]`
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$here/target}
keys=${1:-1000000} turns=${2:-15}
shift $(($# < 2 ? $# : 2))
designs=("${@:-sstree}")
make -s -C "$here" PROFILE=release
(cd "$here" && cargo build --release --quiet --example words)
out=$here/build/release
cc -O2 -std=c11 -I"$here/include" "$here/bench/words.c" -L"$out" -lbristlecone -Wl,-rpath,"$out" -o "$out/words"
pool=/dev/shm/bristlecone-words-$$.pool
trap 'rm -f "$pool"' EXIT
run() { rm -f "$pool"; "$@"; }
for design in "${designs[@]}"; do
    for ((turn = 0; turn < turns; turn++)); do
        # Each goes first every other time.
        if ((turn % 2)); then
            c=$(run "$out/words" "$pool" "$design" "$keys")
            rust=$(run "$CARGO_TARGET_DIR/release/examples/words" "$pool" "$design" "$keys")
        else
            rust=$(run "$CARGO_TARGET_DIR/release/examples/words" "$pool" "$design" "$keys")
            c=$(run "$out/words" "$pool" "$design" "$keys")
        fi
        [ "${c##* }" = "${rust##* }" ]
        echo "$c $rust"
    done | awk -v design="$design" -v keys="$keys" '
        { put[NR] = $1 / $4; get[NR] = $2 / $5; p[NR] = $4; g[NR] = $5 }
        function median(of, n,   i, j, t) {
            for (i = 2; i <= n; i++) for (j = i; j > 1 && of[j] < of[j - 1]; j--) { t = of[j]; of[j] = of[j - 1]; of[j - 1] = t }
            return n % 2 ? of[(n + 1) / 2] : (of[n / 2] + of[n / 2 + 1]) / 2
        }
        END {
            printf "%s, %d keys, %d turns: put %.3f of the time of Rust (%.0f ns), get %.3f (%.0f ns)\n",
                design, keys, NR, median(put, NR), median(p, NR), median(get, NR), median(g, NR)
        }'
done
