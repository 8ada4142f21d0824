//! What a forked child saves: the parent takes a snapshot and serves it over a socket pair.
//!
//! A child of the server shares the pool's memory with its parent, which continues to write: the child has no snapshot, and
//! never touches the pool. So before any fork there is a socket pair. 1. The server forks; the child inherits both
//! ends. 2. The parent, before it runs any further command, takes a snapshot and hands its end to a thread. 3. The child writes
//! the id of each large map that it saves, and reads pieces of that map. 4. When the child ends, the thread reads the end of
//! the stream and drops the snapshot.
//!
//! To ask for each small map would take longer than to save it. So the child gets all of them at its first small map, and keeps
//! them in its own memory.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use bristlecone::{Error, Result, Snapshot};

use crate::map::{self, Small};
use crate::pieces::{PIECE_BYTES, pack};
use crate::store::{Expiries, ID_BYTES, SmallEntry, Store, Unfinished, all_of, as_item, borrowed};

/// The ends of the pair that waits for a fork, or -1.
static PARENT_END: AtomicI32 = AtomicI32::new(-1);
static CHILD_END: AtomicI32 = AtomicI32::new(-1);
/// The process that loaded the module.
static LOADER: OnceLock<u32> = OnceLock::new();

/// Instead of a piece's length: the parent could not read the map.
const FAILED: u32 = u32::MAX;
/// Instead of a map's id: all small maps. Each of their pieces is a sequence of a map's word as eight bytes little-endian, and the
/// length of its entry as four, followed by the entry.
const ALL_SMALL: u64 = u64::MAX;

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
    // A child has no children that use the module; the parent asks rarely, a child for each map.
    static IS_CHILD: AtomicBool = AtomicBool::new(false);
    if IS_CHILD.load(Ordering::Relaxed) {
        return true;
    }
    let is_child = LOADER.get().is_some_and(|loader| *loader != std::process::id());
    IS_CHILD.store(is_child, Ordering::Relaxed);
    is_child
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
    let unfinished = store.unfinished();
    let thread = std::thread::Builder::new().name("bristlecone-fork".to_owned());
    // A tree that is made later is not in the snapshot.
    let times = store.expiries();
    thread.spawn(move || answer(store, &snapshot, &unfinished, times, stream)).map_err(failed)?;
    Ok(())
}

fn answer(
    store: &Store,
    snapshot: &Snapshot,
    unfinished: &Unfinished,
    times: Option<&Expiries>,
    mut stream: UnixStream,
) {
    let mut id = [0; 8];
    while stream.read_exact(&mut id).is_ok() {
        let sent = match u64::from_be_bytes(id) {
            ALL_SMALL => send_small(store, snapshot, &mut stream),
            id => send(store, snapshot, unfinished, times, id, &mut stream),
        };
        if sent.is_err() && stream.write_all(&FAILED.to_le_bytes()).is_err() {
            return;
        }
    }
}

fn send(
    store: &Store,
    snapshot: &Snapshot,
    unfinished: &Unfinished,
    times: Option<&Expiries>,
    id: u64,
    stream: &mut UnixStream,
) -> Result<()> {
    let bounds = all_of(unfinished.source_of(id));
    let items = snapshot.tree(store.items()).range(borrowed(&bounds));
    let items = items.filter(|item| !matches!(item, Ok((key, _)) if unfinished.removes(key)));
    pack(items, ID_BYTES, |piece| send_piece(stream, piece))?;
    let times = times.map(|tree| snapshot.tree(tree.entries()).range(borrowed(&bounds)));
    let times = times.into_iter().flatten();
    let times = times.filter(|time| !matches!(time, Ok((key, _)) if unfinished.removes(key)));
    pack(times.map(as_item), ID_BYTES, |piece| send_piece(stream, piece))
}

fn send_piece(stream: &mut UnixStream, piece: &[u8]) -> Result<()> {
    stream.write_all(&(piece.len() as u32).to_le_bytes()).map_err(failed)?;
    stream.write_all(piece).map_err(failed)
}

fn send_small(store: &Store, snapshot: &Snapshot, stream: &mut UnixStream) -> Result<()> {
    let mut piece = Vec::with_capacity(2 * PIECE_BYTES);
    for entry in snapshot.tree(store.small()).iter() {
        let (word, value) = entry?;
        piece.extend_from_slice(&word.to_le_bytes());
        piece.extend_from_slice(&(value.len() as u32).to_le_bytes());
        piece.extend_from_slice(&value);
        if piece.len() >= PIECE_BYTES {
            send_piece(stream, &piece)?;
            piece.clear();
        }
    }
    if !piece.is_empty() {
        send_piece(stream, &piece)?;
    }
    send_piece(stream, b"")
}

/// Calls `give` with the pieces of a map as the parent's snapshot has it: those of fields and, behind an empty one, those of times,
/// with an empty one at last. For a child.
///
/// # Errors
///
/// What the system says, or that the parent could not read the map.
pub fn ask(id: u64, give: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    ask_for(id, 2, give)
}

/// Calls `give` with pieces until `parts` of them were empty.
fn ask_for(id: u64, mut parts: u32, mut give: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
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
        parts -= u32::from(len == 0);
        if parts == 0 {
            CHILD_END.store(stream.into_raw_fd(), Ordering::Relaxed);
            return Ok(());
        }
    }
}

/// All small maps of the parent's snapshot, in a child.
#[derive(Default)]
struct AllSmall {
    bytes: Vec<u8>,
    /// Where the entry of a word begins, and its length. The server asks in an order of its own.
    entries: HashMap<u64, (usize, u32), BuildHasherDefault<WordHasher>>,
}

static SMALL: OnceLock<AllSmall> = OnceLock::new();

/// Hashes a word: their numbers ascend, and no client chooses them.
#[derive(Default)]
struct WordHasher(u64);

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl AllSmall {
    fn ask() -> Result<Self> {
        let mut all = Self::default();
        all.entries.reserve(map::in_keys() as usize);
        ask_for(ALL_SMALL, 1, |piece| {
            let mut rest = piece;
            while let Some((word, after)) = rest.split_first_chunk() {
                let (len, after) = after.split_first_chunk().ok_or_else(cut_short)?;
                let len = u32::from_le_bytes(*len);
                let (entry, after) = after.split_at_checked(len as usize).ok_or_else(cut_short)?;
                all.entries.insert(u64::from_le_bytes(*word), (all.bytes.len(), len));
                all.bytes.extend_from_slice(entry);
                rest = after;
            }
            if rest.is_empty() { Ok(()) } else { Err(cut_short()) }
        })?;
        Ok(all)
    }
}

fn cut_short() -> Error {
    Error::Invalid { what: "a piece of small maps is cut short".to_owned() }
}

/// Calls `show` with a small map as the parent's snapshot has it. For a child.
///
/// # Errors
///
/// What the system says, or that the parent could not read the small maps.
pub fn with_small<R>(small: Small, show: impl FnOnce(SmallEntry<'_>) -> R) -> Result<R> {
    let all = match SMALL.get() {
        Some(all) => all,
        None => {
            let asked = AllSmall::ask()?;
            SMALL.get_or_init(|| asked)
        }
    };
    let Some((begins, len)) = all.entries.get(&small.word()) else {
        return Err(Error::Invalid { what: format!("the parent has no map {}", small.id()) });
    };
    SmallEntry::of(&all.bytes[*begins..*begins + *len as usize]).map(show)
}
