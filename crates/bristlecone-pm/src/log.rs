//! A write-ahead log in chunks of the pool: each thread appends to a chunk of its own, in the memory
//! of its own node where the machine has several.
//!
//! ```text
//! chunk   generation | spare         slot 0, 24 B
//!         stamp, key, value          slot 1: the first entry
//!         stamp, key, value          …
//! stamp   bit 0 removed | bits 1-8 generation | bits 9-63 sequence
//! ```
//!
//! **The word that commits** is the stamp. An entry counts while its stamp carries the generation
//! of its chunk, and the entries of a chunk end with the first one that does not. What a chunk held
//! before stays in it: the stamp behind the last entry never carries the generation.
//!
//! # Append
//! 1. A stamp behind the entry that would count gets zero; key and value. If they share the stamp's
//!    line, the line keeps the order of its stores; otherwise they are flushed and fenced first. *The
//!    stamp is of an older generation, or zero: the entry is not there. A torn entry looks the same.*
//! 2. The stamp; flush, fence. *The entry is there, or it is not.*
//!
//! # Recycle (nothing needs the entries of some chunks any more)
//! 1. The next generation is stored; flush, one fence for all chunks. *The chunk is empty, or
//!    still full of entries that nobody needed.* Only now may the chunk be used again.
//!
//! What an entry means, and which of two for one key is newer, is the tree's business: sequences
//! need an order only among entries that the tree compares.

mod copies;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crossbeam_utils::CachePadded;

pub use self::copies::Copies;
use crate::latch::{Held, Latch};
use crate::numa::Nodes;
use crate::wait::lock;
use crate::{
    Durable, Flushed, LINE_BYTES, Medium, Persist, Persistent, PoolFile, SlotKind, Step, TreeId, Word,
    prefetch, thread_index,
};

/// Threads that append without sharing.
const APPENDERS: usize = 64;
/// Bytes of an entry, and of the header that stands in the place of the first one.
pub const LOG_ENTRY_BYTES: usize = 24;
/// Generations of a chunk: 1 to this. Zero is what a fresh chunk holds everywhere.
const GENERATIONS: u64 = 255;
const GENERATION_SHIFT: u32 = 1;
const SEQUENCE_SHIFT: u32 = 9;

/// An entry on the medium.
#[repr(C)]
struct Cell {
    stamp: Word,
    item: Item,
}

/// What an entry says.
#[repr(C)]
struct Item {
    key: Word,
    value: Word,
}

// SAFETY: repr(C), words only, no padding (sizes asserted below).
unsafe impl Persistent for Cell {}

const _: () = {
    assert!(size_of::<Cell>() == LOG_ENTRY_BYTES);
    // The pool clears the first word of a chunk: that has to be its generation.
    assert!(std::mem::offset_of!(Cell, stamp) == 0);
};

impl Cell {
    /// Whether it stands in two lines.
    fn straddles(&self) -> bool {
        line_of(&self.stamp) != line_of(&self.item.value)
    }
}

fn line_of(word: &Word) -> usize {
    std::ptr::from_ref(word).addr() / LINE_BYTES
}

/// An entry of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Orders entries as their tree wants it: below 2^55.
    pub sequence: u64,
    /// Whether the key was removed.
    pub removed: bool,
    /// The key's word.
    pub key: u64,
    /// The value's word.
    pub value: u64,
}

impl LogEntry {
    fn stamp(&self, generation: u64) -> u64 {
        u64::from(self.removed) | generation << GENERATION_SHIFT | self.sequence << SEQUENCE_SHIFT
    }
}

/// A chunk of a log. Not to be copied: who holds it decides when it is recycled.
#[derive(Debug)]
pub struct LogChunk {
    id: u32,
    offset: u64,
    generation: u64,
    /// The node that its memory belongs to.
    node: u16,
}

impl LogChunk {
    /// The chunk's number in the pool.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Whether an entry with this stamp counts.
    fn counts(&self, stamp: u64) -> bool {
        stamp >> GENERATION_SHIFT & GENERATIONS == self.generation
    }
}

/// Where one thread appends.
#[derive(Debug, Default)]
struct Appender {
    chunk: Option<LogChunk>,
    /// Slot of the next entry.
    next: usize,
    epoch: u64,
    began: bool,
}

impl Appender {
    fn has_room(&self, slots: usize) -> bool {
        self.chunk.is_some() && self.next < slots
    }
}

#[derive(Debug, Default)]
struct Chunks {
    /// Chunks that take no more entries, since the last turn.
    sealed: Vec<LogChunk>,
    /// Chunks without entries.
    free: Vec<LogChunk>,
    /// One more without entries, so that even in a full pool there is a place for copies.
    spare: Option<LogChunk>,
}

/// The log of one tree. See the module.
#[derive(Debug)]
pub struct Log<M: Medium> {
    pool: Arc<PoolFile<M>>,
    owner: TreeId,
    nodes: Nodes,
    /// Slots of a chunk that are used, the header's included.
    slots: usize,
    /// One for each thread, and the last one for copies.
    appenders: Box<[CachePadded<Latch<Appender>>]>,
    chunks: Mutex<Chunks>,
    /// Chunks that are not free.
    in_use: AtomicUsize,
    /// Appenders that ever appended.
    active: AtomicUsize,
}

/// Room for one entry, which nobody else gets.
pub struct LogSpot<'a, M: Medium> {
    log: &'a Log<M>,
    appender: Held<'a, Appender>,
}

impl<M: Medium> Log<M> {
    /// Takes over the chunks of a tree's log. What stands in them is read with
    /// [`entries`](Self::entries); chunks that are needed go back by [`seal`](Self::seal). A chunk
    /// takes `entries_max` entries, or as many as it has room for.
    pub fn open(pool: &Arc<PoolFile<M>>, owner: TreeId, entries_max: Option<usize>) -> (Self, Vec<LogChunk>) {
        let room = pool.chunk_bytes() as usize / LOG_ENTRY_BYTES;
        let slots = entries_max.map_or(room, |entries| (entries + 1).min(room));
        let nodes = Nodes::here();
        let owned = pool.chunks_of(owner).into_iter().filter(|chunk| chunk.kind == SlotKind::Log);
        let chunks: Vec<_> = owned
            .map(|chunk| {
                let generation = pool.at::<Word>(chunk.offset);
                let node = nodes.of_memory(generation);
                let generation = generation.load(pool.medium());
                LogChunk { id: chunk.id, offset: chunk.offset, generation, node }
            })
            .collect();
        let log = Self {
            pool: Arc::clone(pool),
            owner,
            nodes,
            slots,
            appenders: (0..=APPENDERS).map(|_| CachePadded::default()).collect(),
            chunks: Mutex::default(),
            in_use: AtomicUsize::new(chunks.len()),
            active: AtomicUsize::new(0),
        };
        (log, chunks)
    }

    /// Keeps chunks that still hold entries which somebody needs, until the next turn.
    pub fn seal(&self, chunks: Vec<LogChunk>) {
        lock(&self.chunks).sealed.extend(chunks);
    }

    /// Takes those of the chunks that take no more entries which `wanted` names by their numbers.
    pub fn take_sealed(&self, mut wanted: impl FnMut(u32) -> bool) -> Vec<LogChunk> {
        lock(&self.chunks).sealed.extract_if(.., |chunk| wanted(chunk.id)).collect()
    }

    /// Takes up to `count` of the chunks that take no more entries, those first that were full first.
    pub fn take_oldest(&self, count: usize) -> Vec<LogChunk> {
        let sealed = &mut lock(&self.chunks).sealed;
        sealed.drain(..count.min(sealed.len())).collect()
    }

    fn cell(&self, chunk: &LogChunk, slot: usize) -> &Cell {
        self.pool.at(chunk.offset + (slot * LOG_ENTRY_BYTES) as u64)
    }

    /// Entries that a chunk has room for.
    pub fn chunk_entries(&self) -> usize {
        self.slots - 1
    }

    /// Threads that have a chunk of their own.
    pub fn appenders(&self) -> usize {
        self.active.load(Relaxed)
    }

    /// Chunks that take no more entries, since the last turn.
    fn chunks_sealed(&self) -> usize {
        lock(&self.chunks).sealed.len()
    }

    /// Whether a turn would find chunks with other entries than copies.
    pub fn has_garbage(&self) -> bool {
        self.chunks_sealed() > 0 || self.appenders[..APPENDERS].iter().any(|each| each.hold().chunk.is_some())
    }

    /// Chunks that hold entries, or are about to.
    pub fn chunks_in_use(&self) -> usize {
        self.in_use.load(Relaxed)
    }

    /// Chunks of the pool that the log owns.
    pub fn chunks_owned(&self) -> usize {
        let chunks = lock(&self.chunks);
        self.chunks_in_use() + chunks.free.len() + usize::from(chunks.spare.is_some())
    }

    /// Chunks without entries that are not the spare one, and are near the calling thread.
    pub fn chunks_free(&self) -> usize {
        let here = self.nodes.of_thread();
        lock(&self.chunks).free.iter().filter(|chunk| chunk.node == here).count()
    }

    /// Gives back chunks without entries, but for the spare one; how many: for those who want the
    /// space for something else.
    pub fn release_free(&self) -> usize {
        let free = std::mem::take(&mut lock(&self.chunks).free);
        free.iter().for_each(|chunk| self.pool.chunk_free(chunk.id));
        free.len()
    }

    /// The entries of a chunk, oldest first.
    pub fn entries(&self, chunk: &LogChunk) -> impl Iterator<Item = LogEntry> {
        let medium = self.pool.medium();
        (1..self.slots).map_while(move |slot| {
            let cell = self.cell(chunk, slot);
            let stamp = cell.stamp.load(medium);
            let counts = chunk.generation != 0 && chunk.counts(stamp);
            counts.then(|| LogEntry {
                sequence: stamp >> SEQUENCE_SHIFT,
                removed: stamp & 1 != 0,
                key: cell.item.key.load(medium),
                value: cell.item.value.load(medium),
            })
        })
    }

    /// Room for an entry in this thread's chunk. `None`: there is none, and `may_grow`, which is told
    /// how many chunks are full by now, does not let the log take another one, or the pool is full.
    pub fn reserve(&self, may_grow: impl FnOnce(usize) -> bool) -> Option<LogSpot<'_, M>> {
        self.reserve_at(thread_index() % APPENDERS, |full| {
            if !may_grow(full) {
                return None;
            }
            // Nothing is logged that could not be copied later.
            if lock(&self.chunks).spare.is_none() {
                let spare = self.take_chunk()?;
                let other = lock(&self.chunks).spare.replace(spare);
                lock(&self.chunks).free.extend(other);
            }
            self.take_chunk()
        })
    }

    /// The same for the one who copies entries. Its chunk is its own, so that nobody's entry stands
    /// behind one that is not fenced yet.
    pub fn reserve_copy(&self, may_grow: impl FnOnce(usize) -> bool) -> Option<LogSpot<'_, M>> {
        self.reserve_at(APPENDERS, |full| may_grow(full).then(|| self.take_chunk()).flatten())
    }

    /// The same out of what the log has set aside for copies that have no other place.
    pub fn reserve_spare(&self) -> Option<LogSpot<'_, M>> {
        self.reserve_at(APPENDERS, |_| lock(&self.chunks).spare.take())
    }

    fn reserve_at(
        &self,
        index: usize,
        more: impl FnOnce(usize) -> Option<LogChunk>,
    ) -> Option<LogSpot<'_, M>> {
        let mut appender = self.appenders[index].hold();
        let reserved = appender.has_room(self.slots) || self.make_room(&mut appender, more);
        reserved.then(|| LogSpot { log: self, appender })
    }

    /// Gives an appender another chunk; whether there was one.
    fn make_room(&self, appender: &mut Appender, more: impl FnOnce(usize) -> Option<LogChunk>) -> bool {
        if !std::mem::replace(&mut appender.began, true) {
            self.active.fetch_add(1, Relaxed);
        }
        let Some(fresh) = more(self.chunks_sealed() + usize::from(appender.chunk.is_some())) else {
            return false;
        };
        self.in_use.fetch_add(1, Relaxed);
        let full = appender.chunk.replace(fresh);
        appender.next = 1;
        lock(&self.chunks).sealed.extend(full);
        true
    }

    /// Where copies go that are made one after the other and fenced together.
    pub fn copies(&self) -> Copies<'_, M> {
        Copies::new(self, self.appenders[APPENDERS].hold())
    }

    /// The stamp of a slot, if it would count although nothing was written there since the chunk was
    /// emptied.
    fn stale_stamp(&self, chunk: &LogChunk, slot: usize) -> Option<&Word> {
        let stamp = (slot < self.slots).then(|| &self.cell(chunk, slot).stamp);
        stamp.filter(|stamp| chunk.counts(stamp.load(self.pool.medium())))
    }

    /// A chunk without entries: one that was used and is near the calling thread, or a fresh one,
    /// which its system puts near it, or any. `None`: the pool is full.
    fn take_chunk(&self) -> Option<LogChunk> {
        let here = self.nodes.of_thread();
        {
            let free = &mut lock(&self.chunks).free;
            if let Some(near) = free.iter().rposition(|chunk| chunk.node == here) {
                return Some(free.remove(near));
            }
        }
        let fresh = self.pool.chunk_alloc(self.owner, SlotKind::Log, LOG_ENTRY_BYTES as u32, 1);
        let Ok(chunk) = fresh else { return lock(&self.chunks).free.pop() };
        let mut fresh = LogChunk { id: chunk.id, offset: chunk.offset, generation: 0, node: here };
        // No flush of its own: the first entry shares its line, which keeps their order, and the second
        // one straddles two, and fences.
        let generation = self.renew(&mut fresh, "log chunk");
        fresh.node = self.nodes.of_memory(generation);
        Some(fresh)
    }

    /// Turns to new chunks: every entry so far is in a chunk of those returned, every later one
    /// will not be, and is told the new `epoch`.
    pub fn turn(&self, epoch: u64) -> Vec<LogChunk> {
        let mut old = std::mem::take(&mut lock(&self.chunks).sealed);
        for appender in &self.appenders {
            let mut appender = appender.hold();
            appender.epoch = epoch;
            old.extend(appender.chunk.take());
        }
        old
    }

    /// Empties chunks whose entries nobody needs, durably, for use again. The log keeps as many
    /// as it uses; the pool gets the rest.
    pub fn recycle(&self, old: Vec<LogChunk>) {
        let medium = self.pool.medium();
        let count = old.len();
        let mut flushed = Flushed::none();
        let mut emptied = Vec::with_capacity(count);
        for mut chunk in old {
            let generation = self.renew(&mut chunk, "log recycle.1");
            flushed = flushed.and(medium.flush(generation, "log recycle.1"));
            emptied.push(chunk);
        }
        let Durable { .. } = medium.fence(flushed, "log recycle.1");
        self.in_use.fetch_sub(count, Relaxed);
        let keep = self.chunks_in_use() + 1;
        let surplus = {
            let mut chunks = lock(&self.chunks);
            if chunks.spare.is_none() {
                chunks.spare = emptied.pop();
            }
            chunks.free.append(&mut emptied);
            let keep = keep.min(chunks.free.len());
            chunks.free.split_off(keep)
        };
        surplus.iter().for_each(|chunk| self.pool.chunk_free(chunk.id));
    }

    /// Gives a chunk its next generation, which no entry has; where that stands.
    fn renew(&self, chunk: &mut LogChunk, step: Step) -> &Word {
        let medium = self.pool.medium();
        chunk.generation = chunk.generation % GENERATIONS + 1;
        let first = &self.cell(chunk, 1).stamp;
        if chunk.counts(first.load(medium)) {
            first.store(medium, 0);
        }
        let generation = &self.cell(chunk, 0).stamp;
        generation.publish(medium, chunk.generation, &medium.ordered_within_line(), step);
        generation
    }
}

impl<M: Medium> LogSpot<'_, M> {
    /// The number of the chunk that the entry will be in.
    pub fn chunk(&self) -> u32 {
        self.appender.chunk.as_ref().expect("a spot stands in a chunk").id
    }

    /// Appends the entry; it is durable when this returns. `records` is what must be durable
    /// before it, if anything. Gives the epoch that it belongs to: see [`Log::turn`].
    pub fn append(self, entry: &LogEntry, records: Option<Flushed>) -> u64 {
        self.append_meanwhile(entry, records, || {})
    }

    /// The same, and does something else while the entry is on its way.
    #[inline]
    pub fn append_meanwhile(
        mut self,
        entry: &LogEntry,
        records: Option<Flushed>,
        meanwhile: impl FnOnce(),
    ) -> u64 {
        let flushed = self.start(entry, records);
        meanwhile();
        // Whoever shares the chunk appends behind what is durable.
        let Durable { .. } = self.log.pool.medium().fence(flushed, "log append.2");
        self.appender.epoch
    }

    /// The same for copies: who makes them fences later.
    pub fn append_unfenced(mut self, entry: &LogEntry, records: Option<Flushed>) -> (u64, Flushed) {
        let flushed = self.start(entry, records);
        (self.appender.epoch, flushed)
    }

    fn start(&mut self, entry: &LogEntry, records: Option<Flushed>) -> Flushed {
        let medium = self.log.pool.medium();
        let chunk = self.appender.chunk.as_ref().expect("a spot stands in a chunk");
        let cell = self.log.cell(chunk, self.appender.next);
        let stamp = entry.stamp(chunk.generation);
        cell.item.key.store(medium, entry.key);
        cell.item.value.store(medium, entry.value);
        let torn = cell.straddles();
        let next = self.log.stale_stamp(chunk, self.appender.next + 1);
        if let Some(next) = next {
            next.store(medium, 0);
        }
        let next = next.filter(|next| line_of(next) != line_of(&cell.item.value));
        if torn || next.is_some() || records.is_some() {
            let mut flushed = records.unwrap_or_else(Flushed::none);
            if let Some(next) = next {
                flushed = flushed.and(medium.flush(next, "log append.1 next"));
            }
            if torn {
                // The key shares the stamp's line, or this one.
                flushed = flushed.and(medium.flush(&cell.item.value, "log append.1"));
            }
            let durable = medium.fence(flushed, "log append.1");
            // Within the stamp's line its order still has to be kept.
            let _ordered = medium.ordered_within_line();
            cell.stamp.publish(medium, stamp, &durable, "log append.2");
        } else {
            // Relies on line order.
            let ordered = medium.ordered_within_line();
            cell.stamp.publish(medium, stamp, &ordered, "log append.2");
        }
        let flushed = medium.flush(cell, "log append.2");
        // Where the next entry ends: a line that is at hand, or one that has not been looked at.
        prefetch(std::ptr::from_ref(&cell.item.value).wrapping_byte_add(LOG_ENTRY_BYTES));
        self.appender.next += 1;
        flushed
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeSet;

    use super::*;
    use crate::{Domain, Geometry, Native, Region, TreeSpec};

    thread_local!(static PROCESSOR: Cell<usize> = const { Cell::new(0) });

    /// A log of one entry a chunk, on a machine of two nodes with two processors each.
    fn log_on_two_nodes(chunks_max: u64) -> Log<Native> {
        let geometry = Geometry { chunk_bytes: 4096, chunks_max, trees_max: 1 };
        let region = Region::memory(geometry.max_bytes()).unwrap();
        let pool =
            PoolFile::create_in(region, geometry, Domain::Process, Native::new(Domain::Process)).unwrap();
        let spec = TreeSpec {
            name: "t".into(),
            design: 3,
            key_kind: "u64".into(),
            value_kind: "u64".into(),
            params: [0; 8],
        };
        let tree = pool.create_tree(&spec).unwrap().id;
        let (mut log, _) = Log::open(&pool, tree, Some(1));
        log.nodes = Nodes::of(vec![0, 0, 1, 1], || PROCESSOR.get(), |_| None);
        log
    }

    /// Appends an entry on a processor; the number of its chunk.
    fn append(log: &Log<Native>, processor: usize) -> Option<u32> {
        PROCESSOR.set(processor);
        let spot = log.reserve(|_| true)?;
        let chunk = spot.chunk();
        spot.append(&LogEntry { sequence: 1, removed: false, key: 2, value: 3 }, None);
        Some(chunk)
    }

    #[test]
    fn chunks_are_used_again_by_threads_of_their_node() {
        let log = log_on_two_nodes(64);
        let mut near = [BTreeSet::new(), BTreeSet::new()];
        for n in 0..8 {
            near[n % 2].insert(append(&log, [1, 2][n % 2]).unwrap());
        }
        let old = log.turn(1);
        // As many as are in use are kept, and one.
        (0..5).for_each(|_| _ = append(&log, 0).unwrap());
        log.recycle(old);
        PROCESSOR.set(3);
        let free = log.chunks_free();
        assert_eq!(free, 3);
        let again: BTreeSet<_> = (0..free).map(|_| append(&log, 3).unwrap()).collect();
        assert!(again.is_subset(&near[1]), "{again:?} of {near:?}");
        // What is left is far from here: the pool has others.
        assert!(log.chunks_free() == 0 && !near[0].contains(&append(&log, 3).unwrap()));
        assert!(near[0].contains(&append(&log, 0).unwrap()));
    }

    #[test]
    fn a_full_pool_gives_what_is_far_away() {
        let log = log_on_two_nodes(8);
        (0..5).for_each(|_| _ = append(&log, 0).unwrap());
        log.recycle(log.turn(1));
        let take = || log.pool.chunk_alloc(log.owner, SlotKind::Subnode, 256, 0);
        while take().is_ok() {}
        PROCESSOR.set(2);
        assert_eq!(log.chunks_free(), 0, "the free one is far from here");
        assert!(append(&log, 2).is_some() && append(&log, 2).is_none());
    }
}
