"""A pool for each test, in shared memory."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bristlecone

MAX_BYTES = 256 << 20


@pytest.fixture
def path() -> Iterator[Path]:
    home = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="bristlecone-py-", dir=home) as folder:
        yield Path(folder) / "trees.pool"


@pytest.fixture
def pool(path: Path) -> Iterator[bristlecone.Pool]:
    with bristlecone.open(path, create=True, max_bytes=MAX_BYTES) as pool:
        yield pool
        for name in pool:
            assert pool[name].check() == []
        assert pool.check() == []


@pytest.fixture
def tree(pool: bristlecone.Pool) -> bristlecone.Tree[int, int]:
    return pool.tree("numbers", int, int)


@pytest.fixture
def run() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a program in an interpreter of its own."""

    def run(program: str, *arguments: object, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "error", "-c", program, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout)

    return run
