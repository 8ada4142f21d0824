"""Pools with a journal: durability, tickets, the folder, and its state."""

import asyncio
import gc
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bristlecone
from bristlecone import Pool

from conftest import MAX_BYTES


def opened(path: Path, **more: Any) -> Pool:
    return bristlecone.open(path, create=True, max_bytes=MAX_BYTES, domain="journal", **more)


def test_a_pool_with_a_journal_is_a_pool(path: Path) -> None:
    with opened(path) as pool:
        ages = pool.tree("ages", str, int)
        ages["Methuselah"] = 4857
        status = pool.journal_status()
        assert status is not None
        assert status["folder"] == Path(f"{path}.journal") and status["folder"].is_dir()
        assert status["durability"] == "commit" and not status["failed"]
        assert 0 < status["durable_lsn"] == status["lsn"] == status["bytes_since_checkpoint"]
        assert status["checkpoint_lsn"] is None and status["segment_bytes"] > 0
        syncs = status["syncs"]
        assert syncs["count"] > 0
        assert 0 < syncs["mean"] <= syncs["max"] and 0 < syncs["p50"] <= syncs["p99"] <= syncs["max"]
    with bristlecone.open(path) as pool:
        assert pool.domain == "journal" and pool["ages"]["Methuselah"] == 4857
    with bristlecone.open(path, read_only=True) as pool:
        assert pool.journal_status() is None
        pool.sync()
        with pytest.raises(bristlecone.ReadOnlyError):
            pool.checkpoint()


@pytest.mark.parametrize("durability", ["memory", "interval:3600s"])
def test_writes_that_do_not_wait_are_durable_after_a_sync(path: Path, durability: str) -> None:
    with opened(path, durability=durability) as pool:
        numbers = pool.tree("numbers", int, int)
        numbers[1] = 2
        before = pool.journal_status()
        assert before is not None and before["durability"] == durability
        assert before["durable_lsn"] < before["lsn"]
        pool.sync()
        after = pool.journal_status()
        assert after is not None and after["durable_lsn"] == after["lsn"] == before["lsn"]
        assert after["syncs"]["count"] == before["syncs"]["count"] + 1


def test_tickets_are_awaited_together(path: Path) -> None:
    async def writes(pool: Pool) -> list[bool]:
        numbers = pool.tree("numbers", int, int)
        tickets = [pool.with_ticket(lambda at=at: numbers.update({at: at}))[1] for at in range(50)]
        await asyncio.gather(*tickets, *tickets)
        await tickets[0]
        return [ticket.is_durable for ticket in tickets]

    with opened(path) as pool:
        assert asyncio.run(writes(pool)) == [True] * 50
        status = pool.journal_status()
        assert status is not None and status["durable_lsn"] == status["lsn"]
        assert status["syncs"]["count"] < 50
        assert len(pool["numbers"]) == 50


def test_a_ticket_may_be_waited_for_dropped_and_outlive_its_pool(path: Path) -> None:
    with opened(path, durability="memory") as pool:
        numbers = pool.tree("numbers", int, int)
        result, ticket = pool.with_ticket(lambda: numbers.setdefault(1, 2))
        assert result == 2 and not ticket.is_durable
        ticket.wait()
        ticket.wait()
        assert ticket.is_durable

        async def cancelled() -> None:
            late = asyncio.ensure_future(asyncio.wait_for(pool.with_ticket(lambda: numbers.pop(1))[1], 60))
            await asyncio.sleep(0)
            late.cancel()
            with pytest.raises(asyncio.CancelledError):
                await late

        asyncio.run(cancelled())
        _, dropped = pool.with_ticket(lambda: numbers.update({3: 4}))
        del dropped
        gc.collect()
        _, last = pool.with_ticket(lambda: numbers.update({5: 6}))
    # The clean close made it durable.
    last.wait()
    assert last.is_durable
    asyncio.run(asyncio.wait_for(last, 60))
    with bristlecone.open(path) as pool:
        assert dict(pool["numbers"]) == {3: 4, 5: 6}


def test_what_a_function_raises_leaves_its_writes(path: Path) -> None:
    with opened(path) as pool:
        numbers = pool.tree("numbers", int, int)

        def fails() -> None:
            numbers[1] = 2
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            pool.with_ticket(fails)
        status = pool.journal_status()
        assert status is not None and status["durable_lsn"] == status["lsn"]
        assert numbers[1] == 2
        wrong: Any
        for wrong in (None, 1, "name"):
            with pytest.raises(TypeError):
                pool.with_ticket(wrong)
    with pytest.raises(bristlecone.ClosedError):
        pool.with_ticket(lambda: None)


def test_pools_without_a_journal_have_durable_tickets(path: Path) -> None:
    with bristlecone.open(path, create=True, max_bytes=MAX_BYTES, domain="process") as pool:
        numbers = pool.tree("numbers", int, int)
        result, ticket = pool.with_ticket(lambda: len(numbers))
        assert result == 0 and ticket.is_durable
        asyncio.run(asyncio.wait_for(ticket, 60))


def test_a_checkpoint_begins_the_count_of_bytes_again(path: Path) -> None:
    with opened(path) as pool:
        numbers = pool.tree("numbers", int, int)
        numbers.update((number, number) for number in range(1000))
        pool.checkpoint()
        status = pool.journal_status()
        assert status is not None
        assert status["checkpoint_lsn"] == status["lsn"] and status["bytes_since_checkpoint"] == 0
        numbers[1] = 7
        status = pool.journal_status()
        assert status is not None and 0 < status["bytes_since_checkpoint"] < 100
        pool.prune_journal()
        names = {name.split("-")[0] for name in os.listdir(status["folder"])}
        assert names == {"manifest", "ring", "segment", "checkpoint"}
        assert len(os.listdir(status["folder"])) == 4
    with bristlecone.open(path) as pool:
        assert pool["numbers"][1] == 7 and len(pool["numbers"]) == 1000


def test_the_journal_may_be_elsewhere(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = path.parent / "elsewhere"
    with opened(path, journal=folder, durability="interval:100ms") as pool:
        pool.tree("numbers", int, int)[1] = 2
        status = pool.journal_status()
        assert status is not None and status["folder"] == folder
        assert status["durability"] == "interval:100ms"
    assert (folder / "manifest").is_file() and not Path(f"{path}.journal").exists()
    with pytest.raises(FileNotFoundError, match="journal"):
        bristlecone.open(path)
    monkeypatch.chdir(path.parent)
    with bristlecone.open(path, journal="elsewhere") as pool:
        assert pool["numbers"][1] == 2
        status = pool.journal_status()
        assert status is not None and status["folder"] == folder
    with bristlecone.open(path, journal=str(folder), read_only=True) as pool:
        assert pool["numbers"][1] == 2


def test_wrong_types_and_values(path: Path) -> None:
    wrong: Any
    for wrong in ("", "Commit", "interval", "interval:100", "interval:0ms", "interval:-1s", "fsync"):
        with pytest.raises(ValueError, match="expected commit, memory, or interval:TIME") as raised:
            opened(path, durability=wrong)
        assert isinstance(raised.value, bristlecone.InvalidError) and repr(wrong)[1:-1] in str(raised.value)
    for wrong in (1, 0.1, True, b"commit", ("interval", 100)):
        with pytest.raises(TypeError):
            opened(path, durability=wrong)
    for wrong in (1, 0.1, ["folder"]):
        with pytest.raises(TypeError):
            opened(path, journal=wrong)
    assert not path.exists()
    file = path.parent / "file"
    file.write_text("not a folder")
    with pytest.raises(bristlecone.IoError):
        opened(path, journal=file)
    assert not path.exists()


def test_only_pools_with_a_journal_have_these(path: Path) -> None:
    pool = bristlecone.open(path, create=True, max_bytes=MAX_BYTES, domain="process")
    assert pool.domain != "journal" and pool.journal_status() is None
    pool.sync()
    with pytest.raises(ValueError, match="only pools of the domain journal have checkpoints"):
        pool.checkpoint()
    with pytest.raises(ValueError, match="only pools of the domain journal have checkpoints"):
        pool.prune_journal()
    pool.close()
    for more in ({"durability": "commit"}, {"journal": path.parent / "folder"}):
        with pytest.raises(ValueError, match="domain journal"):
            bristlecone.open(path, **more)  # type: ignore[arg-type]
    for call in (pool.sync, pool.checkpoint, pool.prune_journal, pool.journal_status):
        with pytest.raises(bristlecone.ClosedError):
            call()


def test_a_killed_process_loses_nothing(
    path: Path, run: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    program = """
import bristlecone, os, signal, sys
pool = bristlecone.open(sys.argv[1], create=True, max_bytes=1 << 28, domain="journal", durability="memory")
numbers = pool.tree("numbers", int, int)
for number in range(1000):
    numbers[number] = number
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert run(program, path).returncode == -signal.SIGKILL
    with bristlecone.open(path) as pool:
        assert list(pool["numbers"].items()) == [(number, number) for number in range(1000)]
        status = pool.journal_status()
        assert status is not None and status["durable_lsn"] == status["lsn"] > 0
