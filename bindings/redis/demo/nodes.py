"""Servers on loopback with the module, and a client that follows a cluster's redirections."""

import os
import shutil
import socket
import subprocess
import time


class Refused(Exception):
    """Says what a server replied as an error."""


class Connection:
    """One connection to one node."""

    def __init__(self, port, timeout=5.0):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def close(self):
        self.file.close()
        self.socket.close()

    def __call__(self, *words):
        return self.many([words])[0]

    def many(self, commands):
        """Sends commands in one pipeline. Errors are returned, not raised, if there are several."""
        out = bytearray()
        for words in commands:
            out += b"*%d\r\n" % len(words)
            for word in words:
                word = word if isinstance(word, bytes) else str(word).encode()
                out += b"$%d\r\n%s\r\n" % (len(word), word)
        self.socket.sendall(out)
        replies = [self._read() for _ in commands]
        if len(replies) == 1 and isinstance(replies[0], Refused):
            raise replies[0]
        return replies

    def _read(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return Refused(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return None if rest == b"-1" else [self._read() for _ in range(int(rest))]
        raise ConnectionError(f"unexpected {line!r}")


class Node:
    """A server with a directory of its own."""

    def __init__(self, program, module, directory, port, *options):
        self.program, self.module, self.port, self.options = program, module, port, options
        self.directory = os.path.join(directory, str(port))
        os.makedirs(self.directory, exist_ok=True)
        self.pool = os.path.join(self.directory, "node.pool")
        self.process = None

    def start(self, wait=True):
        """Starts the server; returns the seconds until it answered."""
        began = time.monotonic()
        arguments = [self.program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.directory, *self.options]
        if self.module:
            arguments += ["--loadmodule", self.module, "pool", self.pool]
        with open(os.path.join(self.directory, "log"), "a") as log:
            self.process = subprocess.Popen(arguments, stdout=log, stderr=log)
        while wait:
            try:
                connection = Connection(self.port, 600)
                if connection("PING") == "PONG":
                    connection.close()
                    break
            except (OSError, Refused):
                pass
            if self.process.poll() is not None:
                raise SystemExit(f"the server on port {self.port} ended: see {self.directory}/log")
            time.sleep(0.002)
        return time.monotonic() - began

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None


class Cluster:
    """A client of a cluster."""

    def __init__(self, ports):
        self.ports, self.slots, self.connections = list(ports), {}, {}

    def refresh(self):
        for port in self.ports:
            try:
                for first, last, master, *_ in self._at(port)("CLUSTER", "SLOTS"):
                    for slot in range(first, last + 1):
                        self.slots[slot] = master[1]
                return
            except (OSError, Refused, ConnectionError):
                self.drop(port)

    def _at(self, port):
        if port not in self.connections:
            self.connections[port] = Connection(port)
        return self.connections[port]

    def drop(self, port):
        connection = self.connections.pop(port, None)
        if connection:
            connection.close()

    def once(self, key, *words):
        """Sends a command once it can be carried out somewhere. Raises what leaves open whether it was."""
        slot, asking = slot_of(key), None
        for _ in range(100):
            port = asking or self.slots.get(slot) or self.ports[0]
            try:
                connection = self._at(port)
            except OSError:
                # Nothing was sent.
                time.sleep(0.05)
                self.refresh()
                continue
            try:
                if asking:
                    connection("ASKING")
                return connection(*words)
            except Refused as error:
                why, asking = str(error), None
                if why.startswith("MOVED"):
                    self.slots[slot] = int(why.rsplit(":", 1)[1])
                elif why.startswith("ASK "):
                    asking = int(why.rsplit(":", 1)[1])
                elif why.startswith(("TRYAGAIN", "CLUSTERDOWN", "LOADING", "READONLY")):
                    time.sleep(0.02)
                    self.refresh()
                else:
                    raise
            except (OSError, ConnectionError):
                self.drop(port)
                self.refresh()
                raise ConnectionError(f"the connection to port {port} broke")
        raise ConnectionError("no node carries the command out")


def slot_of(key):
    """Returns the hash slot of a key without braces: CRC16, as XMODEM has it."""
    crc = 0
    for byte in key.encode():
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1) ^ 0x1021 if crc & 0x8000 else crc << 1
        crc &= 0xFFFF
    return crc % 16384


def find_program():
    """Returns the server's program."""
    named = os.environ.get("BRISTLECONE_REDIS_SERVER")
    program = named or shutil.which("redis-server") or shutil.which("valkey-server")
    if not program:
        raise SystemExit("neither redis-server nor valkey-server is on PATH")
    return program


def find_module():
    """Returns the module, which must have been built."""
    here = os.path.dirname(os.path.abspath(__file__))
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(here, "..", "target"))
    for profile in ("release", "debug"):
        path = os.path.join(target, profile, "libbristlecone_redis.so")
        if os.path.exists(path):
            return os.path.abspath(path)
    raise SystemExit("build the module first: cargo build --release")
