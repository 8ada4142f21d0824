//! What a forked child saves: the parent takes a snapshot and serves it over a socket pair.
//!
//! A child of the server shares the pool's memory with its parent, which continues to write: the child has no snapshot, and
//! never touches the pool. So before any fork there is a socket pair. 1. The server forks; the child inherits both
//! ends. 2. The parent, before it runs any further command, takes a snapshot and hands its end to a thread. 3. The child writes
//! the id of each map that it saves, and reads pieces of that map. 4. When the child ends, the thread reads the end of
//! the stream and drops the snapshot.

use std::io::{Read, Write};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use bristlecone::{Error, Result, Snapshot};

use crate::pieces::pack;
use crate::store::{ID_BYTES, Store, all_of, borrowed};

/// The ends of the pair that waits for a fork, or -1.
static PARENT_END: AtomicI32 = AtomicI32::new(-1);
static CHILD_END: AtomicI32 = AtomicI32::new(-1);
/// The process that loaded the module.
static LOADER: OnceLock<u32> = OnceLock::new();

/// Instead of a piece's length: the parent could not read the map.
const FAILED: u32 = u32::MAX;

fn failed(source: std::io::Error) -> Error {
    Error::Io { doing: "serving a snapshot to a child".to_owned(), source }
}

/// Makes a socket pair, for the next fork.
pub fn arm() -> Result<()> {
    LOADER.get_or_init(std::process::id);
    let (parent, child) = UnixStream::pair().map_err(failed)?;
    PARENT_END.store(parent.into_raw_fd(), Ordering::Relaxed);
    CHILD_END.store(child.into_raw_fd(), Ordering::Relaxed);
    Ok(())
}

/// Returns whether this process is a child of the one that loaded the module.
pub fn is_child() -> bool {
    LOADER.get().is_some_and(|loader| *loader != std::process::id())
}

fn take(end: &AtomicI32) -> Option<OwnedFd> {
    let end = end.swap(-1, Ordering::Relaxed);
    // SAFETY: `arm` stored a descriptor that it owned, and the swap takes it once.
    (end >= 0).then(|| unsafe { OwnedFd::from_raw_fd(end) })
}

/// Serves the child that was forked a moment ago, in a thread of its own.
///
/// # Errors
///
/// What the system says, or the pool. The child then reads the end of the stream, and fails.
pub fn serve(store: &'static Store) -> Result<()> {
    drop(take(&CHILD_END));
    let end = take(&PARENT_END);
    arm()?;
    let stream = UnixStream::from(end.ok_or_else(|| failed(std::io::ErrorKind::NotConnected.into()))?);
    let snapshot = store.pool().snapshot()?;
    let thread = std::thread::Builder::new().name("bristlecone-fork".to_owned());
    thread.spawn(move || answer(store, &snapshot, stream)).map_err(failed)?;
    Ok(())
}

fn answer(store: &Store, snapshot: &Snapshot, mut stream: UnixStream) {
    let mut id = [0; 8];
    while stream.read_exact(&mut id).is_ok() {
        let sent = send(store, snapshot, u64::from_be_bytes(id), &mut stream);
        if sent.is_err() && stream.write_all(&FAILED.to_le_bytes()).is_err() {
            return;
        }
    }
}

fn send(store: &Store, snapshot: &Snapshot, id: u64, stream: &mut UnixStream) -> Result<()> {
    let bounds = all_of(id);
    let items = snapshot.tree(store.items()).range(borrowed(&bounds));
    pack(items, ID_BYTES, |piece| {
        stream.write_all(&(piece.len() as u32).to_le_bytes()).map_err(failed)?;
        stream.write_all(piece).map_err(failed)
    })
}

/// Calls `give` with the pieces of a map as the parent's snapshot has it, and with an empty one at last. For a child.
///
/// # Errors
///
/// What the system says, or that the parent could not read the map.
pub fn ask(id: u64, mut give: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    // With its own copy of the parent's end the child would never see that the parent is gone.
    drop(take(&PARENT_END));
    let end = take(&CHILD_END).ok_or_else(|| failed(std::io::ErrorKind::NotConnected.into()))?;
    let mut stream = UnixStream::from(end);
    stream.write_all(&id.to_be_bytes()).map_err(failed)?;
    let mut piece = Vec::new();
    loop {
        let mut len = [0; 4];
        stream.read_exact(&mut len).map_err(failed)?;
        let len = u32::from_le_bytes(len);
        if len == FAILED {
            return Err(Error::Invalid { what: format!("the parent could not read map {id}") });
        }
        piece.resize(len as usize, 0);
        stream.read_exact(&mut piece).map_err(failed)?;
        give(&piece)?;
        if len == 0 {
            CHILD_END.store(stream.into_raw_fd(), Ordering::Relaxed);
            return Ok(());
        }
    }
}
