//! Checkpoints: the items of all trees in one file, written while writers go on.
//!
//! ```text
//! 0    magic, version; the pool's identity, 16 B; LSN of the begin
//! 40   frames: kind (1 tree, 2 items, 3 end), bytes of the body, number of the frame, CRC-32C of the pool's identity, of
//!      these three and of the body (4 B each); then the body: number and specification of a tree; items of the tree
//!      before it; nothing
//! ```
//!
//! 1. With the lock of the pool's trees, the thread waits until all entries reserved so far are complete: the begin. It
//!    lists the trees.
//! 2. It scans one tree after the other. *Changes from the begin on may be in the file or not: they are replayed.*
//! 3. The file and its name are synced, and the journal up to here: the end.
//! 4. The manifest names the file with begin and end. *A crash before: the file is none of the journal, and is removed.*
//! 5. Files with older entries are removed, but for those that a [cursor](super::cursor) needs.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use bristlecone_pm::sync::wait::{lock, pause};
use bristlecone_pm::{Error, Result, Storage, StoredFile, TreeEntry, TreeId, TreeSpec};

use super::Journal;
use super::entry::{push_item, push_spec, take_spec};
use super::manifest::{Checkpoint, checkpoint_name};
use crate::Pool;
use crate::transaction::{AnyTree, sealed::Sealed as _};

const MAGIC: u64 = u64::from_le_bytes(*b"BRISTCHK");
const VERSION: u64 = 1;
const HEADER_BYTES: usize = 40;
const FRAME_BYTES: usize = 16;
pub(super) const TREE: u32 = 1;
const ITEMS: u32 = 2;
const END: u32 = 3;
/// Bytes of items behind which a frame ends.
const ITEMS_BYTES: usize = 256 << 10;
/// Bytes that one call writes, at least.
const WRITE_BYTES: usize = 1 << 20;
/// No tree is being scanned.
const NO_TREE: u64 = u64::MAX;

/// The writer of a checkpoint.
struct Writer {
    file: Arc<dyn StoredFile>,
    uuid: u128,
    offset: u64,
    frames: u32,
    buffer: Vec<u8>,
}

impl Writer {
    fn new(file: Arc<dyn StoredFile>, uuid: u128, begin: u64) -> Self {
        let words = [MAGIC, VERSION, uuid as u64, (uuid >> 64) as u64, begin];
        Self { file, uuid, offset: 0, frames: 0, buffer: words.map(u64::to_le_bytes).concat() }
    }

    fn frame(&mut self, kind: u32, body: &[u8]) -> Result<()> {
        let start = [kind, body.len() as u32, self.frames];
        self.buffer.extend_from_slice(start.map(u32::to_le_bytes).as_flattened());
        self.buffer.extend_from_slice(&checksum(self.uuid, start, body).to_le_bytes());
        self.buffer.extend_from_slice(body);
        self.frames += 1;
        if self.buffer.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        self.file.write(self.offset, &self.buffer)?;
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

fn checksum(uuid: u128, start: [u32; 3], body: &[u8]) -> u32 {
    let own = crc32c::crc32c_append(
        crc32c::crc32c(&uuid.to_le_bytes()),
        start.map(u32::to_le_bytes).as_flattened(),
    );
    crc32c::crc32c_append(own, body)
}

/// Calls `visit` with the kind and body of each frame but the last.
pub fn frames(
    storage: &dyn Storage,
    uuid: u128,
    checkpoint: &Checkpoint,
    visit: &mut dyn FnMut(u32, &[u8]) -> Result<()>,
) -> Result<()> {
    some_frames(storage, uuid, checkpoint, |_| true, visit)
}

/// Returns the trees.
pub fn trees_of(
    storage: &dyn Storage,
    uuid: u128,
    checkpoint: &Checkpoint,
) -> Result<Vec<(TreeId, TreeSpec)>> {
    let mut trees = Vec::new();
    some_frames(storage, uuid, checkpoint, |kind| kind == TREE, &mut |_, mut body| {
        let broken = || Error::corrupted("a frame that cannot be read", checkpoint_name(checkpoint.file));
        let (id, rest) = body.split_first_chunk().ok_or_else(broken)?;
        body = rest;
        trees.push((TreeId(u32::from_le_bytes(*id)), take_spec(&mut body).ok_or_else(broken)?));
        Ok(())
    })?;
    Ok(trees)
}

/// Reads and visits only frames of the wanted kinds, and the last one.
fn some_frames(
    storage: &dyn Storage,
    uuid: u128,
    checkpoint: &Checkpoint,
    is_wanted: impl Fn(u32) -> bool,
    visit: &mut dyn FnMut(u32, &[u8]) -> Result<()>,
) -> Result<()> {
    let name = checkpoint_name(checkpoint.file);
    let broken = |what: &str, at: u64| {
        Error::corrupted(what, format!("byte {at:#x} of {name} in {}", storage.describe()))
    };
    let file = storage.open(&name)?.ok_or_else(|| broken("a missing file", 0))?;
    let mut header = [0; HEADER_BYTES];
    let read = file.read(0, &mut header)?;
    let own = [MAGIC, VERSION, uuid as u64, (uuid >> 64) as u64, checkpoint.begin].map(u64::to_le_bytes);
    if read < HEADER_BYTES || header != *own.as_flattened() {
        return Err(broken("a damaged header, or another journal's", 0));
    }
    let (mut at, mut body) = (HEADER_BYTES as u64, Vec::new());
    for number in 0.. {
        let mut start = [0; FRAME_BYTES];
        let read = file.read(at, &mut start)?;
        let words: Vec<u32> = start.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let &[kind, bytes, found, sum] = &words[..] else { return Err(broken("a torn frame", at)) };
        let fits = at + (FRAME_BYTES as u64) + u64::from(bytes) <= checkpoint.bytes;
        if read < FRAME_BYTES || found != number || !fits {
            return Err(broken("a damaged frame", at));
        }
        if matches!(kind, TREE | ITEMS) && !is_wanted(kind) {
            at += FRAME_BYTES as u64 + u64::from(bytes);
            continue;
        }
        body.resize(bytes as usize, 0);
        let read = file.read(at + FRAME_BYTES as u64, &mut body)?;
        if read < body.len() || checksum(uuid, [kind, bytes, found], &body) != sum {
            return Err(broken("a damaged frame", at));
        }
        at += FRAME_BYTES as u64 + u64::from(bytes);
        match kind {
            TREE | ITEMS => visit(kind, &body)?,
            END if at == checkpoint.bytes => return Ok(()),
            _ => return Err(broken("a damaged frame", at)),
        }
    }
    Ok(())
}

impl Journal {
    /// Writes a checkpoint: see the module.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if a tree is dropped or cleared meanwhile; [`Error::Corrupted`] for a tree that cannot be read;
    /// [`Error::DurabilityLost`]; [`Error::MediumFull`], and errors of the system.
    pub fn checkpoint(&self, pool: &Pool) -> Result<()> {
        let _only = lock(&self.checkpointing);
        let (begin, entries) = {
            let _open = pool.lock_open();
            let begin = self.ring.reserved();
            self.wait_durable(begin)?;
            let entries = pool.trees()?;
            (
                begin,
                entries
                    .into_iter()
                    .map(|entry| (pool.0.epochs.identity(entry.id).0, entry))
                    .collect::<Vec<_>>(),
            )
        };
        let (uuid, number) = lock(&self.log).number();
        let name = checkpoint_name(number);
        let written = self.write_items(pool, begin, &entries, (uuid, &name));
        let bytes = written.inspect_err(|_| _ = self.storage.remove(&name))?;
        let end = self.ring.reserved();
        self.wait_durable(end)?;
        let mut log = lock(&self.log);
        let kept = self.replace_checkpoint(&mut log, Checkpoint { file: number, begin, end, bytes })?;
        // A file that is not removed is found by the next opening.
        for name in self.storage.list()?.iter().filter(|name| !log.manifest().has(name)) {
            let _ = self.storage.remove(name);
        }
        drop(log);
        self.asides.drop_before(&*self.storage, kept);
        Ok(())
    }

    /// Steps 2 and 3; returns the length of the file.
    fn write_items(
        &self,
        pool: &Pool,
        begin: u64,
        entries: &[(u64, TreeEntry)],
        (uuid, name): (u128, &str),
    ) -> Result<u64> {
        let mut writer = Writer::new(self.storage.create(name, 0)?, uuid, begin);
        for (identity, entry) in entries {
            let mut body = entry.id.0.to_le_bytes().to_vec();
            push_spec(&mut body, &entry.spec);
            writer.frame(TREE, &body)?;
            self.scanned.store(u64::from(entry.id.0), Release);
            let scanned = self.write_tree(pool, *identity, entry, &mut writer);
            self.scanned.store(NO_TREE, Release);
            scanned?;
        }
        writer.frame(END, &[])?;
        writer.flush()?;
        writer.file.sync()?;
        self.storage.sync()?;
        Ok(writer.offset)
    }

    fn write_tree(&self, pool: &Pool, identity: u64, entry: &TreeEntry, writer: &mut Writer) -> Result<()> {
        let tree = pool.open_entry(entry)?;
        if tree.link().identity != identity {
            return Err(gone());
        }
        let any: Box<dyn AnyTree> = tree.any();
        let (mut scan, mut items, mut body) = (any.scan(), Vec::new(), Vec::new());
        let mut last = None;
        loop {
            if self.scanned.load(Acquire) == NO_TREE {
                return Err(gone());
            }
            let from = last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let more = scan.next(true, (from, Bound::Unbounded), &mut items)?;
            items.iter().for_each(|(key, value)| push_item(&mut body, key, value));
            if body.len() >= ITEMS_BYTES || !more && !body.is_empty() {
                writer.frame(ITEMS, &body)?;
                body.clear();
            }
            last = items.pop().map(|(key, _)| key).or(last);
            items.clear();
            if !more {
                return Ok(());
            }
        }
    }

    /// Makes a checkpoint let go of a tree that is about to be dropped or cleared: it fails. The caller holds the lock of
    /// the pool's trees.
    pub fn release_tree(&self, id: TreeId) {
        let own = u64::from(id.0);
        let _ = self.scanned.compare_exchange(own, NO_TREE, Release, Relaxed);
    }

    /// Waits until no checkpoint has a handle to a tree, once it was told to let go.
    pub fn wait_released(&self, is_open: impl Fn() -> bool) {
        for round in 0..100_000 {
            if !is_open() || !self.is_checkpointing() {
                return;
            }
            pause(round);
        }
    }

    /// Returns whether a thread makes a checkpoint.
    pub(super) fn is_checkpointing(&self) -> bool {
        self.checkpointing.try_lock().is_err()
    }
}

fn gone() -> Error {
    Error::invalid("a tree was dropped, cleared or closed during the checkpoint: try again")
}
