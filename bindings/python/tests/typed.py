"""What a type checker makes of the package: read by mypy, and run by no test."""

import json
from typing import Any, assert_type

import bristlecone
from bristlecone import ABSENT, Pool, Tree, View

with bristlecone.open("trees.pool", create=True, max_bytes=1 << 30, domain="adr") as pool:
    assert_type(pool, Pool)
    ages = pool.tree("ages", str, int)
    assert_type(ages, Tree[str, int])
    assert_type(ages["a"], int)
    assert_type(ages.get("a"), int | None)
    assert_type(ages.get("a", "none"), int | str)
    assert_type(ages.pop("a", None), int | None)
    assert_type(ages.items("a", reverse=True), View[tuple[str, int]])
    assert_type(ages.first(), tuple[str, int] | None)
    assert_type([name for name in ages], list[str])
    assert_type(ages.compare_and_swap("a", ABSENT, 7), bool)
    ages |= {"b": 1}
    ages[7] = 1  # type: ignore[index]
    ages.put("a", "b")  # type: ignore[arg-type]
    documents: Tree[int, dict[str, Any]] = pool.tree("documents", int, codec=json)
    assert_type(documents[7], dict[str, Any])
    assert_type(pool.info()["was_clean"], bool)
    pool.tree("pairs", (str, "i64"), float | None)
    bristlecone.open("trees.pool", domain="other")  # type: ignore[arg-type]
