//! LB+-Tree (Liu, Chen, Wang, *LB+-Trees: Optimizing Persistent Index Performance on 3DXPoint Memory*, VLDB 2020):
//! leaves of 256 bytes whose first line has the header and as many items as fit beside it, so that most inserts flush
//! one line. Versions and locks in DRAM replace hardware transactions and the lock in the header.
//!
//! ```text
//! line 0   word 0  bits 0-13 bitmap, bit 14 which sibling pointer counts | fingerprints of slots 0-5
//!               1  fingerprints of slots 6-13
//!               2  items, a key and a value each
//! last line     the last two words: sibling pointers, of which one counts
//! ```
//!
//! Larger leaves are several such blocks with a header each ("distributed headers"); the first one's pointers
//! count. Nodes of two lines, for tests, have items in two lines instead of four.
//!
//! **The commit word** is the first word of a header.
//!
//! # Insert, where the header's line has a free slot
//! 1. The item, its fingerprint, the first word of the header, in this order in one line; flush, fence.
//!
//! # Insert, elsewhere (entry moving)
//! 1. The item is stored in the first other line that has a free slot; items of the header's line fill that line up;
//!    flush, fence. *Their bits are clear.*
//! 2. The header: moved items count at their new places; flush, fence. *The next inserts find space in the header's
//!    line.*
//!
//! # Update, delete
//! 1. The value, or the header without the bit; flush, fence.
//!
//! # Split (no log)
//! 1. The upper half, with the new item if it belongs there, is written to a new leaf from its last slots on, and the
//!    sibling pointer that does not count gets its offset; flushes, one fence. *Nothing names the leaf.*
//! 2. The first block's header drops the moved items, and the other pointer counts; flush, fence. *Both happen, or
//!    neither.*
//! 3. In larger leaves the other headers drop the moved items; flushes, one fence. *Recovery drops items above the
//!    right sibling's smallest key (repair 1).*

use std::sync::Arc;

use bristlecone::lab::{Inline, KeyCodec};
use bristlecone::parts::fingerprint::probe;
use bristlecone::parts::slot::bits;
use bristlecone::{Medium, Result};
use bristlecone_pm::{Alone, Flushed, Persist, PoolFile, Step, TreeId};

use crate::hybrid::Leaves;
use crate::store::{LINE_WORDS, Store};

/// Lines of a block, except in leaves of two lines.
const BLOCK_LINES: usize = 4;
const HEADER: usize = 2;
/// Selects the sibling pointer that counts.
const OTHER: u64 = 1 << 14;
/// Bits of the first word before the fingerprints.
const TAGS_AT: u32 = 16;
/// Fingerprint bytes of the first word.
const TAGS: usize = 6;
/// Slots in the header's line.
const BESIDE: usize = (LINE_WORDS - HEADER) / 2;

/// The layout of a leaf.
pub struct LbTree {
    blocks: usize,
    block_words: usize,
    /// Slots of a block.
    slots: usize,
}

/// A copy of a block's header.
#[derive(Clone, Copy)]
struct Header([u64; HEADER]);

impl Header {
    fn bitmap(self, slots: usize) -> u64 {
        self.0[0] & ((1 << slots) - 1)
    }

    fn add(&mut self, slot: usize, tag: u8) {
        let (word, shift) = match slot.checked_sub(TAGS) {
            None => (0, TAGS_AT as usize + slot * 8),
            Some(slot) => (1, slot * 8),
        };
        self.0[word] = self.0[word] & !(0xff << shift) | u64::from(tag) << shift;
        self.0[0] |= 1 << slot;
    }

    fn drop(&mut self, slots: u64) {
        self.0[0] &= !slots;
    }

    /// Returns the slots with a fingerprint, taken or not.
    #[inline(always)]
    fn probe(self, tag: u8) -> u64 {
        let [first, second] = self.0;
        probe([first >> TAGS_AT | second << 48, second >> TAGS_AT], tag)
    }
}

impl LbTree {
    /// Returns the word of a slot's item in its block.
    fn place(slot: usize) -> usize {
        HEADER + slot * 2
    }

    /// Returns the offset of a block.
    #[inline(always)]
    fn block(&self, leaf: u64, block: usize) -> u64 {
        leaf + (block * self.block_words * 8) as u64
    }

    #[inline(always)]
    fn header<M: Medium>(store: &Store<M>, block: u64) -> Header {
        Header([store.load(block, 0), store.load(block, 1)])
    }

    /// Returns the taken slots of a block.
    fn taken<M: Medium>(&self, store: &Store<M>, block: u64) -> u64 {
        Self::header(store, block).bitmap(self.slots)
    }

    fn blocks(&self, leaf: u64) -> impl DoubleEndedIterator<Item = u64> {
        (0..self.blocks).map(move |block| self.block(leaf, block))
    }

    /// Returns the block, and the slot there, of a slot of the leaf.
    fn split_slot(&self, leaf: u64, slot: usize) -> (u64, usize) {
        (self.block(leaf, slot / self.slots), slot % self.slots)
    }

    /// Returns the word of the sibling pointer that counts, or of the other one.
    fn pointer<M: Medium>(&self, store: &Store<M>, leaf: u64, counts: bool) -> usize {
        let second = store.load(leaf, 0) & OTHER != 0;
        self.block_words - 2 + usize::from(second == counts)
    }

    /// Stores an item that does not count yet.
    fn put<M: Medium>(store: &Store<M>, block: u64, slot: usize, (key, value): (u64, u64)) {
        store.word(block, Self::place(slot)).store(store.medium(), key);
        store.word(block, Self::place(slot) + 1).store(store.medium(), value);
    }

    fn item<M: Medium>(store: &Store<M>, block: u64, slot: usize) -> (u64, u64) {
        (store.load(block, Self::place(slot)), store.load(block, Self::place(slot) + 1))
    }

    /// Stores a header, its first word last, durably.
    fn commit<M: Medium>(store: &Store<M>, block: u64, header: Header, step: Step) {
        let medium = store.medium();
        // Only fingerprints of free slots change: slots in the old bitmap keep theirs.
        store.word(block, 1).store(medium, header.0[1]);
        let ordered = medium.ordered_within_line();
        store.word(block, 0).publish(medium, header.0[0], &ordered, step);
        medium.persist(store.word(block, 0), step);
    }

    /// Drops the slots of a block whose keys are at least `from`, if there are any.
    fn cut<M: Medium>(&self, store: &Store<M>, block: u64, from: u64, step: Step) -> Option<Flushed> {
        let mut header = Self::header(store, block);
        let above = |slot: &usize| store.load(block, Self::place(*slot)) >= from;
        let slots = bits(header.bitmap(self.slots)).filter(above).fold(0, |all, slot| all | 1 << slot);
        header.drop(slots);
        (slots != 0).then(|| {
            store.word(block, 0).publish(store.medium(), header.0[0], &Alone, step);
            store.medium().flush(store.word(block, 0), step)
        })
    }
}

impl<M: Medium> Leaves<M> for LbTree {
    const UPDATES_MOVE: bool = false;

    fn open(_: &Arc<PoolFile<M>>, _: TreeId, node_lines: u64, _fresh: bool) -> Result<(Self, Flushed)> {
        let lines = node_lines as usize;
        let block_words = lines.min(BLOCK_LINES) * LINE_WORDS;
        let blocks = lines.div_ceil(BLOCK_LINES);
        // Excluding the header and the pointers.
        let slots = (block_words - HEADER) / 2 - 1;
        Ok((Self { blocks, block_words, slots }, Flushed::none()))
    }

    fn capacity(&self) -> usize {
        self.blocks * self.slots
    }

    fn count(&self, store: &Store<M>, leaf: u64) -> usize {
        self.blocks(leaf).map(|block| self.taken(store, block).count_ones() as usize).sum()
    }

    #[inline(always)]
    fn find(&self, store: &Store<M>, leaf: u64, key: u64) -> Option<(usize, u64)> {
        let tag = Inline::fingerprint(key);
        store.pool.prefetch_lines(leaf, store.node_bytes as usize);
        for (at, block) in self.blocks(leaf).enumerate() {
            let header = Self::header(store, block);
            for slot in bits(header.probe(tag) & header.bitmap(self.slots)) {
                let (held, value) = Self::item(store, block, slot);
                if held == key {
                    return Some((at * self.slots + slot, value));
                }
            }
        }
        None
    }

    fn items(&self, store: &Store<M>, leaf: u64) -> Vec<(u64, u64)> {
        let of = |block| bits(self.taken(store, block)).map(move |slot| Self::item(store, block, slot));
        self.blocks(leaf).flat_map(of).collect()
    }

    fn next(&self, store: &Store<M>, leaf: u64) -> u64 {
        store.load(leaf, self.pointer(store, leaf, true))
    }

    fn fill(&self, store: &Store<M>, leaf: u64, items: &[(u64, u64)], next: u64) -> Flushed {
        let medium = store.medium();
        let mut rest = items;
        let mut flushed = Flushed::none();
        for (at, block) in self.blocks(leaf).enumerate() {
            let (own, others) = rest.split_at(rest.len().div_ceil(self.blocks - at));
            rest = others;
            let mut header = Header([0; HEADER]);
            for (slot, item) in (0..self.slots).rev().zip(own) {
                Self::put(store, block, slot, *item);
                header.add(slot, Inline::fingerprint(item.0));
            }
            let mut from = Self::place(self.slots - own.len());
            if at == 0 {
                // The words are zero: the first pointer counts.
                store.word(block, self.block_words - 2).store(medium, next);
                from = from.min(self.block_words - 2);
            }
            [0, 1].iter().for_each(|&at| store.word(block, at).store(medium, header.0[at]));
            let header_line = medium.flush(store.word(block, 0), "lbtree split.1");
            let items = store.words(block, from.max(LINE_WORDS), self.block_words - from.max(LINE_WORDS));
            flushed = flushed.and(header_line).and(medium.flush(items, "lbtree split.1 items"));
        }
        flushed
    }

    fn insert(&self, store: &Store<M>, leaf: u64, item: (u64, u64)) {
        let free = |block| !self.taken(store, block) & ((1 << self.slots) - 1);
        let beside = |block| free(block) & ((1 << BESIDE) - 1);
        let tag = Inline::fingerprint(item.0);
        if let Some(block) = self.blocks(leaf).find(|block| beside(*block) != 0) {
            let (mut header, slot) = (Self::header(store, block), beside(block).trailing_zeros() as usize);
            Self::put(store, block, slot, item);
            header.add(slot, tag);
            Self::commit(store, block, header, "lbtree insert.1");
            return;
        }
        let block = self.blocks(leaf).find(|block| free(*block) != 0).expect("a leaf with room");
        let mut header = Self::header(store, block);
        let line = |slot: usize| Self::place(slot) / LINE_WORDS;
        let first = free(block).trailing_zeros() as usize;
        Self::put(store, block, first, item);
        header.add(first, tag);
        let others = bits(free(block)).skip(1).filter(|slot| line(*slot) == line(first));
        for (to, from) in others.zip(0..BESIDE) {
            let moved = Self::item(store, block, from);
            Self::put(store, block, to, moved);
            header.add(to, Inline::fingerprint(moved.0));
            header.drop(1 << from);
        }
        store.medium().persist(store.word(block, Self::place(first)), "lbtree move.1");
        Self::commit(store, block, header, "lbtree move.2");
    }

    fn update(&self, store: &Store<M>, leaf: u64, slot: usize, value: u64) {
        let (block, slot) = self.split_slot(leaf, slot);
        let cell = store.word(block, Self::place(slot) + 1);
        cell.store(store.medium(), value);
        store.medium().persist(cell, "lbtree update");
    }

    fn remove(&self, store: &Store<M>, leaf: u64, slot: usize) {
        let (block, slot) = self.split_slot(leaf, slot);
        let first = store.load(block, 0) & !(1 << slot);
        store.word(block, 0).publish(store.medium(), first, &Alone, "lbtree delete");
        store.medium().persist(store.word(block, 0), "lbtree delete");
    }

    fn split(
        &self,
        store: &Store<M>,
        leaf: u64,
        right: u64,
        moved: &[(u64, u64)],
        new: Option<(u64, u64)>,
    ) -> bool {
        let medium = store.medium();
        let held: Vec<_> = moved.iter().copied().chain(new).collect();
        let filled = self.fill(store, right, &held, Leaves::next(self, store, leaf));
        let other = store.word(leaf, self.pointer(store, leaf, false));
        other.store(medium, right);
        let durable = medium.fence(filled.and(medium.flush(other, "lbtree split.1 left")), "lbtree split.1");
        let from = moved[0].0;
        let mut header = Self::header(store, leaf);
        let above = |slot: &usize| store.load(leaf, Self::place(*slot)) >= from;
        header.drop(bits(header.bitmap(self.slots)).filter(above).fold(0, |all, slot| all | 1 << slot));
        store.word(leaf, 0).publish(medium, header.0[0] ^ OTHER, &durable, "lbtree split.2");
        medium.persist(store.word(leaf, 0), "lbtree split.2");
        Leaves::repair(self, store, leaf, from);
        new.is_some()
    }

    fn repair(&self, store: &Store<M>, leaf: u64, from: u64) {
        let cuts: Vec<_> =
            self.blocks(leaf).filter_map(|block| self.cut(store, block, from, "lbtree split.3")).collect();
        if let Some(flushed) = cuts.into_iter().reduce(Flushed::and) {
            let _durable = store.medium().fence(flushed, "lbtree split.3");
        }
    }

    fn link(&self, store: &Store<M>, leaf: u64, next: u64) {
        let cell = store.word(leaf, self.pointer(store, leaf, true));
        cell.publish(store.medium(), next, &Alone, "lbtree unlink.1");
        store.medium().persist(cell, "lbtree unlink.1");
    }
}
