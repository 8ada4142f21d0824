"""Values of any type, by a codec that the caller gives."""

import json
import pickle
from typing import Any

import pytest

from bristlecone import ABSENT, Pool


def test_json_is_stored_as_json(pool: Pool) -> None:
    tree = pool.tree("t", str, codec=json)
    assert tree.value_kind == "json" and tree.codec is json
    tree["a"] = {"x": [1, None, 2.5, "ü"]}
    assert tree["a"] == {"x": [1, None, 2.5, "ü"]}
    assert pool.tree("t")["a"] == '{"x": [1, null, 2.5, "\\u00fc"]}'
    with pytest.raises(ValueError, match="no JSON"):
        tree["a"] = float("nan")
    with pytest.raises(TypeError, match="not JSON serializable"):
        tree["a"] = object()
    with pytest.raises(ValueError, match="no JSON"):
        pool.tree("t")["b"] = "{"
    assert list(tree.values()) == [tree["a"]] and len(tree) == 1


class Point:
    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and other.x == self.x


def test_pickle_is_used_if_it_is_given(pool: Pool) -> None:
    tree = pool.tree("t", int, codec=pickle)
    assert tree.value_kind == "bytes"
    tree[1] = Point(7)
    assert tree[1] == Point(7)
    assert tree.pop(1) == Point(7)
    assert tree.get(1) is None and tree.setdefault(1, None) is None
    assert tree[1] is None and tree.popitem() == (1, None)
    assert tree.compare_and_swap(1, ABSENT, [1]) and tree.compare_and_swap(1, [1], [2]) and tree[1] == [2]
    assert tree.replace(1, {}) == [2]
    tree.put_many([2, 3], ["a", ("b",)])
    assert tree.get_many([3, 2, 1, 0], default="none") == [("b",), "a", {}, "none"]
    # Without it, bytes are bytes.
    assert pickle.loads(pool["t"][1]) == {}


def test_a_pair_of_functions_is_a_codec(pool: Pool) -> None:
    tree = pool.tree("t", int, str, codec=(lambda it: f"<{it}>", lambda text: int(text[1:-1])))
    tree[1] = 23
    assert tree[1] == 23 and pool["t"][1] == "<23>"


def test_msgpack(pool: Pool) -> None:
    msgpack = pytest.importorskip("msgpack")
    tree = pool.tree("t", int, codec=(msgpack.packb, msgpack.unpackb))
    tree[1] = {"a": [1, b"x"]}
    assert tree[1] == {"a": [1, b"x"]} and tree.value_kind == "bytes"


@pytest.mark.parametrize("wrong", [7, (1, 2), (print,), object(), "json"])
def test_other_codecs_are_refused(pool: Pool, wrong: Any) -> None:
    with pytest.raises(TypeError, match="a codec has functions dumps and loads"):
        pool.tree("t", int, codec=wrong)
    assert len(pool) == 0


def test_a_codec_needs_bytes_or_text(pool: Pool) -> None:
    pool.tree("t", int, int)
    with pytest.raises(TypeError, match="not u64"):
        pool.tree("t", codec=json)


def test_a_codec_may_use_the_tree_and_may_fail(pool: Pool) -> None:
    plain = pool.tree("t", int, bytes)

    def dumps(value: Any) -> bytes:
        plain[value] = b"seen"
        pool.clear_tree("other") if "other" in pool else None
        return b"x"

    def loads(stored: bytes) -> Any:
        del plain[1]
        raise LookupError("no")

    tree = pool.tree("t", codec=(dumps, loads))
    tree[1] = 2
    assert plain[2] == b"seen"
    with pytest.raises(LookupError, match="no"):
        tree[1]
    assert 1 not in plain
    with pytest.raises(TypeError, match="is bytes, not int"):
        pool.tree("t", codec=(lambda it: 7, loads))[1] = 2
