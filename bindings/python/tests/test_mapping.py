"""Trees as mutable mappings: what a dict does, in the order of the keys."""

import random
from collections.abc import Mapping, MutableMapping
from pathlib import Path

import pytest

import bristlecone
from bristlecone import ABSENT, Pool, Tree


def test_a_tree_does_what_a_sorted_dict_does(tree: Tree[int, int]) -> None:
    draw, model = random.Random(7), dict[int, int]()
    for _ in range(20_000):
        key, value = draw.randrange(500), draw.randrange(1 << 64)
        match draw.randrange(9):
            case 0 | 1:
                tree[key] = value
                model[key] = value
            case 2:
                assert tree.get(key) == model.get(key)
                assert tree.get(key, "none") == model.get(key, "none")
            case 3:
                assert (key in tree) == (key in model)
            case 4:
                assert tree.pop(key, None) == model.pop(key, None)
            case 5:
                assert tree.setdefault(key, value) == model.setdefault(key, value)
            case 6:
                assert tree.replace(key, value, -1) == model.get(key, -1)
                model[key] = value
            case 7:
                assert tree.put(key, value, overwrite=False) == (key not in model)
                model.setdefault(key, value)
            case 8 if model:
                last = draw.random() < 0.5
                key = max(model) if last else min(model)
                assert tree.popitem(last=last) == (key, model.pop(key))
    assert len(tree) == len(model)
    assert list(tree.items()) == sorted(model.items())
    assert list(tree) == list(tree.keys()) == sorted(model)
    assert list(tree.values()) == [model[key] for key in sorted(model)]
    assert list(reversed(tree)) == sorted(model, reverse=True)
    assert tree.first() == min(model.items()) and tree.last() == max(model.items())


def test_absent_keys_are_key_errors(tree: Tree[int, int]) -> None:
    for use in (lambda: tree[7], lambda: tree.pop(7), lambda: tree.__delitem__(7)):
        with pytest.raises(KeyError) as raised:
            use()
        assert raised.value.args == (7,)
    with pytest.raises(KeyError, match="the tree is empty"):
        tree.popitem()
    assert tree.first() is None and tree.last() is None and not tree
    assert tree.pop(7, None) is None
    with pytest.raises(TypeError, match="at most 2 arguments"):
        tree.pop(7, 8, 9)  # type: ignore[call-overload]


def test_update_takes_what_dict_update_takes(pool: Pool) -> None:
    tree = pool.tree("ages", str, int)
    tree.update({"a": 1, "b": 2})
    tree.update([("b", 3), ["c", 4]], d=5)
    tree.update()
    tree |= {"e": 6}
    tree.update(tree.items("a", "c"))
    assert dict(tree) == {"a": 1, "b": 3, "c": 4, "d": 5, "e": 6}
    for wrong in (7, [7], [("a", 1, 2)]):
        with pytest.raises((TypeError, ValueError)):
            tree.update(wrong)


def test_clear_empties_a_tree_that_is_in_use(pool: Pool, tree: Tree[int, int]) -> None:
    tree.update((key, key) for key in range(1000))
    again, items = pool.tree("numbers", int, int), iter(tree.items())
    assert next(items) == (0, 0)
    tree.clear()
    assert len(tree) == len(again) == 0
    again[1] = 2
    assert tree[1] == 2
    # The items already read, and then no more.
    assert len(list(items)) < 1000
    pool.clear_tree("numbers")
    assert not tree and not again


def test_compare_and_swap(tree: Tree[int, int]) -> None:
    assert not tree.compare_and_swap(1, 5, 6)
    assert tree.compare_and_swap(1, ABSENT, ABSENT)
    assert tree.compare_and_swap(1, ABSENT, 5)
    assert not tree.compare_and_swap(1, ABSENT, 6)
    assert tree.compare_and_swap(1, 5, 6) and tree[1] == 6
    assert not tree.compare_and_swap(1, 5, ABSENT)
    assert tree.compare_and_swap(1, 6, ABSENT) and 1 not in tree
    assert not ABSENT and repr(ABSENT) == "bristlecone.ABSENT"


def test_views_are_live_and_bounded(tree: Tree[int, int]) -> None:
    view = tree.items(10, 20)
    assert list(view) == [] and not view and len(view) == 0
    tree.update((key, key * 2) for key in range(0, 40, 2))
    assert list(view) == [(key, key * 2) for key in range(10, 20, 2)]
    assert list(view) == list(view) and len(view) == 5 and view
    assert list(reversed(view)) == list(view)[::-1]
    assert list(tree.keys(10, 20, reverse=True)) == [18, 16, 14, 12, 10]
    assert list(reversed(tree.keys(10, 20, reverse=True))) == [10, 12, 14, 16, 18]
    assert list(tree.values(stop=6)) == [0, 4, 8]
    assert list(tree.keys(36)) == [36, 38]
    assert list(tree.keys(10, 14, inclusive=(False, True))) == [12, 14]
    assert list(tree.keys(14, 10)) == []
    assert 12 in tree.keys() and 13 not in tree.keys()
    assert 12 in tree.keys(10, 14) and 14 not in tree.keys(10, 14)
    assert (12, 24) in tree.items() and (12, 25) not in tree.items() and 12 not in tree.items()
    assert 24 in tree.values()
    assert len(tree.items()) == 20 and repr(view) == "<bristlecone.View of \"numbers\": part Items>"


def test_an_iterator_goes_on_while_the_tree_changes(tree: Tree[int, int]) -> None:
    tree.update((key, 0) for key in range(0, 20_000, 2))
    seen = []
    for key in tree:
        seen.append(key)
        # Behind it, before it, and far before it.
        tree[max(key - 1, 1)] = 1
        tree.pop(key, None)
        tree[key + 10_001 + key % 2] = 1 if key < 9_000 else 2
        if len(seen) > 50_000:
            break
    assert seen == sorted(set(seen))
    assert set(range(0, 10_000, 2)) <= set(seen)


def test_prefixes(pool: Pool) -> None:
    texts = pool.tree("texts", str, int)
    texts.update({"": 0, "a": 1, "ab": 2, "abc": 3, "b": 4, "ü": 5, "üb": 6})
    assert [key for key, _ in texts.prefix("a")] == ["a", "ab", "abc"]
    assert [key for key, _ in texts.prefix("ü", reverse=True)] == ["üb", "ü"]
    assert len(texts.prefix("")) == 7 and not texts.prefix("x")
    raw = pool.tree("raw", bytes, None)
    raw.update({b"\xff": None, b"\xff\xff": None, b"\xfe": None})
    assert [key for key, _ in raw.prefix(b"\xff")] == [b"\xff", b"\xff\xff"]
    pairs = pool.tree("pairs", (str, int), int)
    pairs.update({("a", 1): 1, ("a", 2): 2, ("ab", 1): 3})
    assert list(pairs.prefix(("a",))) == [(("a", 1), 1), (("a", 2), 2)]
    assert len(pairs.prefix(())) == 3 and len(pairs.prefix(("a", 2))) == 1
    for wrong in ("a", ("a", 1, 2), (1,)):
        with pytest.raises(TypeError):
            pairs.prefix(wrong)
    with pytest.raises(ValueError, match="have no prefixes"):
        pool.tree("n", int, int).prefix(1)
    assert texts.remove_prefix("ab") == 2 and texts.remove_prefix("x") == 0 and len(texts) == 5
    assert pairs.remove_prefix(("a",)) == 2 and pairs.remove_prefix(()) == 1 and not pairs
    with pytest.raises(ValueError, match="have no prefixes"):
        pool.tree("n", int, int).remove_prefix(1)


def test_neighbours_and_parts(tree: Tree[int, int]) -> None:
    tree.update((key, key) for key in range(0, 100, 10))
    assert (tree.get_lt(20), tree.get_le(20), tree.get_ge(20), tree.get_gt(20)) == ((10, 10), (20, 20), (20, 20), (30, 30))
    assert (tree.get_lt(0), tree.get_le(5), tree.get_ge(91), tree.get_gt(90)) == (None, (0, 0), None, None)
    assert tree.remove_range(10, 40) == 3 and list(tree.keys(stop=50)) == [0, 40]
    assert tree.remove_range(40, 50, inclusive=(False, True)) == 1
    assert tree.remove_range(80) == 2 and tree.remove_range(9, 3) == 0
    assert list(tree) == [0, 40, 60, 70] and tree.remove_range() == 4 and not tree
    with pytest.raises(TypeError):
        tree.remove_range("a")  # type: ignore[arg-type]


def test_a_pool_is_copied(path: Path) -> None:
    with bristlecone.open(path, create=True) as pool:
        pool.tree("t", str, int).put_many(map(str, range(5000)), range(5000))
        # Also while it is in use.
        other = path.with_name("other.pool")
        assert pool.backup(other) == {"t": 5000}
        with bristlecone.open(other, read_only=True) as copied:
            assert dict(copied["t"]) == dict(pool["t"])
    copy = path.with_name("copy.pool")
    with bristlecone.open(path, read_only=True) as pool:
        assert pool.backup(copy, design="nbtree", max_bytes=128 << 20) == {"t": 5000}
        with pytest.raises(FileExistsError):
            pool.backup(copy)
        with pytest.raises(ValueError):
            pool.backup(path.with_name("other"), design="none")
    with bristlecone.open(copy) as pool:
        assert pool["t"].design == "nbtree" and pool["t"]["4999"] == 4999
        pool.drop_tree("t")
        assert pool.trim() > 0


def test_trees_are_mappings_to_others(pool: Pool, tree: Tree[int, int]) -> None:
    assert isinstance(tree, MutableMapping) and isinstance(pool, Mapping)
    assert str(Tree[int, str]) == "bristlecone.Tree[int, str]"
    tree[1] = 2
    assert [*pool.keys()] == [*{**pool}] == [*pool] == ["numbers"] and pool.get("none") is None
    assert dict(tree.items()) == {1: 2}
    match tree:
        case {1: value}:
            assert value == 2
        case _:
            raise AssertionError


def test_pools_have_trees_by_name(pool: Pool) -> None:
    assert list(pool) == [] and len(pool) == 0 and "t" not in pool and 7 not in pool
    tree = pool.tree("t", (str, int), float, design="nbtree", options=[("block_bytes", 512)])
    assert (tree.name, tree.key_kind, tree.value_kind, tree.design) == ("t", "(str, u64)", "f64", "nbtree")
    assert tree.options["block_bytes"] == 512
    with pytest.raises(ValueError, match="nbtree with locking=1 is an experiment"):
        pool.tree("other", (str, int), float, design="nbtree", options=[("locking", 1)])
    about = pool.trees()["t"]
    assert (about["key"], about["value"], about["design"]) == ("(str, u64)", "f64", "nbtree")
    tree["x", 1] = 0.5
    assert pool["t"]["x", 1] == 0.5 and "t" in pool and len(pool) == 1
    pool.rename_tree("t", "u")
    assert tree.name == "u" and tree["x", 1] == 0.5 and pool["u"]["x", 1] == 0.5
    tree.clear()
    assert tree.name == "u" and len(tree) == 0
    with pytest.raises(bristlecone.TreeInUseError):
        del pool["u"]
    tree.close()
    assert tree.closed
    del pool["u"]
    assert "u" not in pool
    with pytest.raises(KeyError, match='no tree named "u"'):
        pool["u"]
    info = pool.info()
    assert info["domain"] == pool.domain and info["path"] == pool.path and not info["read_only"]
    assert tree.key_kind == "(str, u64)" and "closed" in repr(tree)


def test_trees_tell_what_they_occupy(tree: Tree[int, int]) -> None:
    tree[1] = 2
    stats = tree.stats()
    assert stats["items"] == 1 and stats["pm_bytes"] > 0
    assert tree.check() == []


def test_what_is_written_is_there_again(path: Path) -> None:
    with bristlecone.open(path, create=True, exclusive=True) as pool:
        pool.tree("t", str, (int, str))["a"] = (1, "x")
    with bristlecone.open(path, read_only=True) as pool:
        assert pool.info()["was_clean"] and pool.read_only
        tree = pool["t"]
        assert tree["a"] == (1, "x")
        for write in (lambda: tree.__setitem__("b", (2, "y")), tree.clear, lambda: pool.tree("new", int, int)):
            with pytest.raises((PermissionError, KeyError)):
                write()
