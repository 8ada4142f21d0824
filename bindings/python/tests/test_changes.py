"""The change stream of a pool with a journal, and its cursors."""

import gc
import os
import pickle
import signal
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import bristlecone
from bristlecone import Change, Pool

from conftest import MAX_BYTES


def opened(path: Path, **more: Any) -> Pool:
    return bristlecone.open(path, create=True, max_bytes=MAX_BYTES, domain="journal", **more)


def put(tree: str, key: object, value: object, existed: bool | None = None) -> Change:
    return Change("put", tree, key, value, existed, None)


def about(what: Any, tree: str, renamed_to: str | None = None) -> Change:
    return Change(what, tree, None, None, None, renamed_to)


def test_every_kind_of_change_arrives_in_order(path: Path) -> None:
    with opened(path) as pool:
        ages = pool.tree("ages", str, (int, str))
        ages["Methuselah"] = (4857, "pine")
        with pool.batch() as batch:
            batch.put(ages, "Pando", (14_000, "aspen"))
            batch.remove(ages, "Methuselah")
        ages.close()
        pool.rename_tree("ages", "years")
        pool.clear_tree("years")
        pool.drop_tree("years")
        commits = list(pool.changes())
        assert [list(commit) for commit in commits] == [
            [about("create", "ages")],
            [put("ages", "Methuselah", (4857, "pine"))],
            [Change("remove", "ages", "Methuselah", None, True, None), put("ages", "Pando", (14_000, "aspen"), False)],
            [about("rename", "ages", "years")],
            [about("clear", "years")],
            [about("drop", "years")],
        ]
        lsns = [commit.lsn for commit in commits]
        assert lsns == sorted(set(lsns)) and all(a.next_lsn <= b.lsn for a, b in zip(commits, commits[1:]))
        assert abs(commits[0].time - datetime.now(UTC)) < timedelta(minutes=5)
        # A commit can be read again, and a stream continues where another one ended.
        assert list(commits[1]) == list(commits[1])
        assert [commit.lsn for commit in pool.changes(commits[3].lsn)] == lsns[3:]
        assert list(pool.changes(commits[-1].next_lsn)) == []
        with pytest.raises(bristlecone.InvalidError, match="beyond the durable end"):
            pool.changes(1 << 40)


def test_kinds_are_those_of_the_tree(path: Path) -> None:
    with opened(path) as pool:
        pool.tree("a", bytes, "f64")[b"x"] = 1.5
        pool.tree("b", "i128", None)[-1] = None
        pool.tree("c", ("u8", "char"), "json")[7, "z"] = "[1, 2]"
        found = [change for commit in pool.changes() for change in commit if change.what == "put"]
        assert found == [put("a", b"x", 1.5), put("b", -1, None), put("c", (7, "z"), "[1, 2]")]


def test_values_that_expire_have_their_times(path: Path) -> None:
    with opened(path) as pool:
        for kind, value in (("u64", 7), ("str", "seven"), ("json", "[7]"), ("(u8, str)", (1, "x"))):
            tree = pool.tree(kind, str, f"Expiring<{kind}>")
            entry = (1_900_000_000_000, value)
            tree["a"] = entry
            assert tree["a"] == entry and list(tree.items()) == [("a", entry)]
            for wrong in (value, ("soon", value), (-1, value), (1,), None):
                with pytest.raises((TypeError, OverflowError)):
                    tree["b"] = wrong
            *_, last = pool.changes()
            assert list(last) == [put(kind, "a", entry)]
        with pytest.raises(bristlecone.InvalidError):
            pool.tree("x", "Expiring<u64>", int)


def test_a_long_commit_is_read_while_it_is_iterated(path: Path) -> None:
    count = 200_000
    with opened(path) as pool:
        tree = pool.tree("t", int, bytes)
        with pool.batch() as batch:
            for key in range(count):
                batch.put(tree, key, b"abcdefghijklmnop")
        (long,) = [commit for commit in pool.changes() if commit.next_lsn == pool.journal_status()["lsn"]]  # type: ignore[index]
        assert sum(1 for _ in long) == count
        changes = iter(long)
        assert next(changes).key == 0 and next(changes).key == 1


def test_waiting_ends_with_a_change_a_timeout_or_a_stop(path: Path) -> None:
    with opened(path) as pool:
        tree = pool.tree("t", int, int)
        changes = pool.changes()
        assert sum(1 for _ in changes) == 1
        begun = time.monotonic()
        assert changes.next(timeout=0.25) is None and changes.next(timeout=0) is None
        assert 0.2 < time.monotonic() - begun < 20
        writer = threading.Timer(0.1, lambda: tree.__setitem__(1, 2))
        writer.start()
        commit = changes.next()
        assert commit is not None and list(commit) == [put("t", 1, 2)]
        writer.join()
        threading.Timer(0.1, changes.stop).start()
        assert changes.next() is None and changes.next() is None
        for wrong in (-1, float("nan")):
            with pytest.raises(ValueError, match="timeout"):
                changes.next(timeout=wrong)


def test_a_signal_ends_the_waiting(path: Path) -> None:
    with opened(path) as pool, pool.changes() as changes:
        timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            changes.next()
        timer.join()
        assert changes.next(timeout=0) is None


def test_a_cursor_keeps_what_was_not_read(path: Path) -> None:
    with opened(path, cursor_limit="1M") as pool:
        tree = pool.tree("t", int, bytes)
        begun = pool.create_cursor("audit")
        with pytest.raises(bristlecone.InvalidError, match="exists"):
            pool.create_cursor("audit")
        for key in range(10):
            tree[key] = b"x"
        pool.checkpoint()
        changes = pool.changes_of("audit")
        with pytest.raises(bristlecone.InUseError):
            pool.changes_of("audit")
        five = [next(changes) for _ in range(5)]
        assert five[0].lsn == begun
        changes.advance(five[-1].next_lsn)
        with pytest.raises(bristlecone.InvalidError):
            changes.advance(begun)
        next(changes)
        changes.close()
        with pytest.raises(bristlecone.ClosedError):
            next(changes)
    with opened(path, cursor_limit="1M") as pool:
        tree = pool["t"]
        with pool.changes_of("audit") as changes:
            assert [change.key for commit in changes for change in commit] == [5, 6, 7, 8, 9]
            cursor = pool.journal_status()["cursors"]["audit"]  # type: ignore[index]
            assert cursor["lsn"] == five[-1].next_lsn and not cursor["dropped"]
            # A consumer that does not advance loses its cursor, and learns it.
            for key in range(600):
                tree[key % 8] = bytes(100_000)
            pool.checkpoint()
            pool.checkpoint()
            with pytest.raises(bristlecone.CursorDroppedError, match="audit") as raised:
                for _ in range(1000):
                    changes.next(timeout=1)
            assert isinstance(raised.value, KeyError)
        assert pool.journal_status()["cursors"]["audit"]["dropped"]  # type: ignore[index]
        pool.drop_cursor("audit")
        with pytest.raises(bristlecone.NoSuchCursorError):
            pool.drop_cursor("audit")
        with pytest.raises(bristlecone.PrunedError) as pruned:
            pool.changes(0)
        oldest = pool.journal_status()["oldest_lsn"]  # type: ignore[index]
        assert pruned.value.oldest_lsn == oldest > 0
        assert pickle.loads(pickle.dumps(pruned.value)).oldest_lsn == oldest
        pool.changes()


def test_streams_of_other_pools_and_processes_are_refused(path: Path, pool: Pool) -> None:
    for call in (pool.changes, lambda: pool.create_cursor("c"), lambda: pool.changes_of("c")):
        with pytest.raises(bristlecone.InvalidError, match="journal"):
            call()
    with opened(path.with_name("other.pool")) as other:
        changes = other.changes()
        child = os.fork()
        if child == 0:
            try:
                next(changes)
            except bristlecone.ForkedError:
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        for wrong in ("0", -1, 1.5):
            with pytest.raises((TypeError, OverflowError)):
                other.changes(wrong)  # type: ignore[arg-type]
    with pytest.raises(bristlecone.ClosedError):
        next(changes)


def test_a_stream_is_collected_while_others_use_it(path: Path) -> None:
    with opened(path) as pool:
        tree = pool.tree("t", int, int)
        for key in range(100):
            tree[key] = key
        kept = [iter(commit) for commit in pool.changes()]
        gc.collect()
        assert sum(len(list(changes)) for changes in kept) == 101
        changes, found, lock = pool.changes(), [], threading.Lock()

        def consume() -> None:
            for commit in changes:
                with lock:
                    found.append(commit.lsn)

        threads = [threading.Thread(target=consume) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == len(set(found)) == 101
