"""Bristlecone beside lmdb and sqlite3, in one run on one tmpfs: turns of each by turns, so that a busy machine is
busy for all of them.

    pip install lmdb numpy; python benches/compare.py --keys 1000000 --rounds 5

All three survive a killed process here and no power failure: sqlite3 with synchronous=OFF and a write-ahead log, lmdb
with sync=False, Bristlecone in shared memory.
"""

import argparse
import contextlib
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy

import bristlecone


class Ours:
    name = "bristlecone"

    def __init__(self, folder: Path, keys: int) -> None:
        self.pool = bristlecone.open(folder / "ours", create=True, max_bytes=keys * 128 + (256 << 20))
        self.tree = self.pool.tree("t", int, int)

    def put(self, keys: list[int]) -> None:
        tree = self.tree
        for key in keys:
            tree[key] = key

    def get(self, keys: list[int]) -> None:
        tree = self.tree
        for key in keys:
            tree[key]

    def load(self, keys: Any) -> None:
        self.tree.put_many(keys, keys)

    def get_many(self, keys: Any) -> None:
        assert len(self.tree.get_many(keys)) == len(keys)

    def scan(self) -> int:
        return sum(1 for _ in self.tree.items())

    def close(self) -> None:
        self.pool.close()


class Lmdb:
    name = "lmdb"

    def __init__(self, folder: Path, keys: int) -> None:
        import lmdb

        self.env = lmdb.open(str(folder / "lmdb"), map_size=keys * 256 + (256 << 20), sync=False, writemap=True)

    def put(self, keys: list[int]) -> None:
        for key in keys:
            # One transaction each: a put that returned survives a kill, like ours.
            with self.env.begin(write=True) as tx:
                tx.put(key.to_bytes(8, "big"), key.to_bytes(8, "big"))

    def get(self, keys: list[int]) -> None:
        with self.env.begin() as tx:
            for key in keys:
                int.from_bytes(tx.get(key.to_bytes(8, "big")), "big")

    def load(self, keys: Any) -> None:
        packed = [int(key).to_bytes(8, "big") for key in keys]
        with self.env.begin(write=True) as tx, tx.cursor() as cursor:
            cursor.putmulti(list(zip(packed, packed)))

    def get_many(self, keys: Any) -> None:
        packed = [int(key).to_bytes(8, "big") for key in keys]
        with self.env.begin() as tx, tx.cursor() as cursor:
            assert len(cursor.getmulti(packed)) == len(keys)

    def scan(self) -> int:
        with self.env.begin() as tx, tx.cursor() as cursor:
            return sum(1 for key, value in cursor if (int.from_bytes(key, "big"), int.from_bytes(value, "big")))

    def close(self) -> None:
        self.env.close()


class Sqlite:
    name = "sqlite3"

    def __init__(self, folder: Path, keys: int) -> None:
        self.base = sqlite3.connect(folder / "sqlite", isolation_level=None)
        self.base.execute("pragma journal_mode = wal").fetchall()
        self.base.execute("pragma synchronous = off")
        self.base.execute("create table t (key integer primary key, value integer)")

    def put(self, keys: list[int]) -> None:
        for key in keys:
            self.base.execute("insert or replace into t values (?, ?)", (key, key))

    def get(self, keys: list[int]) -> None:
        for key in keys:
            self.base.execute("select value from t where key = ?", (key,)).fetchone()

    def load(self, keys: Any) -> None:
        self.base.execute("begin")
        self.base.executemany("insert or replace into t values (?, ?)", ((key, key) for key in keys.tolist()))
        self.base.execute("commit")

    def get_many(self, keys: Any) -> None:
        for key in keys.tolist():
            self.base.execute("select value from t where key = ?", (key,)).fetchone()

    def scan(self) -> int:
        return sum(1 for _ in self.base.execute("select key, value from t order by key"))

    def close(self) -> None:
        self.base.close()


@contextlib.contextmanager
def timed(into: dict[tuple[str, str], list[float]], name: str, phase: str, count: int) -> Iterator[None]:
    start = time.perf_counter()
    yield
    into.setdefault((phase, name), []).append((time.perf_counter() - start) / count * 1e9)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--keys", type=int, default=1_000_000, help="keys that are loaded (default: %(default)s)")
    arguments.add_argument("--calls", type=int, default=100_000, help="single calls a turn (default: %(default)s)")
    arguments.add_argument("--rounds", type=int, default=3, help="turns of each (default: %(default)s)")
    arguments.add_argument("--only", nargs="*", default=["bristlecone", "lmdb", "sqlite3"], help="what is measured")
    given = arguments.parse_args()

    figures: dict[tuple[str, str], list[float]] = {}
    stores: list[Callable[..., Any]] = [store for store in (Ours, Lmdb, Sqlite) if store.name in given.only]
    for round in range(given.rounds):
        draw = numpy.random.default_rng(round)
        keys = draw.permutation(given.keys).astype(numpy.uint64) * 2
        new = (numpy.random.default_rng(round + 1000).permutation(given.keys)[: given.calls] * 2 + 1).tolist()
        there = random.Random(round).choices(keys.tolist(), k=given.calls)
        for make in stores:
            name = make.name  # type: ignore[attr-defined]
            with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
                store = make(Path(folder), given.keys)
                with timed(figures, name, "load many", given.keys):
                    store.load(keys)
                with timed(figures, name, "get many", given.keys):
                    store.get_many(keys)
                with timed(figures, name, "get", given.calls):
                    store.get(there)
                with timed(figures, name, "put", given.calls):
                    store.put(new)
                with timed(figures, name, "scan", given.keys):
                    assert store.scan() == given.keys + given.calls
                store.close()
        print(f"round {round + 1} of {given.rounds}", file=sys.stderr)

    print(f"ns an item, median of {given.rounds} rounds; {given.keys:,} keys, {given.calls:,} single calls")
    print(f"{'':12}" + "".join(f"{store.name:>14}" for store in stores))  # type: ignore[attr-defined]
    for phase in ("load many", "get many", "get", "put", "scan"):
        cells = [statistics.median(figures[phase, store.name]) for store in stores]  # type: ignore[attr-defined]
        print(f"{phase:12}" + "".join(f"{cell:14,.0f}" for cell in cells) + f"   x{cells[-1] / cells[0]:.1f}")


if __name__ == "__main__":
    main()
