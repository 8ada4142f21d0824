"""Many keys at a time, from arrays and from whatever can be iterated over."""

import array
from typing import Any

import pytest

import bristlecone
from bristlecone import Pool, Tree


def test_lists_and_iterators(pool: Pool) -> None:
    tree = pool.tree("t", str, int)
    tree.put_many(["a", "b", "c"], (1, 2, 3))
    tree.put_many((key for key in "de"), iter([4, 5]))
    assert dict(tree) == {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}
    assert tree.get_many(["e", "x", "a"]) == [5, None, 1]
    assert tree.get_many(iter("ex"), default=0) == [5, 0]
    assert tree.get_many([]) == [] and tree.contains_many(iter(())) == []
    assert tree.contains_many({"a": 0, "x": 0}) == [True, False]
    assert tree.remove_many(["a", "x", "a", "b"]) == 2
    assert list(tree) == ["c", "d", "e"]


def test_as_many_values_as_keys(tree: Tree[int, int]) -> None:
    with pytest.raises(ValueError, match="not 1 for 2"):
        tree.put_many([1, 2], [1])
    assert len(tree) == 0
    with pytest.raises(ValueError, match="as many values as keys"):
        tree.put_many(iter([1, 2]), iter([1]))


def test_one_text_is_no_list_of_keys(pool: Pool) -> None:
    tree = pool.tree("t", str, str)
    for use in (tree.get_many, tree.contains_many, tree.remove_many, lambda keys: tree.put_many(keys, keys)):
        with pytest.raises(TypeError, match="not one str"):
            use("abc")
    for wrong in (7, None):
        with pytest.raises(TypeError):
            tree.get_many(wrong)


def test_what_was_done_before_an_error_is_told(tree: Tree[int, int]) -> None:
    keys: list[Any] = list(range(20_000))
    keys[17_000] = "x"
    with pytest.raises(TypeError) as raised:
        tree.put_many(keys, range(20_000))
    done = raised.value.done  # type: ignore[attr-defined]
    assert len(tree) == done <= 17_000 and raised.value.__notes__ == [f"{done} items were done before"]
    assert list(tree) == list(range(done))

    def keys_that_end() -> Any:
        yield from range(5)
        raise LookupError("no more")

    with pytest.raises(LookupError) as other:
        tree.remove_many(keys_that_end())
    assert other.value.done == 0  # type: ignore[attr-defined]


def test_buffers_of_the_standard_library(tree: Tree[int, int]) -> None:
    keys, values = array.array("Q", range(100)), array.array("q", range(100, 200))
    tree.put_many(keys, values)
    assert dict(tree) == dict(zip(range(100), range(100, 200)))
    with pytest.raises(OverflowError, match="-1, at 1, is no key of type u64"):
        tree.contains_many(array.array("q", [0, -1]))
    with pytest.raises(TypeError, match="has no keys of type u64"):
        tree.remove_many(array.array("d", [0.0]))


numpy: Any = pytest.importorskip("numpy")


def test_arrays_of_words(tree: Tree[int, int]) -> None:
    draw = numpy.random.default_rng(7)
    keys = draw.permutation(100_000).astype(numpy.uint64) * 3
    tree.put_many(keys, keys + 1)
    assert len(tree) == 100_000
    found = tree.get_many(keys)
    assert found.dtype == numpy.uint64 and (found == keys + 1).all() and found.flags.writeable
    with pytest.raises(KeyError, match="1") as raised:
        tree.get_many(numpy.array([3, 1, 4], dtype="Q"))
    assert "2 of 3 keys are absent" in raised.value.__notes__[0]
    assert tree.get_many(numpy.array([3, 1], dtype="Q"), default=9).tolist() == [4, 9]
    assert tree.contains_many(numpy.array([3, 1], dtype="Q")).tolist() == [True, False]
    assert tree.get_many(numpy.array([], dtype="Q")).tolist() == []
    assert tree.remove_many(keys[:50_000]) == 50_000 and len(tree) == 50_000
    # With gaps, reversed, of another type, in foreign byte order, read-only.
    some = numpy.arange(0, 3000, 3, dtype=numpy.uint64)
    tree.put_many(some, some)
    for keys in (some[::2], some[::-1], some.astype("i4"), some.astype(">u8"), some.astype(object)):
        assert list(tree.get_many(keys)) == list(keys)
    some.flags.writeable = False
    assert (tree.get_many(some) == some).all()
    for wrong in (some.reshape(2, -1), numpy.array(7, dtype="Q")):
        with pytest.raises((ValueError, TypeError)):
            tree.get_many(wrong)
    with pytest.raises((TypeError, OverflowError)):
        tree.get_many(numpy.array([0.5]))


@pytest.mark.parametrize("kind", ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "f32", "f64", "bool"])
def test_arrays_of_every_number(pool: Pool, kind: str) -> None:
    dtype = {"b": "?"}.get(kind[0], kind[0] + str(int(kind[1:] or 8) // 8) if kind != "bool" else "?")
    tree = pool.tree(kind, kind, kind)
    if kind == "bool":
        keys = numpy.array([False, True])
    elif kind[0] == "f":
        keys = numpy.array([-numpy.inf, -1.5, 0.0, 2.25, numpy.inf], dtype=dtype)
    else:
        limits = numpy.iinfo(dtype)
        keys = numpy.unique(numpy.array([limits.min, 0, 1, 100, limits.max], dtype=dtype))
    tree.put_many(keys, keys[::-1])
    assert tree.get_many(keys).dtype == keys.dtype
    assert tree.get_many(keys).tolist() == keys[::-1].tolist()
    got = tree.items().to_numpy()
    assert (got[0].dtype, got[1].dtype) == (keys.dtype, keys.dtype)
    assert got[0].tolist() == keys.tolist() and got[1].tolist() == keys[::-1].tolist()
    assert tree.contains_many(keys).all() and tree.remove_many(keys) == len(keys)
    assert tree.items().to_numpy()[0].tolist() == []


def test_ranges_as_arrays(pool: Pool, tree: Tree[int, int]) -> None:
    tree.put_many(range(50_000), range(1, 50_001))
    keys, values = tree.items(10, 40_000).to_numpy()
    assert keys.tolist() == list(range(10, 40_000)) and (values == keys + 1).all()
    assert tree.keys(reverse=True).to_numpy().tolist() == list(range(49_999, -1, -1))
    assert tree.values(49_998).to_numpy().tolist() == [49_999, 50_000]
    # A multiple of the group size, and one less and one more.
    for count in (16_383, 16_384, 16_385, 32_768):
        assert tree.keys(0, count).to_numpy().tolist() == list(range(count))
        assert tree.keys(0, count, reverse=True).to_numpy().tolist() == list(range(count - 1, -1, -1))
        assert tree.values(0, count).to_numpy().tolist() == list(range(1, count + 1))
    # They have their own memory.
    keys[0] = 7
    tree.close()
    assert keys[0] == 7 and keys[1] == 11
    texts = pool.tree("texts", str, (int, bytes))
    texts["ü"] = (1, b"x")
    texts[""] = (2, b"")
    keys, values = texts.items().to_numpy()
    assert keys.tolist() == ["", "ü"] and values.tolist() == [(2, b""), (1, b"x")]
    assert texts.items("x", "y").to_numpy()[0].tolist() == []


def test_arrow(pool: Pool) -> None:
    arrow = pytest.importorskip("pyarrow")
    tree = pool.tree("t", int, int)
    tree.put_many(arrow.array(range(1000), arrow.uint64()), arrow.chunked_array([range(600), range(400)]))
    got = tree.get_many(arrow.array([1, 2000, 3], arrow.int32()))
    assert got.to_pylist() == [1, None, 3] and got.type == arrow.uint64()
    assert tree.get_many(arrow.array([1, 2000]), default=5).to_pylist() == [1, 5]
    with pytest.raises(TypeError):
        tree.get_many(arrow.array([1, None]))
    table = tree.items(10, 900).to_arrow(batch_size=100).read_all()
    assert table.column_names == ["key", "value"] and table.num_rows == 890
    assert [len(batch) for batch in tree.items(10, 315).to_arrow(100)] == [100, 100, 100, 5]
    assert table["key"].to_pylist() == list(range(10, 900))
    reverse = tree.keys(reverse=True).to_arrow(300).read_all()
    assert reverse["key"].to_pylist() == list(range(999, -1, -1))
    # Anything that accepts Arrow's C data interface accepts a view.
    assert arrow.table(tree.items()).num_rows == 1000
    for batch in tree.items().to_arrow(0 + 7):
        batch.validate(full=True)

    mixed = pool.tree("m", (str, int | None), str | None)
    mixed.update({("a", None): None, ("b", 1): "x"})
    table = mixed.items().to_arrow().read_all()
    table.validate(full=True)
    assert table.to_pylist() == [
        {"key": {"0": "a", "1": None}, "value": None},
        {"key": {"0": "b", "1": 1}, "value": "x"},
    ]
    texts = pool.tree("x", str, bytes)
    texts.update({"ü": b"\xff", "": b""})
    table = texts.items().to_arrow().read_all()
    table.validate(full=True)
    assert table.to_pylist() == [{"key": "", "value": b""}, {"key": "ü", "value": b"\xff"}]
    got = texts.get_many(arrow.array(["ü", "none", ""]))
    got.validate(full=True)
    assert got.to_pylist() == [b"\xff", None, b""]
    big = pool.tree("b", "u128", int)
    with pytest.raises(TypeError, match="no type for u128"):
        big.items().to_arrow()
    assert pool.tree("e", str, str).items().to_arrow().read_all().num_rows == 0


def test_pandas(pool: Pool) -> None:
    pandas = pytest.importorskip("pandas")
    import json

    tree = pool.tree("t", int, codec=json)
    tree.put_many([1, 2], [{"a": 1}, [2]])
    frame = tree.items().to_pandas()
    assert frame["key"].tolist() == [1, 2] and frame["value"].tolist() == [{"a": 1}, [2]]
    assert tree.keys().to_pandas().columns.tolist() == ["key"]
    numbers = pool.tree("n", int, float)
    numbers.put_many(pandas.Series([1, 2, 3]), pandas.Series([0.5, 1.5, 2.5]))
    assert numbers.items(2).to_pandas()["value"].mean() == 2.0
    assert numbers.get_many(pandas.Index([3, 1])).tolist() == [2.5, 0.5]


def test_a_full_pool_says_how_far_it_came(path: Any) -> None:
    with bristlecone.open(path, create=True, max_bytes=16 << 20) as pool:
        tree = pool.tree("t", int, int)
        keys = numpy.random.default_rng(7).permutation(2_000_000).astype("Q")
        with pytest.raises(OSError, match="the pool is full") as raised:
            tree.put_many(keys, keys)
        assert isinstance(raised.value, bristlecone.PoolFullError)
        done = raised.value.done
        assert len(tree) == done > 100_000
        assert (tree.get_many(keys[:done]) == keys[:done]).all() and not tree.contains_many(keys[done:]).any()
        assert tree.remove_many(keys[:10]) == 10 and tree.check() == []
