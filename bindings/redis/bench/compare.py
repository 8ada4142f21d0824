#!/usr/bin/env python3
"""Ordered maps of the module beside Redis' own hashes and sorted sets, on this machine: commands a second, and seconds until a killed
server serves again. Writes a table in Markdown; the rounds of what is compared take turns, and the median counts."""

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


def benchmark(port, requests, pipeline, keys, *words):
    """Returns commands a second, as redis-benchmark says."""
    tool = shutil.which("redis-benchmark") or shutil.which("valkey-benchmark")
    out = subprocess.run([tool, "-p", str(port), "-n", str(requests), "-P", str(pipeline), "-r", str(keys), "-c", "50", "--csv", *words],
                         capture_output=True, text=True, check=True).stdout
    return float(out.strip().splitlines()[-1].rsplit('","', 7)[1])


def fill(port, items, *command):
    """Writes numbered fields, a hundred to a command."""
    connection = Connection(port, 600)
    tail = command[0] == "ZADD"
    for first in range(0, items, 3200):
        commands = []
        for start in range(first, min(first + 3200, items), 100):
            fields = []
            for n in range(start, min(start + 100, items)):
                fields += ([0, f"{n:012}"] if tail else [f"{n:012}", "v" * 8])
            commands.append([*command, *fields])
        for reply in connection.many(commands):
            if isinstance(reply, Exception):
                raise reply
    return connection


def speeds(options, directory):
    """Returns commands a second by what is done, in what, at which pipeline."""
    keys, found = options.keys, {}
    contestants = [("OM, pool", True, "none"), ("Redis, no file", False, "none"), ("Redis, everysec", False, "everysec"), ("Redis, always", False, "always")]
    for size in (8, 100):
        value = "v" * size
        for round_ in range(options.rounds):
            for number, (name, ours, fsync) in enumerate(contestants):
                place = os.path.join(directory if ours else options.disk, f"{size}-{round_}-{number}")
                node = Node(find_program(), find_module() if ours else None, place, PORT, "--save", "", *FSYNC[fsync])
                node.start()
                for pipeline in (1, 16):
                    requests = options.requests * (4 if pipeline == 16 else 1) // (10 if fsync == "always" and pipeline == 1 else 1)
                    note = lambda what, rate: found.setdefault((what, name, size, pipeline), []).append(rate)  # noqa: E731
                    note("write", benchmark(PORT, requests, pipeline, keys, *(["OM.SET"] if ours else ["HSET"]), "m", "__rand_int__", value))
                    if fsync != "none" or size == 100:
                        continue
                    note("read", benchmark(PORT, requests, pipeline, keys, "OM.GET" if ours else "HGET", "m", "__rand_int__"))
                    if pipeline == 1:
                        fill(PORT, keys, *(["OM.SET", "r"] if ours else ["ZADD", "r"])).close()
                    words = ["OM.RANGE", "r", "[__rand_int__", "+", "LIMIT", "100"] if ours else ["ZRANGEBYLEX", "r", "[__rand_int__", "+", "LIMIT", "0", "100"]
                    note("range of 100", benchmark(PORT, requests // 10, pipeline, keys, *words))
                node.kill()
                shutil.rmtree(place, ignore_errors=True)
                print(f"{size} B, round {round_}: {name}", file=sys.stderr)
    return {key: statistics.median(rates) for key, rates in found.items()}


def restarts(items, options, directory):
    """Returns the seconds until a killed server serves again, by what it loads."""
    found = {}
    for name, ours, arguments in [("OM, pool", True, ["--save", ""]), ("Redis, RDB", False, ["--save", ""]),
                                  ("Redis, AOF", False, ["--save", "", *FSYNC["everysec"], "--aof-use-rdb-preamble", "no"])]:
        place = os.path.join(directory if ours else options.disk, "restart")
        node = Node(find_program(), find_module() if ours else None, place, PORT, *arguments)
        node.start()
        connection = fill(PORT, items, *(["OM.SET", "m"] if ours else ["HSET", "m"]))
        if name == "Redis, RDB":
            connection("SAVE")
        time.sleep(1.5)
        node.kill()
        times = []
        for _ in range(options.rounds):
            times.append(node.start())
            count = Connection(PORT, 600)("OM.LEN" if ours else "HLEN", "m")
            if count != items:
                raise SystemExit(f"{name}: {count} of {items}")
            node.kill()
        found[name] = statistics.median(times)
        shutil.rmtree(place, ignore_errors=True)
        print(f"{items} entries: {name}: {found[name]:.3f} s", file=sys.stderr)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=200_000, help="commands of a round without pipeline")
    parser.add_argument("--keys", type=int, default=1_000_000, help="fields that are chosen from")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--entries", type=int, nargs="*", default=[1_000_000, 10_000_000], help="entries of the maps that servers come back with")
    parser.add_argument("--disk", default=None, help="folder for append-only files and dumps (default: the system's temporary one)")
    options = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="bristlecone-bench-", dir="/dev/shm")
    options.disk = tempfile.mkdtemp(prefix="bristlecone-bench-", dir=options.disk)
    try:
        rates = speeds(options, directory) if options.requests else {}
        print("| | | value | pipeline | commands a second |\n|---|---|---|---|---|")
        for (what, name, size, pipeline), rate in sorted(rates.items()):
            print(f"| {what} | {name} | {size} B | {pipeline} | {rate:,.0f} |")
        print("\n| entries | pool | RDB | AOF |\n|---|---|---|---|")
        for items in options.entries:
            times = restarts(items, options, directory)
            print(f"| {items:,} | " + " | ".join(f"{seconds:.2f} s" for seconds in times.values()) + " |")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        shutil.rmtree(options.disk, ignore_errors=True)


if __name__ == "__main__":
    main()
