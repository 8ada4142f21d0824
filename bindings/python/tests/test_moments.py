"""Snapshots, transactions, batches."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

import bristlecone
from bristlecone import ABSENT, Pool, Transaction, Tree


def test_a_snapshot_is_one_moment(pool: Pool) -> None:
    numbers, texts = pool.tree("n", int, int), pool.tree("s", str, codec=json)
    numbers.put_many(range(2000), range(2000))
    texts["a"] = [1]
    with pool.snapshot() as then:
        numbers.put_many(range(1000, 3000), [0] * 2000)
        del numbers[0]
        texts["a"], texts["b"] = [2], [3]
        seen = then[numbers]
        assert dict(seen) == {key: key for key in range(2000)} == dict(seen.items())
        assert (seen[0], seen.get(2500), 2500 in seen, 0 in seen, len(seen), bool(seen)) == (0, None, False, True, 2000, True)
        assert list(reversed(seen))[:3] == [1999, 1998, 1997]
        assert list(seen.range(10, 13)) == [(10, 10), (11, 11), (12, 12)]
        assert list(seen.range(10, 13, reverse=True, inclusive=(False, True))) == [(13, 13), (12, 12), (11, 11)]
        assert seen.first() == (0, 0) and seen.last() == (1999, 1999)
        assert dict(then[texts]) == {"a": [1]} and list(then[texts].values()) == [[1]]
        assert then.bytes > 0
        with pytest.raises(KeyError):
            then[numbers][2500]
        with pytest.raises(TypeError):
            then[numbers]["x"]  # type: ignore[index]
        items = iter(seen.range())
        next(items)
    assert then.closed and "closed" in repr(then)
    for use in (lambda: seen[0], lambda: list(seen), lambda: list(items), lambda: then.bytes):
        with pytest.raises(bristlecone.ClosedError):
            use()
    then.close()
    assert len(numbers) == 2999


def test_a_snapshot_that_may_keep_little_is_given_up(tree: Tree[int, int], pool: Pool) -> None:
    tree.put_many(range(10_000), range(10_000))
    then = pool.snapshot(max_bytes=10_000)
    tree.put_many(range(10_000), [0] * 10_000)
    with pytest.raises(bristlecone.SnapshotTooOldError):
        then[tree][7]


def test_a_transaction_is_committed_at_the_end_of_its_block(pool: Pool) -> None:
    accounts, pending = pool.tree("accounts", str, int), pool.tree("pending", int, str)
    accounts.update(alice=100)
    pending[17] = "alice pays 10"
    with pool.transaction() as tx:
        mine = tx[accounts]
        mine["alice"] -= 10
        mine["bob"] = mine.get("bob", 0) + 10
        assert tx[pending].pop(17) == "alice pays 10"
        # It sees its own writes, others do not.
        assert list(mine.items()) == [("alice", 90), ("bob", 10)] and 17 not in tx[pending]
        assert dict(accounts) == {"alice": 100} and 17 in pending
    assert dict(accounts) == {"alice": 90, "bob": 10} and not pending and tx.closed
    with pytest.raises(bristlecone.ClosedError):
        tx.commit()
    with pytest.raises(ZeroDivisionError):
        with pool.transaction() as tx:
            tx[accounts]["alice"] = 1 // 0
    with pool.transaction() as tx:
        tx[accounts]["alice"] = 7
        tx.rollback()
    assert accounts["alice"] == 90
    with pytest.raises(KeyError):
        with pool.transaction() as tx:
            del tx[accounts]["carol"]
    with pool.transaction() as tx:
        tx[accounts].discard("carol")
        tx[accounts].update({"dora": 1}, emil=2)
        assert tx[accounts].setdefault("dora", 5) == 1 and tx[accounts].popitem()[0] == "alice"
        tx[accounts].clear()
        tx[accounts]["last"] = 3
    assert dict(accounts) == {"last": 3}


def test_who_is_slower_gets_a_conflict(pool: Pool, tree: Tree[int, int]) -> None:
    tree[1] = 1
    with pytest.raises(bristlecone.ConflictError):
        with pool.transaction() as tx:
            tx[tree][1] += 1
            tree[1] = 5
    assert tree[1] == 5
    # Inserts by others into a range that was read conflict, too.
    with pytest.raises(bristlecone.ConflictError):
        with pool.transaction() as tx:
            tx[tree][100] = sum(value for _, value in tx[tree].range(0, 50))
            tree[7] = 7
    assert 100 not in tree
    calls = []

    def add(tx: Transaction) -> int:
        held = tx[tree][1]
        calls.append(held)
        if len(calls) == 1:
            tree[1] = 6
        tx[tree][1] = held + 1
        return held

    assert pool.transact(add) == 6 and calls == [5, 6] and tree[1] == 7
    with pytest.raises(ZeroDivisionError):
        pool.transact(lambda tx: 1 // 0)


def test_transfers_of_several_threads_keep_the_total(pool: Pool) -> None:
    accounts = pool.tree("accounts", int, int)
    accounts.put_many(range(20), [100] * 20)
    totals: list[int] = []

    def transfer(seed: int) -> None:
        for step in range(200):
            source, target = (seed * 7 + step) % 20, (seed * 11 + step * 3 + 1) % 20
            if source == target:
                continue

            def move(tx: Transaction) -> None:
                mine = tx[accounts]
                moved = min(mine[source], step % 9)
                mine[source] -= moved
                mine[target] += moved

            pool.transact(move)

    def look() -> None:
        for _ in range(50):
            with pool.snapshot() as then:
                totals.append(sum(then[accounts].values()))

    threads = [threading.Thread(target=transfer, args=(seed,)) for seed in range(3)]
    threads.append(threading.Thread(target=look))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert set(totals) == {2000} and sum(accounts.values()) == 2000


def test_a_batch_is_made_wholly_or_not_at_all(pool: Pool) -> None:
    ages, notes = pool.tree("ages", str, int), pool.tree("notes", int, codec=json)
    with pool.batch() as batch:
        batch.put(ages, "a", 1)
        batch.put(notes, 7, {"x": 1})
        batch.expect(ages, "a", ABSENT)
        batch.remove(notes, 8)
        assert len(batch) == 4 and not ages
    assert ages["a"] == 1 and notes[7] == {"x": 1}
    with pytest.raises(bristlecone.ClosedError):
        batch.put(ages, "a", 1)
    with pytest.raises(bristlecone.ConflictError):
        with pool.batch() as batch:
            batch.expect(ages, "a", 2)
            batch.put(ages, "a", 3)
    with pytest.raises(ZeroDivisionError):
        with pool.batch() as batch:
            batch.put(ages, "a", 1 // 0)
    batch = pool.batch()
    for wrong in (lambda: batch.put(ages, 7, 7), lambda: batch.put(ages, "a", "x"), lambda: batch.remove(notes, "x")):  # type: ignore[misc]
        with pytest.raises(TypeError):
            wrong()
    batch.put(ages, "k" * 20_000, 1)
    batch.put(ages, "a", 4)
    with pytest.raises(bristlecone.TooLongError):
        batch.commit()
    assert dict(ages) == {"a": 1}


def test_trees_of_other_pools_are_refused(pool: Pool, path: Path) -> None:
    with bristlecone.open(path.with_name("other"), create=True) as other:
        tree = other.tree("t", int, int)
        with pool.snapshot() as then, pool.transaction() as tx:
            for use in (
                lambda: then[tree][1],
                lambda: list(then[tree]),
                lambda: tx[tree].__setitem__(1, 2),
                lambda: pool.batch().put(tree, 1, 2),
            ):
                with pytest.raises(ValueError, match="of another pool"):
                    use()
    with pytest.raises(TypeError):
        pool.snapshot()[7].get(1)  # type: ignore[index]


def test_a_pool_is_closed_with_what_is_open(path: Path) -> None:
    pool = bristlecone.open(path, create=True)
    tree = pool.tree("t", int, int)
    tree[1] = 1
    then, tx, batch = pool.snapshot(), pool.transaction(), pool.batch()
    tx[tree][1] = 2
    batch.put(tree, 1, 3)
    pool.close()
    uses: list[Any] = [lambda: then[tree][1], lambda: tx[tree][1], tx.commit, batch.commit, pool.snapshot, pool.transaction]
    for use in uses:
        with pytest.raises(bristlecone.ClosedError):
            use()
    assert then.closed and tx.closed
    with bristlecone.open(path) as again:
        assert again.info()["was_clean"] and again["t"][1] == 1


def test_a_pool_that_is_read_only_has_moments_to_read(path: Path) -> None:
    with bristlecone.open(path, create=True) as pool:
        pool.tree("t", int, int)[1] = 1
    with bristlecone.open(path, read_only=True) as pool:
        tree = pool["t"]
        with pool.snapshot() as then:
            assert then[tree][1] == 1
        with pytest.raises(PermissionError):
            with pool.transaction() as tx:
                tx[tree][1] = 2
        with pytest.raises(PermissionError):
            with pool.batch() as batch:
                batch.put(tree, 1, 2)
