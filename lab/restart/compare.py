#!/usr/bin/env python3
"""Measures how long stores take to answer again after `kill -9`.

Each store gets ITEMS items of 8-byte keys and values (as text where the protocol needs it), is killed, and started again.
Printed are seconds from the kill to the first correct answer, and to full speed: the first of many rounds of lookups that
takes at most 10 % longer than the median of the last ones.

    apt install redis-server memcached; pip install lmdb rocksdict
    cargo build --release -p bristlecone --example restart_time
    lab/restart/compare.py 1000000 [STORE ...]

Stores: bristlecone, redis-rdb, redis-aof, memcached, memcached-clean, lmdb, rocksdb; memcached-clean is not killed, but asked
to end (SIGUSR1), without which memcached keeps no items, and two seconds of its time are a pause that it needs. A store that
is not installed is left out. Files are in --folder (default: /dev/shm), so that the disk is not measured; LMDB and RocksDB do
not sync. Redis saves its snapshot before the kill: later writes would be lost. Lookups of LMDB and RocksDB include the Python
binding, those of Redis and memcached the socket, in batches of 1000.
"""

import argparse
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

BATCH = 1000
ROUND = 20_000
ROUNDS = 60
ROOT = pathlib.Path(__file__).resolve().parents[2]


def key(number):
    return number * 0x9E37_79B9_7F4A_7C15 % 2**64


class Connection:
    """A connection to a server, which is tried until the server answers."""

    def __init__(self, path, ask, expected):
        while True:
            self.socket = socket.socket(socket.AF_UNIX)
            try:
                self.socket.connect(path)
                self.file = self.socket.makefile("rb")
                self.socket.sendall(ask)
                if self.file.readline().startswith(expected):
                    return
            except OSError:
                pass
            self.socket.close()
            time.sleep(0.001)

    def exchange(self, requests, read):
        self.socket.sendall(b"".join(requests))
        return [read(self.file) for _ in requests]


class Server:
    """A store that is a process."""

    def __init__(self, folder):
        self.folder = folder
        self.path = f"{folder}/socket"

    def start(self):
        pathlib.Path(self.path).unlink(missing_ok=True)
        self.process = subprocess.Popen(self.command(), cwd=self.folder, stdout=subprocess.DEVNULL)
        self.connection = Connection(self.path, *self.greeting)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def put(self, numbers):
        replies = self.connection.exchange([self.set(n) for n in numbers], lambda file: file.readline())
        assert all(reply.startswith((b"+OK", b"STORED")) for reply in replies), replies[:3]

    def get(self, numbers):
        return self.connection.exchange([self.ask(n) for n in numbers], self.read)


class Redis(Server):
    greeting = (b"PING\r\n", b"+PONG")
    mode = ["--save", "", "--appendonly", "no"]

    def command(self):
        common = ["redis-server", "--port", "0", "--unixsocket", self.path, "--dir", self.folder]
        return common + ["--loglevel", "warning"] + self.mode

    @staticmethod
    def set(n):
        return b"SET %016x %d\r\n" % (key(n), n)

    @staticmethod
    def ask(n):
        return b"GET %016x\r\n" % key(n)

    @staticmethod
    def read(file):
        length = int(file.readline()[1:])
        return int(file.readline()) if length >= 0 else None


class RedisSnapshot(Redis):
    def finish(self):
        self.connection.socket.sendall(b"SAVE\r\n")
        assert self.connection.file.readline() == b"+OK\r\n"


class RedisLog(Redis):
    mode = ["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]

    def finish(self):
        time.sleep(2)


class Memcached(Server):
    greeting = (b"version\r\n", b"VERSION")

    def command(self):
        return ["memcached", "-u", "root", "-s", self.path, "-m", "8192", "-e", f"{self.folder}/memory"]

    def finish(self):
        pass

    @staticmethod
    def set(n):
        value = b"%d" % n
        return b"set %016x 0 0 %d\r\n%s\r\n" % (key(n), len(value), value)

    @staticmethod
    def ask(n):
        return b"get %016x\r\n" % key(n)

    @staticmethod
    def read(file):
        if file.readline() == b"END\r\n":
            return None
        value = int(file.readline())
        file.readline()
        return value


class MemcachedClean(Memcached):
    def kill(self):
        self.process.send_signal(signal.SIGUSR1)
        self.process.wait()
        # In the second in which it ended it would start without its items.
        time.sleep(2)


class Embedded:
    """A store that is a library: it is filled by another process, which is killed."""

    def __init__(self, folder):
        self.folder = folder

    def start(self):
        self.open()

    def fill(self, items):
        reader, writer = os.pipe()
        self.child = os.fork()
        if self.child == 0:
            self.open()
            for start in range(0, items, BATCH):
                self.put(range(start, min(start + BATCH, items)))
            os.write(writer, b"x")
            signal.pause()
        os.read(reader, 1)

    def kill(self):
        os.kill(self.child, signal.SIGKILL)
        os.waitpid(self.child, 0)


class Lmdb(Embedded):
    def open(self):
        import lmdb

        self.store = lmdb.open(self.folder, map_size=64 << 30, sync=False)

    def put(self, numbers):
        with self.store.begin(write=True) as transaction:
            for n in numbers:
                transaction.put(key(n).to_bytes(8, "big"), n.to_bytes(8, "big"))

    def get(self, numbers):
        with self.store.begin() as transaction:
            found = [transaction.get(key(n).to_bytes(8, "big")) for n in numbers]
        return [None if value is None else int.from_bytes(value, "big") for value in found]


class Rocksdb(Embedded):
    def open(self):
        import rocksdict

        self.store = rocksdict.Rdict(f"{self.folder}/db", rocksdict.Options(raw_mode=True))

    def put(self, numbers):
        for n in numbers:
            self.store[key(n).to_bytes(8, "big")] = n.to_bytes(8, "big")

    def get(self, numbers):
        found = self.store.get([key(n).to_bytes(8, "big") for n in numbers])
        return [None if value is None else int.from_bytes(value, "big") for value in found]


STORES = {
    "redis-rdb": RedisSnapshot,
    "redis-aof": RedisLog,
    "memcached": Memcached,
    "memcached-clean": MemcachedClean,
    "lmdb": Lmdb,
    "rocksdb": Rocksdb,
}


def measure(store, items):
    if isinstance(store, Embedded):
        store.fill(items)
    else:
        store.start()
        for start in range(0, items, BATCH):
            store.put(range(start, min(start + BATCH, items)))
        store.finish()
    begun = time.monotonic()
    store.kill()
    gone = time.monotonic() - begun
    store.start()
    found = store.get([items // 2])
    first = time.monotonic() - begun
    if found != [items // 2]:
        return f"process gone {gone:.3f} s, answers {first:.3f} s: the items are lost"
    rounds = []
    for number in range(ROUNDS):
        started = time.monotonic()
        for start in range(number * ROUND, (number + 1) * ROUND, BATCH):
            wanted = [key(n) % items for n in range(start, start + BATCH)]
            assert store.get(wanted) == wanted
        rounds.append((time.monotonic() - begun, time.monotonic() - started))
    steady = statistics.median(took for _, took in rounds[ROUNDS // 2 :])
    full = next(end for end, took in rounds if took <= 1.1 * steady)
    lookup = steady / ROUND * 1e9
    return f"process gone {gone:.3f} s, first answer {first:.3f} s, full speed {full:.3f} s ({lookup:.0f} ns a lookup)"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("items", type=int)
    parser.add_argument("stores", nargs="*", default=["bristlecone", *STORES])
    parser.add_argument("--folder", default="/dev/shm")
    arguments = parser.parse_args()
    for name in arguments.stores:
        if name == "bristlecone":
            program = ROOT / "target/release/examples/restart_time"
            subprocess.run([program, str(arguments.items)], check=True)
            continue
        folder = tempfile.mkdtemp(prefix="restart-", dir=arguments.folder)
        store = STORES[name](folder)
        try:
            print(f"{name}, {arguments.items} items: {measure(store, arguments.items)}", flush=True)
        except (FileNotFoundError, ImportError) as error:
            print(f"{name}: left out: {error}", file=sys.stderr)
        finally:
            if isinstance(store, Server) and hasattr(store, "process"):
                store.process.kill()
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
