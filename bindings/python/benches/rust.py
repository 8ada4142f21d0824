"""Bulk load, bulk get and a scan of `uint64` from Python beside Rust, by turns: loops of single calls, and calls with many
keys as Python makes them.

    cargo build --release -p bristlecone-python-rust; python benches/rust.py target/release/bristlecone-python-rust
"""

import argparse
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy

import bristlecone

PHASES = ("load", "get", "scan")


def ours(path: Path, count: int) -> dict[str, int]:
    keys = numpy.arange(count, dtype=numpy.uint64) * numpy.uint64(0x9E37_79B9_7F4A_7C15)
    figures = {}
    with bristlecone.open(path, exclusive=True, max_bytes=count * 128 + (256 << 20)) as pool:
        tree = pool.tree("t", int, int)
        start = time.perf_counter_ns()
        tree.put_many(keys, keys)
        figures["load"] = time.perf_counter_ns() - start
        start = time.perf_counter_ns()
        values = tree.get_many(keys)
        figures["get"] = time.perf_counter_ns() - start
        assert (values == keys).all()
        start = time.perf_counter_ns()
        scanned, _ = tree.items().to_numpy()
        figures["scan"] = time.perf_counter_ns() - start
        assert len(scanned) == count
    return figures


def rust(program: Path, path: Path, count: int, calls: str) -> dict[str, int]:
    told = subprocess.run([program, path, str(count), calls], check=True, capture_output=True, text=True).stdout
    path.unlink()
    return {phase: int(nanos) for phase, nanos in (line.split() for line in told.splitlines())}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("program", type=Path, help="the Rust side, built with --release")
    arguments.add_argument("--keys", type=int, default=10_000_000, help="keys (default: %(default)s)")
    arguments.add_argument("--rounds", type=int, default=3, help="turns of each (default: %(default)s)")
    given = arguments.parse_args()
    turns: dict[str, list[dict[str, int]]] = {"single": [], "many": [], "python": []}
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            for calls in ("single", "many"):
                turns[calls].append(rust(given.program, Path(folder) / "rust", given.keys, calls))
            turns["python"].append(ours(Path(folder) / "python", given.keys))
    print(f"{given.keys:,} keys, medians of {given.rounds} rounds: ns an item, and Python's time over Rust's in the same round")
    print("      Rust, single calls   Rust, many keys   Python   Python / single   Python / many")
    for phase in PHASES:
        nanos = {calls: [turn[phase] / given.keys for turn in turns[calls]] for calls in turns}
        single, many, python = (statistics.median(nanos[calls]) for calls in ("single", "many", "python"))
        over = {
            calls: statistics.median(mine / theirs for mine, theirs in zip(nanos["python"], nanos[calls]))
            for calls in ("single", "many")
        }
        print(f"{phase:6}{single:18.0f}{many:18.0f}{python:9.0f}{over['single']:18.2f}{over['many']:16.2f}")


if __name__ == "__main__":
    main()
