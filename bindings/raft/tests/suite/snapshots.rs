//! Snapshots: what they contain, how they are streamed and installed, and files that are none.

use std::io::SeekFrom;
use std::path::PathBuf;

use bristlecone_raft::bristlecone::Error;
use bristlecone_raft::openraft::storage::{RaftLogStorageExt, RaftStateMachine, Snapshot};
use bristlecone_raft::openraft::{EntryPayload, Membership, RaftSnapshotBuilder, SnapshotMeta};
use bristlecone_raft::{SnapshotFile, openraft};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

use crate::stores::{Cell, State, Types, blank, entry, id, in_every_cell, put};

async fn built(state: &mut State) -> Snapshot<Types> {
    state.get_snapshot_builder().await.build_snapshot().await.expect("a snapshot is built")
}

async fn bytes_of(mut snapshot: Box<SnapshotFile>) -> Vec<u8> {
    let mut bytes = Vec::new();
    snapshot.read_to_end(&mut bytes).await.unwrap();
    bytes
}

/// Receives bytes as openraft does: in pieces, of which one comes twice.
async fn received(state: &mut State, bytes: &[u8]) -> Box<SnapshotFile> {
    let mut file = state.begin_receiving_snapshot().await.unwrap();
    let (first, second) = bytes.split_at(bytes.len() / 2);
    file.write_all(first).await.unwrap();
    file.write_all(second).await.unwrap();
    file.seek(SeekFrom::Start(first.len() as u64)).await.unwrap();
    file.write_all(second).await.unwrap();
    file.shutdown().await.unwrap();
    file
}

/// Returns names in a store's folder, without those of the log.
fn names(folder: &TempDir) -> Vec<String> {
    let name = |item: std::io::Result<std::fs::DirEntry>| item.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(name).collect();
    names.retain(|name| !name.starts_with("log.pool"));
    names.sort();
    names
}

fn items(state: &State) -> bristlecone_raft::Items {
    state.map().range(.., usize::MAX).unwrap()
}

async fn filled(cell: Cell, folder: &TempDir) -> (crate::stores::Log, State) {
    let (log, mut state) = cell.open(folder);
    let members = Membership::new(vec![[1, 2].into()], None);
    let members = openraft::Entry { log_id: id(1), payload: EntryPayload::Membership(members) };
    let puts = (2..300_u64).map(|n| entry(n, put(n.to_be_bytes(), vec![n as u8; n as usize])));
    state.apply(std::iter::once(members).chain(puts).collect::<Vec<_>>()).await.unwrap();
    (log, state)
}

#[test]
fn snapshot_is_streamed_and_installed() {
    in_every_cell(|cell| async move {
        let (from, to) = (cell.folder(), cell.folder());
        let (_log, mut source) = filled(cell, &from).await;
        let Snapshot { meta, snapshot } = built(&mut source).await;
        assert_eq!(meta.last_log_id, Some(id(299)), "{cell:?}");
        assert_eq!(*meta.last_membership.log_id(), Some(id(1)));
        let expected = items(&source);
        // Later entries are not in the snapshot.
        source.apply([entry(300, put("later", ""))]).await.unwrap();
        let bytes = bytes_of(snapshot).await;

        let (mut log, mut state) = cell.open(&to);
        log.blocking_append([blank(1)]).await.unwrap();
        state.apply([entry(1, put("old", "old"))]).await.unwrap();
        let reader = state.map();
        let file = received(&mut state, &bytes).await;
        state.install_snapshot(&meta, file).await.unwrap();
        assert_eq!(items(&state), expected, "{cell:?}");
        // Handles from before read the new state machine.
        assert_eq!(reader.get(b"old").unwrap(), None);
        assert_eq!(state.applied_state().await.unwrap(), (meta.last_log_id, meta.last_membership.clone()));
        assert_eq!(names(&to), ["state-2"]);
        let current = state.get_current_snapshot().await.unwrap().unwrap();
        assert_eq!(current.meta, meta);
        assert!(bytes_of(current.snapshot).await == bytes, "{cell:?}");

        drop((log, state, reader));
        let (_log, mut state) = cell.open(&to);
        assert_eq!(items(&state), expected, "{cell:?}");
        assert_eq!(state.get_current_snapshot().await.unwrap().unwrap().meta, meta);
        state.apply([entry(300, put("later", ""))]).await.unwrap();
        assert_eq!(items(&state), items(&source));
    });
}

#[test]
fn snapshot_of_another_store_is_copied() {
    in_every_cell(|cell| async move {
        let (from, to) = (cell.folder(), cell.folder());
        let (_log, mut source) = filled(cell, &from).await;
        let Snapshot { meta, snapshot } = built(&mut source).await;
        let (_log, mut state) = cell.open(&to);
        state.install_snapshot(&meta, snapshot).await.unwrap();
        assert_eq!(items(&state), items(&source), "{cell:?}");
        assert!(source.get_current_snapshot().await.unwrap().is_some());
    });
}

#[test]
fn newer_snapshot_replaces_an_older_one_that_is_being_read() {
    in_every_cell(|cell| async move {
        let folder = cell.folder();
        let (log, mut state) = filled(cell, &folder).await;
        let first = built(&mut state).await;
        let expected = bytes_of(state.get_current_snapshot().await.unwrap().unwrap().snapshot).await;
        state.apply([entry(300, put("later", ""))]).await.unwrap();
        let second = built(&mut state).await;
        assert_ne!(first.meta.snapshot_id, second.meta.snapshot_id);
        assert_eq!(second.meta.last_log_id, Some(id(300)));
        assert!(bytes_of(first.snapshot).await == expected, "{cell:?}");
        drop((log, state));
        let (_log, mut state) = cell.open(&folder);
        assert_eq!(state.get_current_snapshot().await.unwrap().unwrap().meta, second.meta, "{cell:?}");
    });
}

#[test]
fn invalid_snapshots_are_refused_and_change_nothing() {
    in_every_cell(|cell| async move {
        let (from, to) = (cell.folder(), cell.folder());
        let (_log, mut source) = filled(cell, &from).await;
        let Snapshot { meta, snapshot } = built(&mut source).await;
        let bytes = bytes_of(snapshot).await;
        let (log, mut state) = cell.open(&to);
        state.apply([entry(1, put("old", "old"))]).await.unwrap();

        let mut torn = bytes.clone();
        torn.truncate(bytes.len() - (2 << 20));
        let mut flipped = bytes.clone();
        // A byte of a value, of which there are some 45,000.
        let at = flipped.windows(64).position(|some| some.iter().all(|byte| *byte == 201)).unwrap();
        flipped[at + 7] ^= 1;
        let other = SnapshotMeta { last_log_id: Some(id(7)), ..meta.clone() };
        for (what, bytes, meta) in [
            ("empty", &[][..], &meta),
            ("no pool", &[7; 1000][..], &meta),
            ("torn", &torn, &meta),
            ("damaged", &flipped, &meta),
            ("of another entry", &bytes, &other),
        ] {
            let file = received(&mut state, bytes).await;
            state.install_snapshot(meta, file).await.expect_err(what);
            assert_eq!(items(&state), [(b"old".to_vec(), b"old".to_vec())], "{cell:?}: {what}");
            assert!(state.get_current_snapshot().await.unwrap().is_none());
        }
        let file = received(&mut state, &bytes).await;
        state.install_snapshot(&meta, file).await.unwrap();
        assert_eq!(items(&state), items(&source), "{cell:?}");
        drop((log, state));
        let (_log, state) = cell.open(&to);
        assert_eq!(items(&state), items(&source), "{cell:?}");
    });
}

#[test]
fn received_files_without_an_installation_are_removed() {
    in_every_cell(|cell| async move {
        let folder = cell.folder();
        let (log, mut state) = cell.open(&folder);
        let file = received(&mut state, b"abandoned").await;
        assert_eq!(names(&folder), ["receiving-0", "state-1"], "{cell:?}");
        drop(file);
        assert_eq!(names(&folder), ["state-1"]);
        drop((log, state));
        // As a kill leaves them.
        std::fs::write(folder.path().join("receiving-3"), "abandoned").unwrap();
        std::fs::create_dir(folder.path().join("state-2")).unwrap();
        std::fs::write(folder.path().join("state-2/snapshot"), "abandoned").unwrap();
        std::fs::write(folder.path().join("state-1/snapshot.new"), "abandoned").unwrap();
        let (_log, mut state) = cell.open(&folder);
        assert_eq!(names(&folder), ["state-1"]);
        assert_eq!(built(&mut state).await.meta.last_log_id, None, "{cell:?}");
    });
}

#[test]
fn missing_state_machine_is_an_error() {
    in_every_cell(|cell| async move {
        let folder = cell.folder();
        drop(cell.open(&folder));
        let own: PathBuf = folder.path().join("state-1");
        std::fs::rename(&own, folder.path().join("elsewhere")).unwrap();
        let refused = bristlecone_raft::open::<Types>(&folder, &cell.options()).unwrap_err();
        assert!(refused.to_string().contains("state-1"), "{cell:?}: {refused}");
        // Nor is one created in its place.
        std::fs::create_dir(&own).unwrap();
        let refused = bristlecone_raft::open::<Types>(&folder, &cell.options()).unwrap_err();
        assert!(matches!(&refused, Error::NotFound { .. }), "{cell:?}: {refused}");
        std::fs::remove_dir(&own).unwrap();
        std::fs::rename(folder.path().join("elsewhere"), &own).unwrap();
        cell.open(&folder);
    });
}
