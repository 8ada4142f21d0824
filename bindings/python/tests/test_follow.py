"""Reading a pool that another process is writing to."""

import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import bristlecone
from bristlecone import NoWriterError, Pool, Tree

# Writes continuously, and reports each item whose write has returned; closes the pool at the end of
# its input.
WRITER = """
import select, sys, bristlecone
with bristlecone.open(sys.argv[1], create=True, max_bytes=1 << 30) as pool:
    trees = [pool.tree(design, int, int, design=design) for design in ("sstree", "nbtree", "cclbtree", "lodgetree", "wotree")]
    texts = pool.tree("texts", str, (str, int))
    number = int(sys.argv[2])
    while not select.select([sys.stdin], [], [], 0)[0]:
        for tree in trees:
            tree[number] = number * 3
        texts[f"key {number:09}"] = ("x" * (number % 50), number)
        print(number, flush=True)
        number += 1
"""

DESIGNS = ("sstree", "nbtree", "cclbtree", "lodgetree", "wotree")


class Writer:
    """A writing process."""

    def __init__(self, path: Path, first: int) -> None:
        command = [sys.executable, "-W", "error", "-c", WRITER, str(path), str(first)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def told(self) -> int:
        """Returns the next number that it tells: all up to that are there."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the writer has ended"
        return int(line)

    def ended(self) -> int:
        """Returns the last number that it told."""
        assert self.process.stdout is not None
        told = [int(line) for line in self.process.stdout if line.endswith("\n")]
        self.process.stdout.close()
        return told[-1]

    def close(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        last = self.ended()
        assert self.process.wait() == 0
        return last

    def kill(self) -> int:
        self.process.send_signal(signal.SIGKILL)
        last = self.ended()
        assert self.process.wait() == -signal.SIGKILL
        assert self.process.stdin is not None
        self.process.stdin.close()
        return last


@contextmanager
def writing(path: Path, first: int = 0) -> Iterator[Writer]:
    writer = Writer(path, first)
    try:
        yield writer
    finally:
        if writer.process.poll() is None:
            writer.kill()


def read_all(pool: Pool, told: int) -> None:
    """Looks for what was acknowledged, in every way there is."""
    for design in DESIGNS:
        tree: Tree[int, int] = pool[design]
        assert tree.design == design
        for number in (0, told // 2, told):
            assert tree[number] == number * 3 and number in tree
        assert tree.get(1 << 60) is None and (1 << 60) not in tree
        assert tree.get_many([0, 1 << 60, told], -1) == [0, -1, told * 3]
        assert tree.contains_many([told, 1 << 60]) == [True, False]
        assert len(tree) > told and bool(tree)
        keys = list(tree)
        assert keys == list(range(len(keys))) and len(keys) > told
        downward = list(tree.values(reverse=True))
        assert downward == [key * 3 for key in reversed(range(len(downward)))] and len(downward) > told
        assert list(tree.items(told // 2, told)) == [(key, key * 3) for key in range(told // 2, told)]
        assert len(tree.items(0, told)) == told
        assert tree.first() == (0, 0) and tree.get_le(told) == (told, told * 3)
        last = tree.last()
        assert last is not None and last[0] >= told
        assert tree.stats()["items"] > told
    texts: Tree[str, tuple[str, int]] = pool["texts"]
    assert texts[f"key {told:09}"] == ("x" * (told % 50), told)
    assert [value[1] for value in texts.values(f"key {told // 2:09}", f"key {told:09}")] == list(range(told // 2, told))
    assert texts.get_many([f"key {told:09}", "none"], "-") == [("x" * (told % 50), told), "-"]


def reads(tree: Tree[int, int]) -> list[Callable[[], object]]:
    return [
        lambda: tree[0],
        lambda: tree.get(0),
        lambda: 0 in tree,
        lambda: len(tree),
        lambda: bool(tree),
        lambda: list(tree),
        lambda: list(tree.items(0, 10, reverse=True)),
        lambda: len(tree.items(0, 10)),
        lambda: bool(tree.items(0, 10)),
        lambda: tree.first(),
        lambda: tree.last(),
        lambda: tree.get_lt(5),
        lambda: tree.get_ge(5),
        lambda: tree.get_many([0, 1], None),
        lambda: tree.get_many(memoryview(bytes(8)).cast("Q"), None),
        lambda: tree.contains_many([0, 1]),
        lambda: tree.stats(),
    ]


def expect_no_writer(pool: Pool, trees: list[Tree[int, int]]) -> None:
    """Verifies that whatever reads says that the writer has gone."""
    for tree in trees:
        for number, read in enumerate(reads(tree)):
            try:
                shown = read()
            except NoWriterError as error:
                assert "cannot be followed" in str(error) and error.filename == str(pool.path), number
            else:
                raise AssertionError(f"read {number} of {tree!r}: {shown!r}")
    for use in (lambda: list(pool), lambda: pool["texts"], lambda: bristlecone.open(pool.path, follow=True)):
        with pytest.raises(ConnectionError, match="cannot be followed"):
            use()


def test_a_pool_is_read_while_another_process_writes(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with writing(path) as writer:
        while writer.told() < 300:
            pass
        with bristlecone.open(path, follow=True) as pool:
            info = pool.info()
            assert info["following"] and info["read_only"] and pool.read_only
            assert sorted(pool) == sorted([*DESIGNS, "texts"])
            for _ in range(10):
                read_all(pool, writer.told())
            trees: list[Tree[int, int]] = [pool[design] for design in DESIGNS]
            texts: Tree[str, tuple[str, int]] = pool["texts"]
            items = iter(texts.items())
            began = [next(items) for _ in range(5)]

            # The writer closes the pool: the same handles continue with the next one.
            last = writer.close()
            expect_no_writer(pool, trees)
            began += [next(items) for _ in range(16 - len(began))]
            with pytest.raises(NoWriterError):
                next(items)
            with writing(path, last + 1) as second:
                while (told := second.told()) < last + 100:
                    pass
                read_all(pool, told)
                assert trees[0][told] == told * 3
                began += items
                assert [number for _, (_, number) in began] == list(range(len(began))) and len(began) > told

                # A writer is killed: another one recovers the pool while the follower is open.
                last = second.kill()
            # Its data is readable until it is recovered; items written but not reported are written
            # again.
            with pytest.raises(NoWriterError):
                bristlecone.open(path, follow=True)
            with writing(path, last + 1) as third:
                while (told := third.told()) < last + 100:
                    pass
                read_all(pool, told)
                third.close()
        with bristlecone.open(path) as pool:
            assert all(pool[name].check() == [] for name in pool)
    assert capfd.readouterr().err == ""


def test_a_follower_writes_nothing(pool: Pool, tree: Tree[int, int]) -> None:
    tree[1] = 2
    with bristlecone.open(pool.path, follow=True) as follower:
        with pytest.raises(bristlecone.ReadOnlyError):
            follower.drop_tree("numbers")
        followed: Tree[int, int] = follower.tree("numbers", int, int)
        assert dict(followed) == {1: 2} and not pool.info()["following"]
        tree[3] = 4
        assert dict(followed) == {1: 2, 3: 4}
        writes: list[Callable[[], object]] = [
            lambda: followed.__setitem__(1, 3),
            lambda: followed.__delitem__(1),
            lambda: followed.put(5, 6, overwrite=False),
            lambda: followed.replace(1, 3),
            lambda: followed.setdefault(5, 6),
            lambda: followed.compare_and_swap(1, 2, 3),
            lambda: followed.pop(1),
            lambda: followed.popitem(),
            lambda: followed.update({1: 3}),
            lambda: followed.put_many([1], [3]),
            lambda: followed.remove_many([1]),
            lambda: followed.remove_range(0, 5),
            lambda: followed.clear(),
            lambda: follower.rename_tree("numbers", "names"),
            lambda: follower.prefault(1 << 20),
        ]
        for number, write in enumerate(writes):
            with pytest.raises(bristlecone.ReadOnlyError):
                write()
                raise AssertionError(f"{number} wrote")
        with pytest.raises(bristlecone.ReadOnlyError), follower.batch() as batch:
            batch.put(followed, 1, 3)
        with pytest.raises(bristlecone.NoSuchTreeError):
            follower.tree("new", int, int)
        assert dict(tree) == dict(followed) == {1: 2, 3: 4}
    # The follower closes: the writer is unaffected.
    tree[5] = 6
    assert tree[5] == 6


def test_what_cannot_be_followed(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        bristlecone.open(path, follow=True)
    with bristlecone.open(path, create=True, max_bytes=64 << 20) as pool:
        for options in ({"create": True}, {"exclusive": True}, {"max_bytes": 1 << 20}, {"domain": "process"}):
            with pytest.raises(bristlecone.InvalidError, match="followed"):
                bristlecone.open(path, follow=True, **options)  # type: ignore[arg-type]
        pool.tree("t", int, int)
    with pytest.raises(NoWriterError, match="cannot be followed") as raised:
        bristlecone.open(path, follow=True)
    assert isinstance(raised.value, ConnectionError) and raised.value.filename == str(path)
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.filename) == (str(raised.value), str(path))
