//! The log after restarts: what was appended, truncated and purged, and damage.

use bristlecone_raft::LogStore;
use bristlecone_raft::bristlecone::{Error, Pool};
use bristlecone_raft::openraft::storage::{RaftLogStorage, RaftLogStorageExt, RaftStateMachine};
use bristlecone_raft::openraft::{LogState, RaftLogReader, RaftSnapshotBuilder, Vote};

use crate::stores::{Cell, Types, blank, entry, id, in_every_cell, indexes, put};

#[test]
fn log_is_the_same_after_a_restart() {
    in_every_cell(|cell| async move {
        let folder = cell.folder();
        let mut log = cell.open_log(&folder);
        log.blocking_append((1..=20).map(blank).collect::<Vec<_>>()).await.unwrap();
        log.save_vote(&Vote::new(7, 3)).await.unwrap();
        log.truncate(id(16)).await.unwrap();
        log.purge(id(5)).await.unwrap();
        log.save_committed(Some(id(12))).await.unwrap();
        drop(log);

        let mut log = cell.open_log(&folder);
        assert_eq!(indexes(&mut log).await, (6..=15).collect::<Vec<_>>(), "{cell:?}");
        assert_eq!(log.read_vote().await.unwrap(), Some(Vote::new(7, 3)));
        assert_eq!(log.read_committed().await.unwrap(), Some(id(12)));
        let expected = LogState { last_purged_log_id: Some(id(5)), last_log_id: Some(id(15)) };
        assert_eq!(log.get_log_state().await.unwrap(), expected);
        log.save_committed(None).await.unwrap();
        // Behind the end, as after an installed snapshot.
        log.purge(id(40)).await.unwrap();
        // openraft does not go back, and a store must not.
        log.purge(id(30)).await.unwrap();
        drop(log);

        let mut log = cell.open_log(&folder);
        assert_eq!(log.read_committed().await.unwrap(), None);
        let expected = LogState { last_purged_log_id: Some(id(40)), last_log_id: Some(id(40)) };
        assert_eq!(log.get_log_state().await.unwrap(), expected, "{cell:?}");
        log.blocking_append([blank(41)]).await.unwrap();
        assert_eq!(indexes(&mut log).await, [41]);
    });
}

#[test]
fn entries_of_any_length_are_read_back() {
    in_every_cell(|cell| async move {
        let folder = cell.folder();
        // Around the length of a value, and of several.
        let lengths = [0, 1, 131_000, 131_040, 131_050, 131_060, 131_072, 131_080, 300_000, 1 << 20];
        let of_length = |(n, length): (usize, &usize)| entry(n as u64 + 1, put("k", vec![n as u8; *length]));
        let entries: Vec<_> = lengths.iter().enumerate().map(of_length).collect();
        let mut log = cell.open_log(&folder);
        log.blocking_append(entries.clone()).await.unwrap();
        drop(log);
        let mut log = cell.open_log(&folder);
        let found = log.try_get_log_entries(..).await.unwrap();
        assert!(found.iter().zip(&entries).all(|(found, entry)| found.payload == entry.payload), "{cell:?}");
        assert_eq!(found.len(), lengths.len());

        // An entry that is replaced by a shorter one keeps no part.
        log.truncate(id(9)).await.unwrap();
        log.blocking_append([entry(9, put("k", "short"))]).await.unwrap();
        log.purge(id(8)).await.unwrap();
        drop(log);
        let mut log = cell.open_log(&folder);
        let found = log.try_get_log_entries(..).await.unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].payload, entry(9, put("k", "short")).payload);
    });
}

#[test]
fn long_reads_are_split() {
    in_every_cell(|cell| async move {
        let folder = cell.folder();
        let (mut log, _state) = cell.open(&folder);
        let entries: Vec<_> = (1..=9).map(|n| entry(n, put("k", vec![7; 1 << 20]))).collect();
        log.blocking_append(entries).await.unwrap();
        let mut next = 1;
        let mut reads = 0;
        while next <= 9 {
            let some = log.limited_get_log_entries(next, 10).await.unwrap();
            assert_eq!(some.first().map(|entry| entry.log_id.index), Some(next), "{cell:?}");
            next += some.len() as u64;
            reads += 1;
        }
        assert_eq!(reads, 3, "4 MiB each");
        assert_eq!(log.limited_get_log_entries(3, 3).await.unwrap().len(), 0);
    });
}

#[test]
fn store_belongs_to_one_process() {
    in_every_cell(|cell| async move {
        let folder = cell.folder();
        let (log, state) = cell.open(&folder);
        let again = || bristlecone_raft::open::<Types>(&folder, &cell.options());
        assert!(matches!(again(), Err(Error::InUse { .. })), "{cell:?}");
        // The state machine alone keeps the lock.
        drop(log);
        assert!(matches!(again(), Err(Error::InUse { .. })), "{cell:?}");
        drop(state);
        again().unwrap();
    });
}

/// Opens the pool of a log that is not open, to damage it.
fn pool_of(cell: Cell, folder: &tempfile::TempDir) -> Pool {
    let options = Pool::options().max_bytes(1 << 30).domain(cell.domain);
    options.open(folder.path().join("log.pool")).unwrap()
}

#[test]
fn missing_and_damaged_entries_are_errors() {
    in_every_cell(|cell| async move {
        let folder = cell.folder();
        let (mut log, state) = cell.open(&folder);
        let long = entry(3, put("k", vec![1; 200_000]));
        log.blocking_append([blank(1), blank(2), long, blank(4)]).await.unwrap();
        drop((log, state));
        let damage = |change: &dyn Fn(&Pool)| {
            let pool = pool_of(cell, &folder);
            change(&pool);
            pool.close().unwrap();
        };
        let read = || async {
            let (mut log, _state) = cell.open(&folder);
            log.try_get_log_entries(..).await.map(|entries| entries.len()).map_err(|error| error.to_string())
        };
        assert_eq!(read().await, Ok(4), "{cell:?}");

        damage(&|pool| {
            let entries = pool.tree::<u64, &[u8]>("entries").unwrap();
            let kept = entries.insert(2, &[9, 9]).unwrap().unwrap();
            pool.tree::<u64, &[u8]>("kept").unwrap().insert(2, &kept).unwrap();
        });
        assert!(read().await.unwrap_err().contains("log entry 2"), "{cell:?}");
        damage(&|pool| {
            let kept = pool.tree::<u64, &[u8]>("kept").unwrap().get(2).unwrap().unwrap();
            pool.tree::<u64, &[u8]>("entries").unwrap().insert(2, &kept).unwrap();
            let parts = pool.tree::<(u64, u32), &[u8]>("parts").unwrap();
            assert!(parts.remove((3, 0)).unwrap().is_some());
        });
        let error = read().await.unwrap_err();
        assert!(error.contains("a missing part") && error.contains("log entry 3"), "{cell:?}: {error}");
        damage(&|pool| drop(pool.tree::<u64, &[u8]>("entries").unwrap().remove(2).unwrap()));
        let refused = LogStore::<Types>::open(&folder, &cell.options()).unwrap_err();
        assert!(matches!(refused, Error::Corrupted { .. }), "{cell:?}: {refused}");
    });
}

#[test]
fn interrupted_purge_and_append_are_finished_by_the_next_opening() {
    in_every_cell(|cell| async move {
        let folder = cell.folder();
        let mut log = cell.open_log(&folder);
        log.blocking_append((1..=6).map(blank).collect::<Vec<_>>()).await.unwrap();
        log.purge(id(4)).await.unwrap();
        drop(log);
        // As a kill between the write of the purged id and the removals, and within a long append.
        let pool = pool_of(cell, &folder);
        let entries = pool.tree::<u64, &[u8]>("entries").unwrap();
        let parts = pool.tree::<(u64, u32), &[u8]>("parts").unwrap();
        let some = entries.get(5).unwrap().unwrap();
        (3..=4).for_each(|index| entries.upsert(index, &some).unwrap());
        parts.upsert((4, 0), b"purged").unwrap();
        parts.upsert((7, 0), b"of an entry without a head").unwrap();
        drop((entries, parts));
        pool.close().unwrap();

        let mut log = cell.open_log(&folder);
        assert_eq!(indexes(&mut log).await, [5, 6], "{cell:?}");
        drop(log);
        let pool = pool_of(cell, &folder);
        assert!(pool.tree::<(u64, u32), &[u8]>("parts").unwrap().is_empty().unwrap());
        assert_eq!(pool.tree::<u64, &[u8]>("entries").unwrap().len().unwrap(), 2);
    });
}

#[test]
fn purge_of_what_the_state_machine_lacks_waits_for_it() {
    in_every_cell(|cell| async move {
        let (from, to) = (cell.folder(), cell.folder());
        let (_log, mut source) = cell.open(&from);
        source.apply((1..=9).map(|n| entry(n, put("k", [n as u8]))).collect::<Vec<_>>()).await.unwrap();
        let snapshot = source.get_snapshot_builder().await.build_snapshot().await.unwrap();

        let (mut log, state) = cell.open(&to);
        log.blocking_append((1..=4).map(blank).collect::<Vec<_>>()).await.unwrap();
        // As openraft does before the snapshot is installed.
        log.purge(id(9)).await.unwrap();
        let purged = LogState { last_purged_log_id: Some(id(9)), last_log_id: Some(id(9)) };
        assert_eq!(log.get_log_state().await.unwrap(), purged, "{cell:?}");
        assert!(indexes(&mut log).await.is_empty());
        drop((log, state));

        // A kill before the installation leaves what was there.
        let (mut log, mut state) = cell.open(&to);
        assert_eq!(indexes(&mut log).await, [1, 2, 3, 4], "{cell:?}");
        log.purge(id(9)).await.unwrap();
        // An entry behind the snapshot is acknowledged once the state machine is there.
        let mut other = log.clone();
        let appended = tokio::spawn(async move { other.blocking_append([blank(10)]).await });
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        assert!(!appended.is_finished(), "{cell:?}");
        state.install_snapshot(&snapshot.meta, snapshot.snapshot).await.unwrap();
        appended.await.unwrap().unwrap();
        assert_eq!(indexes(&mut log).await, [10]);
        drop((log, state));

        let (mut log, state) = cell.open(&to);
        let expected = LogState { last_purged_log_id: Some(id(9)), last_log_id: Some(id(10)) };
        assert_eq!(log.get_log_state().await.unwrap(), expected, "{cell:?}");
        log.purge(id(20)).await.unwrap();
        // openraft has dropped the state machine, which failed.
        drop(state);
        assert!(log.blocking_append([blank(21)]).await.is_err(), "{cell:?}");
    });
}
