#!/usr/bin/env python3
"""Three masters and three replicas on loopback: load, `kill -9` of a master, promotion, resharding; and what was lost.

Each writer writes numbered fields and adds to a counter, and keeps what was acknowledged outside the cluster. Redis
replicates without waiting, so that a failover may lose what the dead master acknowledged last; nothing else may be lost,
and no addition may be applied twice.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from nodes import Cluster, Connection, Node, Refused, find_module, find_program, slot_of

FIRST_PORT = int(os.environ.get("BRISTLECONE_DEMO_PORT", "17000"))
PORTS = range(FIRST_PORT, FIRST_PORT + 6)
KEYS = 48


class Writer(threading.Thread):
    """Writes to keys of its own until it is stopped."""

    def __init__(self, number):
        super().__init__(daemon=True)
        self.keys = [f"map:{number}:{key}" for key in range(KEYS // 3)]
        self.written = {key: set() for key in self.keys}
        self.sums = dict.fromkeys(self.keys, 0)
        self.open_sums = dict.fromkeys(self.keys, 0)
        self.stopped, self.broken, self.wrong = threading.Event(), 0, None

    def run(self):
        cluster = Cluster(PORTS)
        cluster.refresh()
        n = 0
        while not self.stopped.is_set():
            n += 1
            key, field = self.keys[n % len(self.keys)], f"{n:08}"
            try:
                cluster.once(key, "OM.SET", key, field, n)
                self.written[key].add(field)
                self.open_sums[key] += 1
                cluster.once(key, "OM.INCRBY", key, "sum", 1)
                self.sums[key] += 1
                self.open_sums[key] -= 1
            except ConnectionError:
                self.broken += 1
            except Refused as error:
                self.wrong = error
                return


def say(text):
    print(f"[{time.monotonic() - BEGAN:6.1f} s] {text}", flush=True)


def wait(what, holds, seconds=60):
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            raise SystemExit(f"no success: {what}")
        time.sleep(0.1)


def cli(*words):
    tool = shutil.which("redis-cli") or shutil.which("valkey-cli")
    done = subprocess.run([tool, *map(str, words)], capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def on(port, *words):
    connection = Connection(port)
    try:
        return connection(*words)
    finally:
        connection.close()


def verify(writers, spared):
    """Compares the cluster with what was acknowledged. Returns what is missing on spared slots, and elsewhere."""
    cluster = Cluster(PORTS)
    cluster.refresh()
    missing = {True: 0, False: 0}
    for writer in writers:
        if writer.wrong:
            raise SystemExit(f"a writer was refused: {writer.wrong}")
        for key, fields in writer.written.items():
            found = {field.decode() for field in cluster.once(key, "OM.RANGE", key, "-", "+", "LIMIT", -1)}
            is_spared = spared(slot_of(key))
            missing[is_spared] += len(fields - found)
            total = int(cluster.once(key, "OM.GET", key, "sum") or 0)
            if total > writer.sums[key] + writer.open_sums[key]:
                raise SystemExit(f"{key}: {total} additions, {writer.sums[key]} acknowledged: one was applied twice")
            missing[is_spared] += max(0, writer.sums[key] - total)
    return missing[True], missing[False]


def main():
    directory = tempfile.mkdtemp(prefix="bristlecone-cluster-", dir="/dev/shm")
    options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--save", "", "--repl-diskless-sync-delay", "0"]
    nodes = {port: Node(find_program(), find_module(), directory, port, *options) for port in PORTS}
    writers = [Writer(number) for number in range(3)]
    try:
        for node in nodes.values():
            node.start()
        addresses = [f"127.0.0.1:{port}" for port in PORTS]
        cli("--cluster", "create", *addresses, "--cluster-replicas", 1, "--cluster-yes")
        wait("six nodes agree", lambda: all("cluster_state:ok" in on(p, "CLUSTER", "INFO").decode() for p in PORTS))
        wait("replicas follow", lambda: all(b"master_link_status:up" in on(p, "INFO", "replication") for p in PORTS[3:]))
        say("three masters and three replicas serve")
        for writer in writers:
            writer.start()
        time.sleep(3)

        victim = PORTS[0]
        mine = {slot for first, last, master, *_ in on(victim, "CLUSTER", "SLOTS") if master[1] == victim for slot in range(first, last + 1)}
        nodes[victim].kill()
        say(f"kill -9 of the master on port {victim}, under load")
        wait("a replica is promoted", lambda: all(m[1] != victim for _, _, m, *_ in on(PORTS[1], "CLUSTER", "SLOTS")))
        wait("the cluster serves", lambda: "cluster_state:ok" in on(PORTS[1], "CLUSTER", "INFO").decode())
        say("its replica is promoted")
        time.sleep(2)
        say(f"back after {nodes[victim].start():.2f} s")
        wait("it follows the new master", lambda: b"master_link_status:up" in on(victim, "INFO", "replication"))
        say("it follows the new master")

        source = on(PORTS[1], "CLUSTER", "MYID").decode()
        target = on(PORTS[2], "CLUSTER", "MYID").decode()
        cli("--cluster", "reshard", f"127.0.0.1:{PORTS[1]}", "--cluster-from", source, "--cluster-to", target, "--cluster-slots", 1000, "--cluster-yes")
        say("1,000 slots were moved under load")
        time.sleep(1)
        for writer in writers:
            writer.stopped.set()
        for writer in writers:
            writer.join(30)
        cli("--cluster", "check", f"127.0.0.1:{PORTS[1]}")
        lost, lost_by_failover = verify(writers, lambda slot: slot not in mine)
        acknowledged = sum(len(fields) for writer in writers for fields in writer.written.values())
        say(f"{acknowledged} fields and as many additions acknowledged, {sum(w.broken for w in writers)} connections broken")
        say(f"lost on nodes that were not failed over: {lost}; by the failover: {lost_by_failover}; applied twice: 0")
        return 1 if lost else 0
    finally:
        for writer in writers:
            writer.stopped.set()
        for node in nodes.values():
            node.kill()
        shutil.rmtree(directory, ignore_errors=True)


BEGAN = time.monotonic()
if __name__ == "__main__":
    sys.exit(main())
