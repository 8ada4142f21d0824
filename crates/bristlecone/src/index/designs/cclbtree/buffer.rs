//! The volatile part of a leaf: its lock, and the items that are not merged into it yet.
//!
//! Slots `0..pending` hold the newest items, which are in the log and not in the leaf. Slots `pending..used`
//! hold items that are merged into the leaf and kept for readers. A search for a key from slot 0 on finds the
//! newest first.
//!
//! Buffers have the order of their leaves, chunk by chunk. The buffer's number therefore determines the leaf's
//! position, and both can be prefetched together.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Mutex;

use bristlecone_pm::sync::wait::lock;
use bristlecone_pm::sync::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use bristlecone_pm::{Manifest, ManifestReader, Memory, Result};
use crossbeam_utils::CachePadded;

use super::layout::LEAF_BYTES;

use crate::index::parts::arena::{Arena, Zeroed};
use crate::index::parts::locked::{self, Guarded};
use crate::index::parts::optimistic_lock::{OptimisticLock, Version};
use crate::index::parts::prefetch;

/// Maximum number of items of a buffer.
pub const BATCH_MAX: usize = 8;

/// The first words of a buffer; its slots follow in the arena. It changes only under the lock. Readers
/// validate, so relaxed accesses suffice.
#[repr(C)]
#[derive(Debug)]
pub struct Buffer {
    pub lock: OptimisticLock,
    state: AtomicU64,
}

// SAFETY: atomics only, for which zero is a value.
unsafe impl Zeroed for Buffer {}

const _: () = assert!(size_of::<Buffer>() == 16);

/// The decoded second word of a buffer: bits 0-39 the leaf; 40-48 the pending slots that belong to an odd
/// epoch of the log, below a one that marks their number; 49-57 the slots that are removals, below a one that
/// marks the number of used slots; 58 whether the pending items are uncounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Offset of the leaf.
    pub leaf: u64,
    /// Number of slots that are not merged into the leaf.
    pub pending: usize,
    /// Number of slots in use.
    pub used: usize,
    /// Slots that remove their key.
    pub removed: u8,
    /// Epochs of the pending slots, modulo 2.
    pub epochs: u8,
    /// Whether no thread has searched the leaf yet for the keys of pending items.
    pub uncounted: bool,
}

/// Bits of slots, and a one above the last slot.
const MARKED_BITS: u32 = BATCH_MAX as u32 + 1;
const EPOCHS_SHIFT: u32 = 40;
const REMOVED_SHIFT: u32 = EPOCHS_SHIFT + MARKED_BITS;
const UNCOUNTED_SHIFT: u32 = REMOVED_SHIFT + MARKED_BITS;

#[inline(always)]
fn mark(bits: u8, slots: usize) -> u64 {
    let end = 1 << slots;
    u64::from(bits) & (end - 1) | end
}

/// Returns the bits, and the number of slots that they cover.
#[inline(always)]
fn unmark(word: u64) -> (u8, usize) {
    let marked = word & ((1 << MARKED_BITS) - 1);
    let slots = (marked | 1).ilog2();
    ((marked & !(1 << slots)) as u8, slots as usize)
}

impl State {
    #[inline(always)]
    fn unpack(word: u64) -> Self {
        let (epochs, pending) = unmark(word >> EPOCHS_SHIFT);
        let (removed, used) = unmark(word >> REMOVED_SHIFT);
        let leaf = (word & ((1 << EPOCHS_SHIFT) - 1)) << 8;
        Self { leaf, pending, used, removed, epochs, uncounted: word >> UNCOUNTED_SHIFT & 1 != 0 }
    }

    #[inline(always)]
    fn pack(self) -> u64 {
        self.leaf >> 8
            | mark(self.epochs, self.pending) << EPOCHS_SHIFT
            | mark(self.removed, self.used) << REMOVED_SHIFT
            | u64::from(self.uncounted) << UNCOUNTED_SHIFT
    }

    #[inline(always)]
    pub fn is_removed(&self, at: usize) -> bool {
        self.removed >> at & 1 != 0
    }

    #[inline(always)]
    pub fn set_removed(&mut self, at: usize, removed: bool) {
        self.removed = self.removed & !(1 << at) | u8::from(removed) << at;
    }

    #[inline(always)]
    pub fn set_epoch(&mut self, at: usize, epoch: u64) {
        self.epochs = self.epochs & !(1 << at) | ((epoch & 1) as u8) << at;
    }

    /// Returns the pending slots that do not belong to `epoch`.
    pub fn older_than(&self, epoch: u64) -> u8 {
        let current = if epoch & 1 == 0 { self.epochs } else { !self.epochs };
        current & ((1_u16 << self.pending) - 1) as u8
    }
}

/// The buffers of one tree.
#[derive(Debug)]
pub struct Buffers {
    arena: Arena<Buffer>,
    batch: usize,
    chunk_bits: u32,
    /// Start offsets of the chunks of leaves, in order of their numbers.
    chunks: Arena<AtomicU64>,
    chunks_max: usize,
    numbers: CachePadded<Mutex<HashMap<u64, u32>>>,
    live: CachePadded<AtomicUsize>,
    /// Number of buffers ever used.
    used: CachePadded<AtomicUsize>,
}

/// A buffer with its slots.
#[derive(Clone, Copy)]
pub struct BufferRef<'a> {
    pub id: u32,
    buffer: &'a Buffer,
    batch: usize,
}

impl Buffers {
    /// Creates buffers of `batch` items, for leaves in chunks of `chunk_bytes`, a power of two.
    pub fn new(batch: usize, chunk_bytes: u64, chunks_max: u64, memory: &Memory) -> Result<Self> {
        // There are no more numbers.
        let chunks_max = chunks_max.min((1 << 32) / (chunk_bytes / LEAF_BYTES));
        Ok(Self {
            arena: Arena::new(size_of::<Buffer>() + 16 * batch, memory)?,
            batch,
            chunk_bits: chunk_bytes.ilog2(),
            chunks: Arena::new(size_of::<AtomicU64>(), memory)?,
            chunks_max: chunks_max as usize,
            numbers: CachePadded::default(),
            live: CachePadded::default(),
            used: CachePadded::default(),
        })
    }

    /// Saves the buffers for the next open of the tree.
    pub fn save(&self, manifest: &mut Manifest) -> Option<()> {
        if !manifest.is_live() {
            manifest.push(self.live.load(Relaxed) as u64);
            manifest.push(self.used.load(Relaxed) as u64);
        }
        self.chunks.save(manifest)?;
        self.arena.save(manifest)
    }

    /// Takes over the buffers of a closed tree; `fresh` must have none yet.
    pub fn resume(fresh: Self, manifest: &mut ManifestReader<'_>) -> Option<Self> {
        if !manifest.is_live() {
            fresh.live.store(manifest.read()? as usize, Relaxed);
            fresh.used.store(manifest.read()? as usize, Relaxed);
        }
        let chunks = Arena::<AtomicU64>::resume(size_of::<AtomicU64>(), manifest)?;
        let arena = Arena::resume(size_of::<Buffer>() + 16 * fresh.batch, manifest)?;
        if manifest.is_live() {
            return Some(Self { arena, chunks, ..fresh });
        }
        let count = chunks.begun() as usize;
        if count > fresh.chunks_max || count << fresh.slot_bits() != arena.begun() as usize {
            return None;
        }
        for at in 0..count {
            let chunk = chunks.get(at as u32).load(Relaxed) >> fresh.chunk_bits;
            lock(&fresh.numbers).insert(chunk, (at << fresh.slot_bits()) as u32);
        }
        Some(Self { arena, chunks, ..fresh })
    }

    /// Assigns all pending items to an epoch of the log. No other thread may have access to the tree any more.
    pub fn set_epochs(&self, epoch: u64) {
        for buffer in (0..self.end()).map(|id| self.get(id)) {
            let mut state = buffer.state();
            (0..state.pending).for_each(|at| state.set_epoch(at, epoch));
            if state.pending > 0 {
                buffer.set_state(state);
            }
        }
    }

    /// Returns the capacity of a buffer in items.
    #[inline(always)]
    pub fn batch(&self) -> usize {
        self.batch
    }

    #[inline(always)]
    pub fn get(&self, id: u32) -> BufferRef<'_> {
        BufferRef { id, buffer: self.arena.get(id), batch: self.batch }
    }

    /// Returns the number of low bits of a leaf's offset, or of its buffer's number, that identify the leaf
    /// within its chunk.
    #[inline(always)]
    fn slot_bits(&self) -> u32 {
        self.chunk_bits - LEAF_BYTES.ilog2()
    }

    /// Returns the offset of the leaf that a buffer belongs to.
    #[inline(always)]
    pub fn leaf_of(&self, id: u32) -> u64 {
        let (chunk, slot) = (id >> self.slot_bits(), id & ((1 << self.slot_bits()) - 1));
        self.chunks.get_spaced::<{ size_of::<AtomicU64>() }>(chunk).load(Relaxed)
            + u64::from(slot) * LEAF_BYTES
    }

    /// Returns the number of the buffer for a leaf.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for it; never again after it succeeded once.
    pub fn number_of(&self, leaf: u64) -> Result<u32> {
        let (chunk, within) = (leaf >> self.chunk_bits, leaf & ((1 << self.chunk_bits) - 1));
        let mut numbers = lock(&self.numbers);
        let first = match numbers.entry(chunk) {
            Entry::Occupied(first) => *first.get(),
            Entry::Vacant(place) => {
                let first = self.arena.alloc_fresh(1 << self.slot_bits())?.start;
                let at = first >> self.slot_bits();
                // A number that was allocated without memory for the buffers is used now.
                self.chunks.alloc_fresh((at + 1).saturating_sub(self.chunks.begun()))?;
                self.chunks.get(at).store(chunk << self.chunk_bits, Relaxed);
                *place.insert(first)
            }
        };
        Ok(first + (within / LEAF_BYTES) as u32)
    }

    /// Returns the buffer for a leaf, unlocked, with a count above `count`.
    pub fn alloc(&self, leaf: u64, count: u64) -> Result<u32> {
        let id = self.number_of(leaf)?;
        self.live.fetch_add(1, Relaxed);
        let buffer = self.get(id);
        if buffer.state().leaf == 0 {
            self.used.fetch_add(1, Relaxed);
        }
        buffer.set_state(State { leaf, ..State::default() });
        buffer.lock.renew_above(count);
        Ok(id)
    }

    /// Marks the buffer as obsolete, before its leaf is freed.
    pub fn free(&self) {
        self.live.fetch_sub(1, Relaxed);
    }

    /// Returns an upper bound of the numbers of all buffers ever used.
    pub fn end(&self) -> u32 {
        self.arena.begun()
    }

    /// Returns the bytes of the buffers that were ever used. The memory of others is untouched.
    pub fn bytes(&self) -> u64 {
        (self.used.load(Relaxed) * (size_of::<Buffer>() + 16 * self.batch)) as u64
    }

    pub fn live(&self) -> usize {
        self.live.load(Relaxed)
    }
}

impl<'a> BufferRef<'a> {
    #[inline(always)]
    pub fn state(self) -> State {
        State::unpack(self.buffer.state.load(Relaxed))
    }

    #[inline(always)]
    pub fn set_state(self, state: State) {
        self.buffer.state.store(state.pack(), Relaxed);
    }

    #[inline(always)]
    fn slots(self) -> &'a [[AtomicU64; 2]] {
        // SAFETY: the arena keeps 16 bytes per slot behind each buffer, and any bytes are values of
        // atomics.
        unsafe {
            let start = std::ptr::from_ref(self.buffer).cast::<u8>().add(size_of::<Buffer>());
            std::slice::from_raw_parts(start.cast(), self.batch)
        }
    }

    /// Prefetches the lines of the buffer.
    #[inline(always)]
    pub fn prefetch(self) {
        prefetch(self.buffer);
        self.prefetch_end();
    }

    /// Prefetches the line with the end of the slots.
    #[inline(always)]
    pub fn prefetch_end(self) {
        prefetch(self.slots().as_ptr_range().end.wrapping_byte_sub(8));
    }

    /// Returns key and value words of a slot.
    #[inline(always)]
    pub fn slot(self, at: usize) -> (u64, u64) {
        let [key, value] = &self.slots()[at];
        (key.load(Relaxed), value.load(Relaxed))
    }

    /// Returns the key words, with their positions, of the slots used according to `state`.
    #[inline(always)]
    pub fn keys(self, state: State) -> impl Iterator<Item = (usize, u64)> {
        self.slots().iter().take(state.used).map(|[key, _]| key.load(Relaxed)).enumerate()
    }

    #[inline(always)]
    pub fn set_slot(self, at: usize, key: u64, value: u64) {
        let [key_cell, value_cell] = &self.slots()[at];
        key_cell.store(key, Relaxed);
        value_cell.store(value, Relaxed);
    }

    /// Locks the buffer if it is unchanged since `version`.
    #[inline(always)]
    pub fn lock_at(self, version: Version) -> Option<Locked<'a>> {
        Locked::at(self, version)
    }
}

/// A buffer and its leaf, locked by their only writer.
pub type Locked<'a> = locked::Locked<BufferRef<'a>>;

impl Guarded for BufferRef<'_> {
    #[inline(always)]
    fn lock(&self) -> &OptimisticLock {
        &self.buffer.lock
    }

    fn clear(&self) {
        self.set_state(State::default());
    }
}

impl std::ops::Deref for BufferRef<'_> {
    type Target = Buffer;

    fn deref(&self) -> &Buffer {
        self.buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_survives_its_word() {
        let leaf = (1 << 48) - 256;
        let state = State { leaf, pending: 8, used: 8, removed: 0xa5, epochs: 0x5a, uncounted: true };
        assert_eq!(State::unpack(state.pack()), state);
        let fewer = State { leaf, pending: 1, used: 3, removed: 0b101, epochs: 1, uncounted: false };
        assert_eq!(State::unpack(fewer.pack()), fewer);
        // The bits of other slots are ignored.
        assert_eq!(State::unpack(State { removed: 0xa5, epochs: 0x5b, ..fewer }.pack()), fewer);
        assert_eq!(State::unpack(0), State::default());
    }

    #[test]
    fn older_epochs_are_told_apart() {
        let mut state = State { pending: 3, used: 4, ..State::default() };
        state.set_epoch(1, 7);
        assert_eq!((state.older_than(7), state.older_than(8)), (0b101, 0b010));
        state.set_epoch(0, 7);
        state.set_epoch(2, 7);
        assert_eq!(state.older_than(7), 0);
        state.pending = 8;
        state.epochs = 0xff;
        assert_eq!((state.older_than(2), state.older_than(3)), (0xff, 0));
    }
}
