"""Other processes: killed ones, children, interpreters that end."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bristlecone
from bristlecone import Pool, Snapshot, Transaction, Tree

WRITER = """
import sys, bristlecone
pool = bristlecone.open(sys.argv[1], create=True, max_bytes=1 << 30)
words, texts = pool.tree("words", int, int), pool.tree("texts", str, (int, bytes))
for number in range(10_000_000):
    words[number * 7919 % 1_000_003] = number
    texts[f"key {number % 5000}"] = (number, b"x" * (number % 100))
    # What is told has returned.
    if number % 64 == 0:
        print(number, flush=True)
"""


def test_nothing_acknowledged_is_lost_when_a_writer_is_killed(path: Path) -> None:
    for round in range(3):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        told = -1
        for line in writer.stdout:
            told = int(line)
            if told > 20_000 + 7_777 * round:
                writer.send_signal(signal.SIGKILL)
                break
        told = max([told, *(int(line) for line in writer.stdout if line.endswith("\n"))])
        writer.stdout.close()
        assert writer.wait() == -signal.SIGKILL
        with bristlecone.open(path) as pool:
            assert not pool.info()["was_clean"]
            words, texts = pool["words"], pool["texts"]
            assert words.check() == [] and texts.check() == []
            for number in range(told + 1):
                # From this round, or from an earlier one that reached further.
                assert words[number * 7919 % 1_000_003] == number
            for number in range(max(0, told - 4999), told + 1):
                at_least, bytes = texts[f"key {number % 5000}"]
                assert at_least >= number or round > 0
                assert len(bytes) == at_least % 100
        path.unlink()


def ask_all(pool: Pool, tree: Tree[int, int], items: Any, then: Snapshot, tx: Transaction) -> str:
    """Uses what a parent opened; returns what is wrong."""
    uses: list[Callable[[], object]] = [
        lambda: tree[1],
        lambda: tree.get(1),
        lambda: tree.__setitem__(1, 2),
        lambda: tree.__delitem__(1),
        lambda: 1 in tree,
        lambda: len(tree),
        lambda: bool(tree),
        lambda: len(tree.items()),
        lambda: list(tree.items()),
        lambda: list(items),
        lambda: tree.popitem(),
        lambda: tree.setdefault(1, 2),
        lambda: tree.compare_and_swap(1, 2, 3),
        lambda: tree.clear(),
        lambda: tree.close(),
        lambda: tree.stats(),
        lambda: tree.check(),
        lambda: tree.first(),
        lambda: tree.get_many([1]),
        lambda: tree.put_many([1], [1]),
        lambda: tree.items().to_numpy(),
        lambda: pool.tree("t"),
        lambda: pool.tree("new", int, int),
        lambda: list(pool),
        lambda: pool.info(),
        lambda: pool.check(),
        lambda: pool.drop_tree("t"),
        lambda: pool.rename_tree("t", "u"),
        lambda: pool.clear_tree("t"),
        lambda: pool.snapshot(),
        lambda: pool.transaction(),
        lambda: pool.transact(lambda tx: None),
        lambda: then[tree][1],
        lambda: list(then[tree]),
        lambda: tx.commit(),
        lambda: then.close(),
        lambda: pool.close(),
    ]
    for number, use in enumerate(uses):
        try:
            use()
        except bristlecone.ForkedError as error:
            if "open it again in this process" not in str(error):
                return f"{number}: {error}"
        except BaseException as error:
            return f"{number}: {error!r}"
        else:
            return f"{number}: no error"
    try:
        bristlecone.open(pool.path)
    except bristlecone.InUseError as error:
        return "" if error.pid == os.getppid() else f"in use by {error.pid}"
    return "opened"


def fork(child: Callable[[], str]) -> str:
    """Runs `child` in a child that is forked; returns what it does."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # About threads, which are the subject of the test.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            told = child()
        except BaseException as error:
            told = repr(error)
        os.write(writer, told.encode()[:60_000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        told = answer.read().decode()
    _, status = os.waitpid(pid, 0)
    return told if status == 0 else f"status {status}: {told}"


def test_a_forked_child_gets_errors_and_not_the_pool(path: Path) -> None:
    with bristlecone.open(path, create=True) as pool:
        tree = pool.tree("t", int, int)
        tree.update((key, key) for key in range(3000))
        items = iter(tree.items())
        next(items)
        then, tx = pool.snapshot(), pool.transaction()
        tx[tree][7] = 8
        assert fork(lambda: ask_all(pool, tree, items, then, tx)) == ""
        tx.commit()
        assert tree[7] == 8 and then[tree][7] == 7
        then.close()
        assert len(tree) == 3000 and tree.check() == [] and tree[1] == 1

        def leaves_the_block() -> str:
            with pool:
                pass
            return "left"

        assert fork(leaves_the_block) == "left"
        tree[3000] = 3000
        assert len(list(items)) == 3000

        def ends() -> str:
            # Everything that runs at exit, and the garbage collector.
            bristlecone._close_all()
            globals()["pool"] = None
            import gc

            gc.collect()
            return "ended"

        assert fork(ends) == "ended"
        assert tree[3000] == 3000
    with bristlecone.open(path) as pool:
        assert pool.info()["was_clean"] and len(pool["t"]) == 3001


def test_a_child_forked_amid_work_of_other_threads_does_not_hang(path: Path) -> None:
    import threading

    with bristlecone.open(path, create=True) as pool:
        tree = pool.tree("t", int, int)
        keys, end = list(range(5000)), threading.Event()

        def work() -> None:
            while not end.is_set():
                tree.put_many(keys, keys)
                tree.clear()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            for round in range(20):
                time.sleep(0.002 * (round % 5))
                items, then, tx = iter(tree.items()), pool.snapshot(), pool.transaction()
                assert fork(lambda: ask_all(pool, tree, items, then, tx)) == ""
                then.close()
                tx.rollback()
        finally:
            end.set()
            thread.join()
        assert tree.check() == []


def double(key: int, path: str) -> int:
    with bristlecone.open(path, read_only=True) as pool:
        return int(pool["t"][key]) * 2


def use_inherited(tree: Tree[int, int]) -> str:
    try:
        tree[1]
    except bristlecone.ForkedError:
        return "forked"
    return "?"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_of_multiprocessing_open_the_pool_themselves(path: Path, method: str) -> None:
    with bristlecone.open(path, create=True) as pool:
        tree = pool.tree("t", int, int)
        tree.update((key, key) for key in range(100))
    context = multiprocessing.get_context(method)
    with context.Pool(2) as workers:
        assert workers.starmap(double, [(key, str(path)) for key in range(20)]) == list(range(0, 40, 2))


RUNS = {
    "open handles": "pool = bristlecone.open(path, create=True); t = pool.tree('t', int, int); t[1] = 2",
    "an iterator": "pool = bristlecone.open(path, create=True); t = pool.tree('t', int, int); t[1] = 2; i = iter(t); next(i)",
    "a cycle": "pool = bristlecone.open(path, create=True); t = pool.tree('t', int, int); t[1] = 2; c = [t]; c.append(c); del t",
    "a daemon thread": """
import threading
pool = bristlecone.open(path, create=True); t = pool.tree('t', int, int); t[1] = 2
def work():
    try:
        while True:
            t.put_many(range(5000), range(5000))
    except bristlecone.ClosedError:
        pass
threading.Thread(target=work, daemon=True).start()
import time; time.sleep(0.1)
""",
    "a last word": """
pool = bristlecone.open(path, create=True); t = pool.tree('t', int, int); t[1] = 2
class Last:
    def __del__(self):
        try:
            t[2] = 3
        except Exception:
            pass
last = Last()
""",
}


@pytest.mark.parametrize("end", RUNS)
def test_an_interpreter_ends_with_open_handles(path: Path, run: Any, end: str) -> None:
    ended = run(f"import sys, bristlecone; path = sys.argv[1]\n{RUNS[end]}", path)
    assert (ended.returncode, ended.stderr) == (0, "")
    with bristlecone.open(path) as pool:
        assert pool.info()["was_clean"] and 1 in pool["t"]


def test_an_exception_or_a_signal_closes_the_pool(path: Path, run: Any) -> None:
    ended = run("import sys, bristlecone\np = bristlecone.open(sys.argv[1], create=True); 1 / 0", path)
    assert ended.returncode == 1 and "ZeroDivisionError" in ended.stderr
    program = """
import sys, os, signal, threading, bristlecone
pool = bristlecone.open(sys.argv[1], create=True, max_bytes=1 << 30); tree = pool.tree("t", int, int)
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background has ignored
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    while True:
        tree.put_many(range(10_000_000), range(10_000_000))
except KeyboardInterrupt as error:
    assert error.done == len(tree), (error.done, len(tree))
"""
    ended = run(program, path)
    assert (ended.returncode, ended.stderr) == (0, "")
    with bristlecone.open(path) as pool:
        assert pool.info()["was_clean"]


def test_only_what_is_needed_is_imported(run: Any) -> None:
    ended = run(
        "import bristlecone, sys; print([name for name in ('numpy', 'pandas', 'pyarrow') if name in sys.modules])"
    )
    assert (ended.returncode, ended.stdout.strip()) == (0, "[]")
