"""What cannot be: an exception that says what to do, and nothing has changed."""

import copy
import errno
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

import bristlecone
from bristlecone import Pool, Tree


def test_every_exception_is_the_packages_and_a_builtin() -> None:
    for name in bristlecone.__all__:
        it = getattr(bristlecone, name)
        if isinstance(it, type) and issubclass(it, Exception):
            assert issubclass(it, bristlecone.Error)
            if it not in (bristlecone.Error, bristlecone.CorruptedError):
                natural = (OSError, ValueError, TypeError, RuntimeError, KeyError)
                assert issubclass(it, natural), it
            again = pickle.loads(pickle.dumps(it("what it is")))
            assert type(again) is it and str(again) == str(it("what it is")) == "what it is"


def test_pools_that_cannot_be_opened(path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="create it with create=True") as raised:
        bristlecone.open(path)
    assert raised.value.errno == errno.ENOENT and raised.value.filename == str(path)
    assert isinstance(raised.value, bristlecone.Error)
    with pytest.raises(FileNotFoundError):
        bristlecone.open(path / "none" / "deeper", create=True)
    path.write_bytes(b"something else" * 1000)
    with pytest.raises(ValueError, match="is not a Bristlecone pool") as other:
        bristlecone.open(path)
    assert isinstance(other.value, bristlecone.NotAPoolError) and other.value.filename == str(path)
    with pytest.raises(FileExistsError):
        bristlecone.open(path, exclusive=True)
    with pytest.raises(bristlecone.NotAPoolError):
        bristlecone.open(path.parent, create=True)


def test_sizes_are_numbers_or_text(path: Path) -> None:
    with bristlecone.open(path, create=True, max_bytes="2G") as pool:
        assert pool.info()["max_bytes"] >= 2 << 30
        pool.snapshot(max_bytes="1M").close()
        copy_of = path.with_suffix(".copy")
        pool.backup(copy_of, max_bytes="64 MiB")
    with bristlecone.open(copy_of) as pool:
        assert 64 << 20 <= pool.info()["max_bytes"] < 128 << 20
    copy_of.unlink()
    for wrong in ("many", "", "-1", "0"):
        with pytest.raises(ValueError, match="size|range"):
            bristlecone.open(path, max_bytes=wrong)
    with pytest.raises(TypeError):
        bristlecone.open(path, max_bytes=[1])  # type: ignore[arg-type]


def test_damaged_pools_raise_and_no_more(path: Path) -> None:
    count = 3000
    with bristlecone.open(path, create=True, max_bytes=64 << 20) as pool:
        pool.tree("numbers", int, int).update((key * 7919, key) for key in range(count))
        pool.tree("texts", str, (str, int)).update((f"key {key}", ("x" * (key % 90), key)) for key in range(count))
    whole, draw = path.read_bytes(), random.Random(7)
    opened = refused = 0

    def visit(pool: Pool, name: str) -> None:
        tree = pool[name]
        for key in range(0, count, 13):
            tree.get(key * 7919 if name == "numbers" else f"key {key}")
        for _, _ in zip(range(4 * count), tree.items()):
            pass
        tree.items().to_numpy()
        tree.check()
        if name == "numbers":
            tree[1] = 1
            assert tree[1] == 1
        with pool.snapshot() as then:
            list(zip(range(4 * count), then[tree].items()))

    for _ in range(20):
        damaged = bytearray(whole)
        for _ in range(draw.randint(1, 40)):
            at = draw.randrange(draw.choice([16384, len(whole) - 64]))
            length = 1 << draw.randrange(7)
            damaged[at : at + length] = draw.randbytes(length) if draw.random() < 0.7 else bytes(length)
        path.write_bytes(damaged)
        try:
            pool = bristlecone.open(path)
        except bristlecone.Error as error:
            assert str(error)
            refused += 1
            continue
        opened += 1
        with pool:
            pool.check()
            for name in ("numbers", "texts"):
                try:
                    visit(pool, name)
                except bristlecone.Error as error:
                    assert str(error)
    assert opened and refused


def test_options_that_cannot_be(path: Path) -> None:
    wrong: list[dict[str, Any]] = [
        {"max_bytes": 0},
        {"max_bytes": -1},
        {"max_bytes": 2**64},
        {"max_bytes": 2**63},
        {"max_bytes": "one gigabyte"},
        {"read_only": True},
        {"domain": "other"},
        {"recovery_threads": 0},
        {"recovery_threads": -1},
        {"other": 1},
    ]
    for options in wrong:
        with pytest.raises((ValueError, TypeError, OverflowError, OSError)):
            bristlecone.open(path, **{"create": True, **options})
        assert not path.exists(), options
    for wrong_path in (7, None, "a\0b"):
        with pytest.raises((TypeError, ValueError, OSError)):
            bristlecone.open(wrong_path, create=True)  # type: ignore[arg-type]


def test_a_pool_has_one_writer(pool: Pool) -> None:
    with pytest.raises(BlockingIOError, match="the pool is in use by process") as raised:
        bristlecone.open(pool.path)
    assert isinstance(raised.value, bristlecone.InUseError)
    import os

    assert raised.value.pid == os.getpid() and raised.value.errno == errno.EAGAIN


def test_what_is_closed_says_so(path: Path) -> None:
    pool = bristlecone.open(path, create=True)
    tree = pool.tree("t", int, int)
    tree.update((key, key) for key in range(5000))
    view, items = tree.items(), iter(tree.items())
    next(items)
    pool.close()
    pool.close()
    assert pool.closed and tree.closed
    uses: list[Any] = [
        lambda: tree[1],
        lambda: tree.__setitem__(1, 2),
        lambda: tree.__delitem__(1),
        lambda: 1 in tree,
        lambda: len(tree),
        lambda: list(tree),
        lambda: list(view),
        lambda: list(items),
        lambda: len(view),
        lambda: tree.popitem(),
        lambda: tree.clear(),
        lambda: tree.stats(),
        lambda: tree.check(),
        lambda: tree.first(),
        lambda: tree.get_many([1]),
        lambda: tree.put_many([1], [1]),
        lambda: tree.design,
        lambda: tree.get_le(1),
        lambda: tree.remove_range(),
        lambda: view.to_numpy(),
        lambda: pool.tree("t"),
        lambda: pool["t"],
        lambda: list(pool),
        lambda: pool.info(),
        lambda: pool.check(),
        lambda: pool.drop_tree("t"),
        lambda: pool.rename_tree("t", "u"),
        lambda: pool.clear_tree("t"),
        lambda: pool.prefault(1),
    ]
    for use in uses:
        with pytest.raises(ValueError, match="is closed") as raised:
            use()
        assert isinstance(raised.value, bristlecone.ClosedError)
    assert tree.name == "t" and "closed" in repr(tree) and "closed" in repr(pool)
    with bristlecone.open(path) as again:
        assert again.info()["was_clean"] and len(again["t"]) == 5000


def test_a_pool_stays_open_for_its_trees(path: Path) -> None:
    tree = bristlecone.open(path, create=True).tree("t", int, int)
    tree[1] = 2
    with pytest.raises(bristlecone.InUseError):
        bristlecone.open(path)
    del tree
    with bristlecone.open(path) as pool:
        assert pool.info()["was_clean"] and pool["t"][1] == 2


def test_a_closed_tree_can_be_opened_again(pool: Pool) -> None:
    tree = pool.tree("t", int, int)
    tree[1] = 2
    tree.close()
    with pytest.raises(bristlecone.ClosedError):
        tree[1]
    assert pool["t"][1] == 2 and tree.closed


def test_handles_are_not_copied(pool: Pool, tree: Tree[int, int]) -> None:
    for it in (pool, tree, tree.items(), iter(tree)):
        with pytest.raises(TypeError):
            pickle.dumps(it)
        with pytest.raises(TypeError):
            copy.deepcopy(it)
        with pytest.raises(TypeError):
            type(it)()


def test_a_program_may_fail_within_the_block(path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        with bristlecone.open(path, create=True) as pool:
            pool.tree("t", int, int).update({1: 1 // 0})
    with bristlecone.open(path) as pool:
        assert pool.info()["was_clean"] and len(pool["t"]) == 0
