#!/usr/bin/env python3
"""Ordered maps of the module beside Redis' own hashes and sorted sets, on this machine: commands a second, YCSB's workloads, and
seconds until a killed server serves again. Contestants take turns in each round; medians count, and ratios are medians of the
ratios within a round. Beside rates, a second table has the processor time of the server's main thread. Writes tables in Markdown.
Build before: cargo build --release --examples."""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "demo"))
from nodes import Connection, Node, find_module, find_program  # noqa: E402

PORT = 17900
FSYNC = {"none": ["--appendonly", "no"], "everysec": ["--appendonly", "yes", "--appendfsync", "everysec"],
         "always": ["--appendonly", "yes", "--appendfsync", "always"]}
NEVER_REWRITE = ["--auto-aof-rewrite-percentage", "0"]
# Name, kind of its keys for the driver, whether it is the module, what it syncs.
CONTESTANTS = [("OM", "om", True, "none"), ("HSET, no file", "hash", False, "none"), ("HSET, everysec", "hash", False, "everysec"),
               ("HSET, always", "hash", False, "always")]
SORTED = ("ZSET, no file", "zset", False, "none")


def chosen(options):
    """Returns the contestants of commands and workloads."""
    return [one for one in [*CONTESTANTS, SORTED] if one[3] == "none" or not options.no_files]


def driver():
    """Returns the program that runs YCSB's workloads."""
    path = os.path.join(os.path.dirname(find_module()), "examples", "ycsb")
    if not os.path.exists(path):
        raise SystemExit("build the driver first: cargo build --release --examples")
    return path


def processor_time(node):
    """Returns the nanoseconds that the server's main thread has run."""
    pid = node.process.pid
    with open(f"/proc/{pid}/task/{pid}/schedstat") as file:
        return int(file.read().split()[0])


def benchmark(node, requests, pipeline, keys, *words):
    """Returns commands a second, as redis-benchmark says, and microseconds of the server's processor time a command."""
    tool = shutil.which("redis-benchmark") or shutil.which("valkey-benchmark")
    before = processor_time(node)
    out = subprocess.run([tool, "-p", str(PORT), "-n", str(requests), "-P", str(pipeline), "-r", str(keys), "-c", "50", "--csv", *words],
                         capture_output=True, text=True, check=True).stdout
    return float(out.strip().splitlines()[-1].rsplit('","', 7)[1]), (processor_time(node) - before) / requests / 1000


def ycsb(options, kind, workload, operations, pipeline, size):
    """Returns operations a second of a workload of YCSB."""
    words = [PORT, kind, workload, options.keys, operations, 50, pipeline, size]
    return float(subprocess.run([driver(), *map(str, words)], capture_output=True, text=True, check=True).stdout)


def new_node(options, ours, place, *arguments):
    """Returns a server in a folder, with the module if it is to have one."""
    node = Node(find_program(), None, place, PORT, "--save", "", *arguments)
    if ours:
        design = ["design", options.design] if options.design else []
        node.options = (*node.options, "--loadmodule", find_module(), "pool", node.pool, *design)
    return node


class Servers:
    """All contestants, started once: each has its turn with each command."""

    def __init__(self, options, contestants):
        self.options, self.contestants = options, contestants
        self.places = []

    def each(self, size):
        """Starts one after the other with its records, and stops it afterwards."""
        for number, (name, kind, ours, fsync) in enumerate(self.contestants):
            base = self.options.memory if ours else self.options.disk
            place = os.path.join(base, str(number))
            node = new_node(self.options, ours, place, *FSYNC[fsync], *NEVER_REWRITE)
            node.start()
            ycsb(self.options, kind, "load", 0, 1, size)
            try:
                yield name, kind, fsync, node
            finally:
                node.kill()
                shutil.rmtree(place, ignore_errors=True)


def commands(options, found):
    """Notes commands a second by what is done, with which values and pipeline."""
    for size in options.values:
        value = "v" * size
        for round_ in range(options.rounds):
            for name, kind, fsync, node in Servers(options, chosen(options)).each(size):
                for pipeline in options.pipelines:
                    requests = options.requests * (3 if pipeline > 1 else 1)
                    note = lambda what, rate: found.setdefault((what, size, pipeline), {}).setdefault(name, []).append(rate)  # noqa: E731
                    if kind != "zset":
                        few = requests // (10 if fsync == "always" and pipeline == 1 else 1)
                        set_ = "OM.SET" if kind == "om" else "HSET"
                        # Fields of the same length, as many as there are: the first round of them is new.
                        note("write", benchmark(node, few, pipeline, options.keys, set_, "w", "__rand_int__", value))
                    if fsync != "none":
                        continue
                    if kind != "zset":
                        note("read", benchmark(node, requests, pipeline, options.keys, "OM.GET" if kind == "om" else "HGET", "w", "__rand_int__"))
                    if kind != "hash":
                        limit = ["LIMIT", "100"] if kind == "om" else ["LIMIT", "0", "100"]
                        range_ = "OM.RANGE" if kind == "om" else "ZRANGEBYLEX"
                        note("range of 100", benchmark(node, requests // 5, pipeline, 999_999_999_999, range_, "m", "[user__rand_int__", "+", *limit))
            print(f"commands, {size} B, round {round_}", file=sys.stderr)


def workloads(options, found):
    """Notes operations a second of YCSB's workloads."""
    for size in options.values:
        for round_ in range(options.rounds):
            for name, kind, fsync, _ in Servers(options, chosen(options)).each(size):
                for pipeline in options.pipelines:
                    for workload in "e" if kind == "zset" else "abcdef":
                        if workload == "e" and kind == "hash":
                            continue
                        operations = options.requests * (2 if pipeline > 1 else 1)
                        operations //= 4 if workload == "e" else 1
                        operations //= 8 if fsync == "always" and workload in "af" else 1
                        rate = ycsb(options, kind, workload, operations, pipeline, size)
                        found.setdefault((f"YCSB {workload.upper()}", size, pipeline), {}).setdefault(name, []).append((rate, None))
            print(f"YCSB, {size} B, round {round_}", file=sys.stderr)


def print_table(found, at, text):
    """Prints rates, or processor times, and how many times as good those of the module are."""
    names = list(dict.fromkeys(name for measured in found.values() for name in measured))
    print("| | value | pipeline | " + " | ".join(names) + " |\n|---|---|---|" + "---|" * len(names))
    for (what, size, pipeline), measured in found.items():
        if next(iter(measured.values()))[0][at] is None:
            continue
        cells = []
        for name in names:
            if name not in measured:
                cells.append("")
                continue
            pairs = [(ours[at], theirs[at]) for ours, theirs in zip(measured["OM"], measured[name])]
            ratio = statistics.median(ours / theirs if at == 0 else theirs / ours for ours, theirs in pairs)
            median = statistics.median(one[at] for one in measured[name])
            cells.append(text.format(median) + ("" if name == "OM" else f" ({ratio:.2f}×)"))
        print(f"| {what} | {size} B | {pipeline} | " + " | ".join(cells) + " |")


def restarts(items, options):
    """Returns the seconds until a killed server serves again, by what it loads."""
    found = {}
    options.keys = items
    for name, kind, arguments in [("OM, pool", "om", []), ("HSET, RDB", "hash", []),
                                  ("HSET, AOF", "hash", [*FSYNC["everysec"], *NEVER_REWRITE, "--aof-use-rdb-preamble", "no"])]:
        place = os.path.join(options.memory if kind == "om" else options.disk, "restart")
        node = new_node(options, kind == "om", place, *arguments)
        node.start()
        ycsb(options, kind, "load", 0, 1, 8)
        if name == "HSET, RDB":
            Connection(PORT, 600)("SAVE")
        time.sleep(1.5)
        node.kill()
        times = []
        for _ in range(options.restarts):
            times.append(node.start())
            # Of all of them: the last one that was written.
            last = f"user{(items - 1) * 0x9e3779b97f4a7c15 % (1 << 64):016x}"
            if Connection(PORT, 600)("OM.GET" if kind == "om" else "HGET", "m", last) != b"v" * 8:
                raise SystemExit(f"{name}: the last record is not there")
            node.kill()
        found[name] = statistics.median(times)
        shutil.rmtree(place, ignore_errors=True)
        print(f"{items} entries: {name}: {found[name]:.3f} s of {[round(seconds, 3) for seconds in times]}", file=sys.stderr)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--what", nargs="*", default=["commands", "ycsb", "restarts"])
    parser.add_argument("--design", default=None, help="design of the module's trees (default: the module's)")
    parser.add_argument("--no-files", action="store_true", help="without the contestants that write append-only files")
    parser.add_argument("--requests", type=int, default=200_000, help="commands of a round without pipeline")
    parser.add_argument("--keys", type=int, default=1_000_000, help="fields that are chosen from")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--values", type=int, nargs="*", default=[8, 100])
    parser.add_argument("--pipelines", type=int, nargs="*", default=[1, 16])
    parser.add_argument("--entries", type=int, nargs="*", default=[1_000_000, 10_000_000], help="entries of the maps that servers come back with")
    parser.add_argument("--restarts", type=int, default=5)
    parser.add_argument("--disk", default=None, help="folder for append-only files and dumps (default: the system's temporary one)")
    options = parser.parse_args()
    options.memory = tempfile.mkdtemp(prefix="bristlecone-bench-", dir="/dev/shm")
    options.disk = tempfile.mkdtemp(prefix="bristlecone-bench-", dir=options.disk)
    try:
        found = {}
        if "commands" in options.what:
            commands(options, found)
        if "ycsb" in options.what:
            workloads(options, found)
        if found:
            print_table(found, 0, "{:,.0f}")
            print()
            print_table(found, 1, "{:.2f} µs")
        if "restarts" in options.what:
            print("\n| entries | OM, pool | HSET, RDB | HSET, AOF | RDB / pool |\n|---|---|---|---|---|")
            for items in options.entries:
                times = list(restarts(items, options).values())
                print(f"| {items:,} | " + " | ".join(f"{seconds:.2f} s" for seconds in times) + f" | {times[1] / times[0]:.0f}× |")
    finally:
        shutil.rmtree(options.memory, ignore_errors=True)
        shutil.rmtree(options.disk, ignore_errors=True)


if __name__ == "__main__":
    main()
