"""Types of keys and values: all of their values, and what is none of them."""

import math
import struct
from typing import Any, Optional

import pytest

import bristlecone
from bristlecone import Pool

BITS = {"8": 8, "16": 16, "32": 32, "64": 64, "128": 128}


@pytest.mark.parametrize("bits", BITS.values())
@pytest.mark.parametrize("sign", "ui")
def test_integers_have_all_their_values_and_no_other(pool: Pool, sign: str, bits: int) -> None:
    kind = f"{sign}{bits}"
    tree = pool.tree(kind, kind, kind)
    least, most = (0, 2**bits - 1) if sign == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for number in (least, least + 1, 0, 1, most - 1, most):
        tree[number] = number
        assert tree[number] == number
    assert list(tree) == sorted({least, least + 1, 0, 1, most - 1, most})
    for number in (least - 1, most + 1, 10**40, -(10**40), 10**5000):
        with pytest.raises(OverflowError, match=f"is no key of type {kind} \\({least} to {most}\\)"):
            tree[number]
        with pytest.raises(OverflowError, match=f"no value of type {kind}"):
            tree[0] = number
    for wrong in ("1", 1.0, None, b"1", (1,)):
        with pytest.raises(TypeError, match=f"a key of type {kind} is an int, not"):
            tree.get(wrong)
    assert len(tree) == len({least, least + 1, 0, 1, most - 1, most})


def test_floats_order_totally(pool: Pool) -> None:
    tree = pool.tree("f", float, "f32")
    keys = [-math.inf, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.5, 1.7976931348623157e308, math.inf, math.nan]
    for key in reversed(keys):
        tree[key] = 0.25
    assert list(map(repr, tree)) == list(map(repr, keys))
    tree[3] = 3
    assert tree[3.0] == 3.0
    with pytest.raises(OverflowError):
        tree[1.0] = 1e39
    tree[1.0] = math.inf
    tree[2.0] = 0.1
    assert tree[2.0] == struct.unpack("f", struct.pack("f", 0.1))[0]
    with pytest.raises(TypeError, match="is a float, not str"):
        tree["1.0"] = 1.0


TYPES: list[tuple[Any, str, list[Any], list[Any]]] = [
    (int, "u64", [0, 2**64 - 1], []),
    (str, "str", ["", "\0", "a", "x" * 5000, "ü", "\U0001f332"], [b"a", 1, None]),
    (bytes, "bytes", [b"", b"\0", b"\xff" * 5000], ["a", 1, None, [1]]),
    (bool, "bool", [False, True], [0, 1, None, "x"]),
    (None, "()", [None], [0, (), ""]),
    (type(None), "()", [None], [0]),
    ("char", "char", ["a", "ü", "\U0010ffff"], ["", "ab", 1]),
    ("[u8; 4]", "[u8; 4]", [b"abcd"], [b"abc", b"abcde", "abcd"]),
    ((str, int), "(str, u64)", [("", 0), ("a\0b", 7)], [("a",), ("a", 1, 2), ["a", 1], "a", ("a", "b")]),
    ((bytes,), "(bytes,)", [(b"",), (b"\0\xff",)], [(), b""]),
    (tuple[str, tuple[int, bool]], "(str, (u64, bool))", [("a", (1, True))], [("a", 1, True)]),
    (str | None, "Option<str>", [None, "", "a"], [1, b"a"]),
    (Optional[int], "Option<u64>", [None, 0, 2**64 - 1], ["a"]),
    ((int | None, str), "(Option<u64>, str)", [(None, "a"), (1, "b")], [("a", None)]),
]


@pytest.mark.parametrize(("type", "kind", "values", "wrong"), TYPES, ids=lambda it: str(it)[:20])
def test_types_are_kinds(pool: Pool, type: Any, kind: str, values: list[Any], wrong: list[Any]) -> None:
    tree = pool.tree("t", type, type)
    assert tree.key_kind == tree.value_kind == kind
    for value in values:
        tree[value] = value
        assert tree[value] == value and tree.pop(value) == value
        assert tree.setdefault(value, value) == value
    assert list(tree) == values == [value for _, value in tree.items()]
    for value in wrong:
        with pytest.raises((TypeError, OverflowError)):
            tree[value]
        with pytest.raises((TypeError, OverflowError)):
            tree[values[0]] = value
    assert list(tree) == values


def test_bytes_come_from_whatever_has_bytes(pool: Pool) -> None:
    tree = pool.tree("t", bytes, bytes)
    tree[bytearray(b"a")] = memoryview(b"xyz")[::2]
    assert tree[b"a"] == b"xz" and type(tree[b"a"]) is bytes


def test_lone_surrogates_are_no_text(pool: Pool) -> None:
    tree = pool.tree("t", str, str)
    with pytest.raises(UnicodeEncodeError):
        tree["\ud800"] = ""


def test_integers_of_other_types_are_integers(pool: Pool) -> None:
    class Index:
        def __index__(self) -> int:
            return 7

    tree = pool.tree("t", int, int)
    tree[Index()] = True  # type: ignore[index]
    assert tree[7] == 1


@pytest.mark.parametrize("wrong", [dict, 7, "u65", (), list[int], int | str, (int,) * 9, "Option<json>", object()])
def test_other_types_are_refused(pool: Pool, wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        pool.tree("t", wrong, int)
    assert len(pool) == 0


def test_none_stands_for_one_thing(pool: Pool) -> None:
    with pytest.raises(ValueError, match="no counterpart in Python"):
        pool.tree("t", "Option<Option<str>>", int)
    with pytest.raises(ValueError, match="no counterpart in Python"):
        pool.tree("t", "(str, Option<()>)", int)
    assert len(pool) == 0


def test_types_of_a_tree_that_is_there_must_be_its_own(pool: Pool) -> None:
    tree = pool.tree("t", int, str)
    assert pool.tree("t").key_kind == "u64"
    for types in ((str, str), (int, int), ("i64", str)):
        with pytest.raises(TypeError, match='the tree "t" has'):
            pool.tree("t", *types)
    with pytest.raises(TypeError, match="or none of both"):
        pool.tree("t", int)
    with pytest.raises(bristlecone.MismatchError, match="design"):
        pool.tree("t", int, str, design="wotree")
    tree[1] = "a"
    assert pool["t"][1] == "a"


def test_sizes_out_of_range_are_refused(pool: Pool) -> None:
    tree = pool.tree("t", str, bytes)
    tree["k" * 16384] = b"v" * 131072
    with pytest.raises(ValueError, match="a key of 16385 bytes is too long"):
        tree["k" * 16385] = b""
    with pytest.raises(bristlecone.TooLongError, match="a value of 131073 bytes"):
        tree["a"] = b"v" * 131073
    assert tree.get("k" * 20000) is None
    for name in ("", "n" * 65):
        with pytest.raises(ValueError):
            pool.tree(name, int, int)
