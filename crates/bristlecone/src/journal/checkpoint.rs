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
//! 2. It scans one tree after the other. *Changes from the begin on may be in the file or not: they are replayed.* Of a
//!    tree that is dropped or cleared meanwhile, the file has any part: the entry of that is replayed, too.
//! 3. The file and its name are synced, and the journal up to here: the end.
//! 4. The manifest names the file with begin and end. *A crash before: the file is none of the journal, and is removed.*
//! 5. Files with older entries are removed, but for those that a [cursor](super::cursor) needs.
//!
//! [`Pool::checkpoint`] makes all steps in its thread. A checkpoint that is due because of the length of the journal is
//! made by writers, part by part ([`PART_BYTES`]): after each part the journal grows by [`PACE_BYTES`] before the next
//! one. So no write waits for more than a part, or for the syncs of the last one.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use bristlecone_pm::sync::wait::{lock, pause};
use bristlecone_pm::{Error, Result, Storage, StoredFile, TreeEntry, TreeId, TreeSpec};

use super::Journal;
use super::entry::{push_item, push_spec, take_spec};
use super::manifest::{Checkpoint, checkpoint_name};
use crate::Pool;
use crate::index::any::OpenTree;
use crate::index::parts::encoded::Encoded;
use crate::transaction::{AnyTree, Scan};

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
/// Bytes of a part that a writer writes.
pub(super) const PART_BYTES: u64 = 256 << 10;
/// Bytes of entries from one part to the next: a checkpoint is complete before the journal has grown by a quarter of it.
const PACE_BYTES: u64 = 64 << 10;
/// No part is due.
pub(super) const NEVER: u64 = u64::MAX;

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
        // The disk begins now: the sync of the whole file has less to wait for.
        self.file.begin_writing(self.offset, self.buffer.len() as u64);
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Returns the bytes of all frames.
    fn bytes(&self) -> u64 {
        self.offset + self.buffer.len() as u64
    }
}

/// A checkpoint that is not complete.
pub struct Running {
    begin: u64,
    number: u64,
    name: String,
    writer: Writer,
    /// The trees at the begin, with their identities.
    trees: Vec<(u64, TreeEntry)>,
    /// The number of trees that are complete.
    done: usize,
    /// What the next tree has in the file; `None` if nothing.
    begun: Option<Begun>,
}

/// The part of a tree that is in the file: up to this key.
#[derive(Default)]
struct Begun {
    last: Option<Encoded>,
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
    /// [`Error::Corrupted`] for a tree that cannot be read; [`Error::DurabilityLost`]; [`Error::MediumFull`], and errors
    /// of the system.
    pub fn checkpoint(&self, pool: &Pool) -> Result<()> {
        let mut place = lock(&self.checkpointing);
        self.discard(place.take());
        self.due.store(NEVER, Relaxed);
        let mut running = self.begin_checkpoint(pool)?;
        let written = self.write_part(pool, &mut running, u64::MAX);
        self.end_checkpoint(running, written.map(drop))
    }

    /// Writes the next part of the checkpoint that is due, of some bytes, unless another thread does.
    ///
    /// # Errors
    ///
    /// Same as [`checkpoint`](Self::checkpoint). The next full segment makes a checkpoint due again.
    pub(super) fn checkpoint_part(&self, pool: &Pool, bytes: u64) -> Result<()> {
        let Ok(mut place) = self.checkpointing.try_lock() else { return Ok(()) };
        self.due.store(NEVER, Relaxed);
        let mut running = match place.take() {
            Some(running) => running,
            None => self.begin_checkpoint(pool)?,
        };
        match self.write_part(pool, &mut running, bytes) {
            Ok(false) => {
                *place = Some(running);
                self.due.store(self.ring.reserved() + PACE_BYTES, Relaxed);
                Ok(())
            }
            written => self.end_checkpoint(running, written.map(drop)),
        }
    }

    /// Removes an incomplete checkpoint.
    pub fn end_checkpoints(&self) {
        self.discard(lock(&self.checkpointing).take());
    }

    /// Removes an incomplete checkpoint. A file that is not removed is found by the next opening.
    pub(super) fn discard(&self, running: Option<Running>) {
        running.into_iter().for_each(|running| _ = self.storage.remove(&running.name));
    }

    /// Step 1.
    fn begin_checkpoint(&self, pool: &Pool) -> Result<Running> {
        let open = pool.lock_open();
        let begin = self.ring.reserved();
        self.wait_durable(begin)?;
        let trees = pool.trees()?.into_iter().map(|entry| (pool.0.epochs.identity(entry.id).0, entry));
        let trees = trees.collect();
        drop(open);
        let (uuid, number) = lock(&self.log).number();
        let name = checkpoint_name(number);
        let writer = Writer::new(self.storage.create(&name, 0)?, uuid, begin);
        Ok(Running { begin, number, name, writer, trees, done: 0, begun: None })
    }

    /// Step 2, until some bytes are written; returns whether it is complete.
    fn write_part(&self, pool: &Pool, running: &mut Running, bytes: u64) -> Result<bool> {
        let until = running.writer.bytes().saturating_add(bytes);
        while let Some((identity, entry)) = running.trees.get(running.done) {
            if running.begun.is_none() {
                let mut body = entry.id.0.to_le_bytes().to_vec();
                push_spec(&mut body, &entry.spec);
                running.writer.frame(TREE, &body)?;
            }
            let begun = running.begun.get_or_insert_default();
            if self.write_items(pool, (*identity, entry), begun, &mut running.writer, until)? {
                running.done += 1;
                running.begun = None;
            }
            if running.writer.bytes() >= until && running.done < running.trees.len() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Steps 3 to 5, unless the file could not be written.
    fn end_checkpoint(&self, mut running: Running, written: Result<()>) -> Result<()> {
        let synced = written.and_then(|()| {
            running.writer.frame(END, &[])?;
            running.writer.flush()?;
            running.writer.file.sync()?;
            self.storage.sync()
        });
        let Running { begin, number, ref name, ref writer, .. } = running;
        synced.inspect_err(|_| _ = self.storage.remove(name))?;
        let end = self.ring.reserved();
        self.wait_durable(end)?;
        let mut log = lock(&self.log);
        let checkpoint = Checkpoint { file: number, begin, end, bytes: writer.offset };
        let kept = self.replace_checkpoint(&mut log, checkpoint)?;
        // A file that is not removed is found by the next opening.
        for name in self.storage.list()?.iter().filter(|name| !log.manifest().has(name)) {
            let _ = self.storage.remove(name);
        }
        drop(log);
        self.asides.drop_before(&*self.storage, kept);
        Ok(())
    }

    /// Writes items of a tree until the file has some bytes; returns whether these are all. A tree that no other handle
    /// has open is recovered for this, and written as a whole.
    fn write_items(
        &self,
        pool: &Pool,
        (identity, entry): (u64, &TreeEntry),
        begun: &mut Begun,
        writer: &mut Writer,
        until: u64,
    ) -> Result<bool> {
        let is_open = pool.lock_open().get(&entry.id).is_some_and(OpenTree::is_open);
        let tree = match pool.open_entry(entry) {
            Err(Error::NoSuchTree { .. }) => return Ok(true),
            tree => tree?,
        };
        if tree.link.identity != identity {
            // Another tree, whose creation is in the journal, too.
            return Ok(true);
        }
        self.scanned.store(u64::from(entry.id.0), Release);
        let written = self.scan_items(&tree.any(), begun, writer, if is_open { until } else { u64::MAX });
        self.scanned.store(NO_TREE, Release);
        written
    }

    /// Writes items of a tree until the file has some bytes or the tree is released; returns whether these are all.
    fn scan_items(&self, tree: &AnyTree, begun: &mut Begun, writer: &mut Writer, until: u64) -> Result<bool> {
        let (mut scan, mut items, mut body) = (tree.scan(), Vec::new(), Vec::new());
        loop {
            let from = begun.last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let more = scan.next(true, (from, Bound::Unbounded), &mut items)?;
            items.iter().for_each(|(key, value)| push_item(&mut body, key, value));
            begun.last = items.pop().map(|(key, _)| key).or(begun.last.take());
            items.clear();
            let is_released = self.scanned.load(Acquire) == NO_TREE;
            let ends = !more || is_released || writer.bytes() + body.len() as u64 >= until;
            if body.len() >= ITEMS_BYTES || ends && !body.is_empty() {
                writer.frame(ITEMS, &body)?;
                body.clear();
            }
            if ends {
                return Ok(!more);
            }
        }
    }

    /// Makes a checkpoint let go of a tree that is about to be dropped or cleared. It looks for the tree again once the
    /// caller has released the lock of the pool's trees.
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

    /// Returns whether a thread writes to a checkpoint.
    pub(super) fn is_checkpointing(&self) -> bool {
        self.checkpointing.try_lock().is_err()
    }
}
