"""The table of all languages, for every design: see bindings/conformance/README.md."""

import copy
import itertools
import json
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bristlecone
from bristlecone import ABSENT

FOLDER = Path(__file__).parents[2] / "conformance"
DESIGNS = ["sstree", "nbtree", "cclbtree", "lodgetree", "wotree"]
FEATURES = {"changes", "nan_bits", "handles"}
STATUSES: list[tuple[type[Exception], str]] = [
    (bristlecone.TreeInUseError, "in_use"),
    (bristlecone.NoSuchTreeError, "absent"),
    (bristlecone.ConflictError, "conflict"),
    (bristlecone.SnapshotTooOldError, "snapshot_too_old"),
    (bristlecone.ReadOnlyError, "read_only"),
    (TypeError, "usage"),
    (ValueError, "usage"),
    (OverflowError, "usage"),
]


def cases() -> Iterator[Any]:
    for file in sorted(FOLDER.glob("*.json")):
        for case in json.loads(file.read_text())["cases"]:
            if FEATURES.issuperset(case.get("needs", ())):
                domain = "journal" if "changes" in case.get("needs", ()) else None
                yield pytest.param(case["steps"], domain, id=f"{file.stem}: {case['name']}")


CASES = list(cases())


def elements_of(kind: str) -> list[str]:
    depth, elements = 0, [""]
    for character in kind[1 : -2 if kind.endswith(",)") else -1]:
        depth += (character in "(<[") - (character in ")>]")
        if character == "," and depth == 0:
            elements.append("")
        else:
            elements[-1] += character
    return [element.strip() for element in elements]


def datum(kind: str, value: Any) -> Any:
    """Converts a key or a value of the table."""
    if isinstance(value, dict):
        if "kind" in value:
            return datum(value["kind"], value["datum"])
        value = value["repeat"] * value["times"]
    if kind == "()":
        return None
    if kind.startswith("Expiring<"):
        return int(value[0]), datum(kind[9:-1], value[1])
    if kind.startswith("Option<"):
        return None if value is None else datum(kind[7:-1], value[0])
    if kind.startswith("("):
        return tuple(map(datum, elements_of(kind), value))
    if kind.startswith("[") or kind in ("bytes", "postcard"):
        return bytes.fromhex(value)
    if kind[0] == "f":
        return number(kind, value)
    return int(value) if kind[0] in "ui" else value


def number(kind: str, text: str) -> float:
    if not text.startswith("0x"):
        return float(text)
    size, form = (8, ">d") if kind == "f64" else (4, ">f")
    found: float = struct.unpack(form, int(text, 16).to_bytes(size, "big"))[0]
    return found


def same(kind: str, one: Any, other: Any) -> bool:
    """Compares floats by their bits."""
    if kind.startswith("Expiring<"):
        return bool(one[0] == other[0]) and same(kind[9:-1], one[1], other[1])
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, elements_of(kind), one, other))
    if isinstance(one, float):
        return isinstance(other, float) and struct.pack("d", one) == struct.pack("d", other)
    return type(one) is type(other) and bool(one == other)


def on_expiring(step: dict[str, Any], live: Any, keys: str, bounds: Callable[[], dict[str, Any]]) -> tuple[str, Any]:
    """Makes a step on a tree whose values expire."""
    key, value, expected, wanted = (
        datum(kind, step[argument]) if argument in step else ABSENT
        for kind, argument in ((keys, "key"), (live.value_kind, "value"), (live.value_kind, "expected"), (live.value_kind, "wanted"))
    )
    at = {"expires": step["expires"] or None} if "expires" in step else {}
    match step["do"]:
        case "get":
            found = live.get(key, ABSENT)
            return "absent" if found is ABSENT else "ok", found
        case "contains":
            return "ok", key in live
        case "put":
            live.put(key, value, **at)
            return "ok", ABSENT
        case "exchange":
            return "ok", live.replace(key, value, ABSENT, **at)
        case "insert":
            return ("ok", ABSENT) if live.put(key, value, overwrite=False, **at) else ("present", live[key])
        case "update":
            # There is no one call for this.
            old = live.get(key, ABSENT)
            if old is ABSENT:
                return "absent", ABSENT
            assert live.compare_and_swap(key, old, value, **at)
            return "ok", old
        case "remove":
            old = live.pop(key, ABSENT)
            return "absent" if old is ABSENT else "ok", old
        case "compare_and_swap":
            done = live.compare_and_swap(key, expected, wanted, **at)
            return ("ok", ABSENT) if done else ("differs", live.get(key, ABSENT))
        case "scan":
            return "ok", list(itertools.islice(live.items(**bounds()), step.get("limit")))
        case "prefix":
            items = live.prefix(datum(keys, step["prefix"]), step.get("reverse", False))
            return "ok", list(itertools.islice(items, step.get("limit")))
    return on_times(step, live, key, at)


def on_times(step: dict[str, Any], live: Any, key: Any, at: dict[str, Any]) -> tuple[str, Any]:
    try:
        match step["do"]:
            case "expiry":
                return "ok", live.expiry(key) or 0
            case "set_expiry":
                return "ok", live.set_expiry(key, **at) or 0
            case "expires_later":
                return "ok", live.expiry(key) > step["than"]
    except KeyError:
        return "absent", ABSENT
    match step["do"]:
        case "remove_expired":
            return "ok", list(live.remove_expired(step["budget"]))
        case "expire_after":
            return "ok", ABSENT if live.expire_after is None else round(live.expire_after * 1000)
    raise NotImplementedError(step["do"])


class Runner:
    """The open objects of a case."""

    def __init__(self, path: Path, design: str, domain: Any) -> None:
        self.path, self.design = path, design
        self.pool = bristlecone.open(path, create=True, max_bytes=64 << 20, domain=domain)
        self.trees: dict[str, Any] = {}
        self.others: dict[str, Any] = {}

    def outcome(self, step: dict[str, Any]) -> tuple[str, Any]:
        """Returns the outcome of a step and what it returned; ABSENT for nothing."""
        try:
            return self.run(step)
        except Exception as error:
            for kind, status in STATUSES:
                if isinstance(error, kind):
                    return status, ABSENT
            raise

    def datum(self, step: dict[str, Any], argument: str, kind: str) -> Any:
        return datum(kind, step[argument]) if argument in step else ABSENT

    def run(self, step: dict[str, Any]) -> tuple[str, Any]:
        do, tree = step["do"], self.trees.get(step.get("on", ""))
        if "in" in step:
            return self.within(step, tree, self.others[step["in"]])
        if do in ("create", "open", "expiring", "drop", "rename", "clear", "trees", "check", "reopen", "close_pool"):
            return self.manage(step, step.get("on", ""))
        if do == "changes":
            return "ok", [[change._asdict() for change in commit] for commit in self.pool.changes(0)]
        if do == "begin":
            self.others[step["as"]] = self.pool.transaction()
        elif do == "snapshot":
            self.others[step["as"]] = self.pool.snapshot()
        elif do == "commit":
            self.others[step["of"]].commit()
        elif do in ("rollback", "release"):
            self.others[step["of"]].close()
        elif do == "batch":
            self.batch(step)
        elif do == "close":
            # A tree of live values is closed with its entries.
            tree.close() if isinstance(tree, bristlecone.Tree) else tree.entries.close()
        elif isinstance(tree, bristlecone.ExpiringTree):
            return on_expiring(step, tree, tree.entries.key_kind, lambda: self.bounds(step, tree.entries.key_kind))
        else:
            return self.on_tree(step, tree)
        return "ok", ABSENT

    def manage(self, step: dict[str, Any], name: str) -> tuple[str, Any]:
        match step["do"]:
            case "create":
                design = step.get("design", self.design)
                after = step["expire_after"] / 1000 if "expire_after" in step else None
                self.trees[name] = self.pool.tree(name, step["key_kind"], step["value_kind"], design=design, expire_after=after)
            case "expiring":
                self.trees[step["as"]] = self.trees[name].expiring()
            case "open":
                if name not in self.pool:
                    return "absent", ABSENT
                kinds = [step[kind] for kind in ("key_kind", "value_kind") if kind in step]
                self.trees[name] = self.pool.tree(name, *kinds)
            case "drop":
                self.pool.drop_tree(name)
            case "rename":
                self.pool.rename_tree(name, step["to"])
            case "clear":
                self.pool.clear_tree(name)
            case "trees":
                return "ok", sorted([tree, about["key"], about["value"]] for tree, about in self.pool.trees().items())
            case "check":
                assert self.pool.check() == [] and all(tree.check() == [] for tree in self.trees.values() if isinstance(tree, bristlecone.Tree))
            case "close_pool":
                self.pool.close()
            case _:
                self.pool.close()
                self.trees.clear()
                self.pool = bristlecone.open(self.path, read_only=step.get("read_only", False))
        return "ok", ABSENT

    def batch(self, step: dict[str, Any]) -> None:
        with self.pool.batch() as batch:
            for change in step["changes"]:
                tree = self.trees[change["on"]]
                key = datum(tree.key_kind, change["key"])
                value = self.datum(change, "value", tree.value_kind)
                if change["do"] == "remove":
                    batch.remove(tree, key)
                else:
                    getattr(batch, change["do"])(tree, key, value)

    def bounds(self, step: dict[str, Any], kind: str) -> dict[str, Any]:
        inclusive = (not step.get("from_excluded", False), step.get("end_included", False))
        start, stop = (self.datum(step, argument, kind) for argument in ("from", "end"))
        return {
            "start": None if start is ABSENT else start,
            "stop": None if stop is ABSENT else stop,
            "inclusive": inclusive,
            "reverse": step.get("reverse", False),
        }

    def within(self, step: dict[str, Any], tree: Any, other: Any) -> tuple[str, Any]:
        seen, key = other[tree], self.datum(step, "key", tree.key_kind)
        match step["do"]:
            case "get":
                value = seen.get(key, ABSENT)
                return "absent" if value is ABSENT else "ok", value
            case "scan":
                return "ok", list(itertools.islice(seen.range(**self.bounds(step, tree.key_kind)), step.get("limit")))
            case "put":
                seen[key] = datum(tree.value_kind, step["value"])
            case "remove":
                seen.discard(key)
        return "ok", ABSENT

    def on_tree(self, step: dict[str, Any], tree: Any) -> tuple[str, Any]:
        key = self.datum(step, "key", tree.key_kind)
        value = self.datum(step, "value", tree.value_kind)
        match step["do"]:
            case "get":
                found = tree.get(key, ABSENT)
                return "absent" if found is ABSENT else "ok", found
            case "contains":
                return "ok", key in tree
            case "len":
                return "ok", len(tree)
            case "put":
                tree[key] = value
                return "ok", ABSENT
            case "exchange":
                return "ok", tree.replace(key, value, ABSENT)
            case "insert":
                if tree.put(key, value, overwrite=False):
                    return "ok", ABSENT
                return "present", tree[key]
            case "update":
                # There is no one call for this.
                old = tree.get(key, ABSENT)
                if old is ABSENT:
                    return "absent", ABSENT
                assert tree.compare_and_swap(key, old, value)
                return "ok", old
            case "remove":
                old = tree.pop(key, ABSENT)
                return "absent" if old is ABSENT else "ok", old
            case "compare_and_swap":
                expected, wanted = (self.datum(step, argument, tree.value_kind) for argument in ("expected", "wanted"))
                if tree.compare_and_swap(key, expected, wanted):
                    return "ok", ABSENT
                return "differs", tree.get(key, ABSENT)
            case "scan":
                return "ok", list(itertools.islice(tree.items(**self.bounds(step, tree.key_kind)), step.get("limit")))
            case "remove_range":
                bounds = self.bounds(step, tree.key_kind)
                return "ok", tree.remove_range(bounds["start"], bounds["stop"], inclusive=bounds["inclusive"])
            case "remove_prefix":
                return "ok", tree.remove_prefix(datum(tree.key_kind, step["prefix"]))
            case "prefix":
                return "ok", list(tree.prefix(datum(tree.key_kind, step["prefix"]), step.get("reverse", False)))
        return self.many(step, tree)

    def many(self, step: dict[str, Any], tree: Any) -> tuple[str, Any]:
        keys = [datum(tree.key_kind, key) for key in step.get("keys", ())]
        match step["do"]:
            case "get_many":
                return "ok", list(tree.get_many(keys, ABSENT))
            case "remove_many":
                tree.remove_many(keys)
            case "put_many":
                items = [(datum(tree.key_kind, key), datum(tree.value_kind, value)) for key, value in step["items"]]
                tree.put_many([key for key, _ in items], [value for _, value in items])
            case other:
                raise NotImplementedError(other)
        return "ok", ABSENT

    def verify(self, step: dict[str, Any], status: str, gives: Any) -> None:
        assert status == step.get("is", "ok"), (step, status, gives)
        assert ("gives" in step) == (gives is not ABSENT), (step, gives)
        if gives is ABSENT:
            return
        wanted, tree = step["gives"], self.trees.get(step.get("on", ""))
        key_kind = getattr(getattr(tree, "entries", tree), "key_kind", "()")
        match step["do"]:
            case "contains" | "len" | "trees" | "remove_range" | "remove_prefix" | "expiry" | "set_expiry" | "expires_later" | "expire_after" | "remove_expired":
                assert gives == wanted, step
            case "scan" | "prefix":
                kinds = (key_kind, tree.value_kind)
                assert len(gives) == len(wanted), (step, gives)
                assert all(same(kind, *pair) for got, item in zip(gives, wanted) for kind, *pair in zip(kinds, got, map(datum, kinds, item))), (step, gives)
            case "changes":
                fields = bristlecone.Change._fields
                kinds = {"key": step.get("key_kind", "()"), "value": step.get("value_kind", "()")}
                for commit in wanted:
                    for change in commit:
                        change.update({name: datum(kind, change[name]) for name, kind in kinds.items() if name in change})
                assert gives == [[{name: change.get(name) for name in fields} for change in commit] for commit in wanted], step
            case "get_many":
                data = [ABSENT if isinstance(value, dict) and "absent" in value else datum(tree.value_kind, value) for value in wanted]
                assert len(gives) == len(data), step
                assert all(got is value or same(tree.value_kind, got, value) for got, value in zip(gives, data)), (step, gives)
            case _:
                assert same(tree.value_kind, gives, datum(tree.value_kind, wanted)), (step, gives)


@pytest.mark.parametrize(("steps", "domain"), CASES)
def test_the_table_holds_for_every_design(steps: list[dict[str, Any]], domain: str | None, path: Path) -> None:
    for design in DESIGNS:
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            runner = Runner(Path(folder) / "trees.pool", design, domain)
            for step in copy.deepcopy(steps):
                runner.verify(step, *runner.outcome(step))
            runner.pool.close()


def test_the_table_is_not_empty() -> None:
    assert len(CASES) >= 95
    assert elements_of("(str, Option<(u64, [u8; 4])>)") == ["str", "Option<(u64, [u8; 4])>"]
