"""Several threads on one tree."""

import threading
from pathlib import Path
from typing import Any

import pytest

import bristlecone
from bristlecone import ABSENT, Pool, Tree


def together(*works: Any) -> None:
    """Runs each work in a thread; raises what any of them raises."""
    raised: list[BaseException] = []

    def run(work: Any) -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()
    if raised:
        raise raised[0]


def test_counters_count_every_step(tree: Tree[int, int]) -> None:
    def count() -> None:
        for step in range(5000):
            key = step % 10
            while True:
                held = tree.get(key)
                if tree.compare_and_swap(key, ABSENT if held is None else held, (held or 0) + 1):
                    break

    together(*[count] * 4)
    assert list(tree.values()) == [2000] * 10


def test_items_are_popped_once(tree: Tree[int, int]) -> None:
    tree.put_many(range(20_000), range(20_000))
    popped: list[list[int]] = [[], [], []]

    def pop(number: int) -> None:
        while True:
            try:
                popped[number].append(tree.popitem(last=number == 0)[0])
            except KeyError:
                return

    together(*(lambda number=number: pop(number) for number in range(3)))
    assert sorted(sum(popped, [])) == list(range(20_000)) and len(tree) == 0


def test_readers_and_writers_of_arrays(tree: Tree[int, int]) -> None:
    numpy = pytest.importorskip("numpy")
    keys = numpy.random.default_rng(7).permutation(200_000).astype("Q")
    done = threading.Event()

    def write() -> None:
        tree.put_many(keys, keys * 2)
        done.set()

    def read() -> None:
        while not done.is_set():
            found = tree.get_many(keys[:10_000], default=2**64 - 1)
            assert ((found == keys[:10_000] * 2) | (found == 2**64 - 1)).all()
            some, values = tree.items(1000, 2000).to_numpy()
            assert (values == some * 2).all()
            last = -1
            for key, value in tree.items(0, 5000):
                assert last < key and value == key * 2
                last = key

    together(write, read, read)
    assert (tree.get_many(keys) == keys * 2).all()


def test_one_iterator_in_several_threads_gives_each_item_once(tree: Tree[int, int]) -> None:
    tree.put_many(range(50_000), range(50_000))
    items, seen = iter(tree), [list[int]() for _ in range(3)]
    together(*(lambda mine=mine: mine.extend(items) for mine in seen))
    assert sorted(sum(seen, [])) == list(range(50_000))


def test_a_pool_is_closed_amid_work(path: Path) -> None:
    for _ in range(10):
        pool = bristlecone.open(path, create=True)
        tree = pool.tree("t", int, int)
        begun = threading.Barrier(4)

        def work(use: Any) -> Any:
            def run() -> None:
                begun.wait()
                with pytest.raises(bristlecone.ClosedError):
                    while True:
                        use()

            return run

        def close() -> None:
            begun.wait()
            pool.close()

        together(
            work(lambda: tree.put_many(range(2000), range(2000))),
            work(lambda: (tree.get(7), tree.__setitem__(7, 8), list(tree.items(0, 100)))),
            work(lambda: pool.tree("t", int, int)),
            close,
        )
        with bristlecone.open(path) as again:
            assert again.info()["was_clean"] and again["t"].check() == []


def test_trees_are_opened_cleared_and_renamed_by_several_threads(pool: Pool) -> None:
    def use() -> None:
        for number in range(200):
            tree = pool.tree("t", int, int)
            tree[number] = number
            tree.get(number)
            list(tree)

    def clear() -> None:
        for _ in range(100):
            try:
                pool.tree("t", int, int).clear()
            except bristlecone.TreeInUseError:
                pass

    together(use, use, clear)
    assert pool["t"].check() == []
