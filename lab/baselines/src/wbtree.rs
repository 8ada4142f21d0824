//! wB+-Tree with slot arrays and bitmaps (Chen & Jin, *Persistent B+-Trees in Non-Volatile Main
//! Memory*, VLDB 2015, section 4): unordered entries, a slot array that orders them, and a bitmap
//! whose valid bit says that the slot array is valid.
//!
//! ```text
//! word 0  bitmap of slots 0-62, valid bit on top       3?  slot array, a byte each: count, slots
//!      1  level, leftmost child                            entries, on 16 bytes
//!      2  bitmap of the slots from 63 on, only in nodes of 32 lines
//! ```
//!
//! A leaf changes in three steps:
//! 1. The valid bit is cleared; flush, fence. *The bitmap counts, and is the old one.*
//! 2. The entry and the slot array; flushes, fence. *As before.*
//! 3. The bitmap with the valid bit; flush, fence. *The new one.*
//!
//! Beyond 63 slots the bitmap does not fit the commit word; the paper uses a log then. Here the
//! second word, of which one bit changes, becomes durable between 2 and 3. Splits use the log, as
//! published. An invalid slot array after a crash is rebuilt when the tree is opened.

use bristlecone::{Medium, Result};
use bristlecone_pm::{Flushed, Persist};

use crate::coupled::{Coupled, Layout};
use crate::log::Change;
use crate::store::{LINE_WORDS, Store};

const VALID: u64 = 1 << 63;
/// Slots of the first bitmap word.
const FIRST: usize = 63;
/// Slots of the largest node.
const SLOTS_MAX: usize = 127;
const LEVEL_SHIFT: u32 = 56;

/// The layout of a node.
#[derive(Clone, Copy)]
pub struct WbTree {
    slots: usize,
    /// Words: start and length of the slot array, start of the entries.
    order_at: usize,
    order_words: usize,
    entries_at: usize,
}

/// Slots in key order.
struct Order {
    slots: Vec<u8>,
}

impl Order {
    fn bitmap(&self) -> u128 {
        self.slots.iter().fold(0, |bits, slot| bits | 1 << slot)
    }

    /// Returns a word of the slot array: the count, then the slots.
    fn word(&self, at: usize) -> u64 {
        let byte = |place: usize| match place {
            0 => self.slots.len() as u8,
            place => self.slots.get(place - 1).copied().unwrap_or(0),
        };
        u64::from_le_bytes(std::array::from_fn(|offset| byte(at * 8 + offset)))
    }
}

impl WbTree {
    fn entry(self, slot: usize) -> usize {
        self.entries_at + slot * 2
    }

    fn is_long(self) -> bool {
        self.slots > FIRST
    }

    fn bitmap<M: Medium>(self, store: &Store<M>, node: u64) -> u128 {
        let mut bits = u128::from(store.load(node, 0) & !VALID);
        if self.is_long() {
            bits |= u128::from(store.load(node, 2)) << FIRST;
        }
        bits & ((1 << self.slots) - 1)
    }

    #[inline(always)]
    fn order_byte<M: Medium>(self, store: &Store<M>, node: u64, at: usize) -> usize {
        (store.load(node, self.order_at + at / 8) >> (at % 8 * 8) & 0xff) as usize
    }

    /// Returns the slot of an entry; a valid slot even if damaged.
    #[inline(always)]
    fn slot<M: Medium>(self, store: &Store<M>, node: u64, at: usize) -> usize {
        self.order_byte(store, node, at + 1).min(self.slots - 1)
    }

    fn order<M: Medium>(self, store: &Store<M>, node: u64) -> Order {
        let slots = (0..self.count(store, node)).map(|at| self.slot(store, node, at) as u8).collect();
        Order { slots }
    }

    /// Stores the words of a slot array that differ, and flushes their lines.
    fn store_order<M: Medium>(self, store: &Store<M>, node: u64, order: &Order) -> Flushed {
        let medium = store.medium();
        let mut flushed = Flushed::none();
        // The last word that was stored and not flushed yet.
        let mut last: Option<usize> = None;
        for at in self.order_at..self.order_at + self.order_words {
            let (cell, word) = (store.word(node, at), order.word(at - self.order_at));
            if cell.load(medium) == word {
                continue;
            }
            cell.store(medium, word);
            if let Some(last) = last.filter(|last| last / LINE_WORDS != at / LINE_WORDS) {
                flushed = flushed.and(medium.flush(store.word(node, last), "wbtree leaf.2 order"));
            }
            last = Some(at);
        }
        match last {
            Some(last) => flushed.and(medium.flush(store.word(node, last), "wbtree leaf.2 order")),
            None => flushed,
        }
    }

    /// Stores another order of a locked leaf. `staged`: a stored entry that must be flushed.
    fn commit<M: Medium>(self, store: &Store<M>, leaf: u64, order: &Order, staged: Option<usize>) {
        let medium = store.medium();
        let first = store.word(leaf, 0);
        first.store(medium, first.load(medium) & !VALID);
        medium.persist(first, "wbtree leaf.1");
        let mut flushed = self.store_order(store, leaf, order);
        if let Some(slot) = staged {
            flushed = flushed.and(medium.flush(store.words(leaf, self.entry(slot), 2), "wbtree leaf.2"));
        }
        let mut durable = medium.fence(flushed, "wbtree leaf.2");
        let bitmap = order.bitmap();
        if self.is_long() && store.load(leaf, 2) != (bitmap >> FIRST) as u64 {
            store.word(leaf, 2).publish(medium, (bitmap >> FIRST) as u64, &durable, "wbtree leaf.2 long");
            durable = medium.persist_proof(store.word(leaf, 2), "wbtree leaf.2 long");
        }
        first.publish(medium, bitmap as u64 | VALID, &durable, "wbtree leaf.3");
        medium.persist(first, "wbtree leaf.3");
    }
}

impl Layout for WbTree {
    fn new(node_lines: u64) -> Self {
        let words = node_lines as usize * LINE_WORDS;
        let header = if node_lines == 32 { 3 } else { 2 };
        let fits = |slots: &usize| {
            let entries_at = (header + (slots + 1).div_ceil(8)).next_multiple_of(2);
            entries_at + slots * 2 <= words && (*slots <= FIRST || node_lines == 32)
        };
        let slots = (1..=SLOTS_MAX).rev().find(fits).expect("nodes have two lines or more");
        let order_words = (slots + 1).div_ceil(8);
        let entries_at = (header + order_words).next_multiple_of(2);
        Self { slots, order_at: header, order_words, entries_at }
    }

    fn capacity(self) -> usize {
        self.slots
    }

    #[inline(always)]
    fn level<M: Medium>(self, store: &Store<M>, node: u64) -> u64 {
        store.load(node, 1) >> LEVEL_SHIFT
    }

    #[inline(always)]
    fn count<M: Medium>(self, store: &Store<M>, node: u64) -> usize {
        self.order_byte(store, node, 0).min(self.slots)
    }

    #[inline(always)]
    fn key<M: Medium>(self, store: &Store<M>, node: u64, at: usize) -> u64 {
        store.load(node, self.entry(self.slot(store, node, at)))
    }

    #[inline(always)]
    fn value<M: Medium>(self, store: &Store<M>, node: u64, at: usize) -> u64 {
        store.load(node, self.entry(self.slot(store, node, at)) + 1)
    }

    #[inline(always)]
    fn leftmost<M: Medium>(self, store: &Store<M>, node: u64) -> u64 {
        store.load(node, 1) & ((1 << LEVEL_SHIFT) - 1)
    }

    fn fill<M: Medium>(
        self,
        store: &Store<M>,
        node: u64,
        level: u64,
        leftmost: u64,
        entries: &[(u64, u64)],
    ) -> Flushed {
        let medium = store.medium();
        let set = |at: usize, word: u64| store.word(node, at).store(medium, word);
        let order = Order { slots: (0..entries.len() as u8).collect() };
        set(0, order.bitmap() as u64 & !VALID | VALID);
        set(1, level << LEVEL_SHIFT | leftmost);
        if self.is_long() {
            set(2, (order.bitmap() >> FIRST) as u64);
        }
        (0..self.order_words).for_each(|at| set(self.order_at + at, order.word(at)));
        for (slot, (key, word)) in entries.iter().enumerate() {
            set(self.entry(slot), *key);
            set(self.entry(slot) + 1, *word);
        }
        medium.flush(store.words(node, 0, self.entry(entries.len())), "wbtree split.1")
    }

    fn rewrite<M: Medium>(self, store: &Store<M>, node: u64, entries: &[(u64, u64)], change: &mut Change) {
        // Remaining entries keep their slots.
        let old = self.order(store, node);
        let slot_of = |entry: &(u64, u64)| {
            let there = |slot: &&u8| store.load(node, self.entry(usize::from(**slot))) == entry.0;
            old.slots.iter().find(there).copied()
        };
        let mut slots: Vec<Option<u8>> = entries.iter().map(slot_of).collect();
        let mut taken = slots.iter().flatten().fold(0_u128, |bits, slot| bits | 1 << slot);
        for (slot, (key, word)) in slots.iter_mut().zip(entries) {
            let slot = *slot.get_or_insert_with(|| {
                let free = taken.trailing_ones() as u8;
                taken |= 1 << free;
                free
            });
            change.set(store, node, self.entry(slot.into()), *key);
            change.set(store, node, self.entry(slot.into()) + 1, *word);
        }
        let order = Order { slots: slots.into_iter().flatten().collect() };
        change.set(store, node, 0, order.bitmap() as u64 & !VALID | VALID);
        if self.is_long() {
            change.set(store, node, 2, (order.bitmap() >> FIRST) as u64);
        }
        (0..self.order_words).for_each(|at| change.set(store, node, self.order_at + at, order.word(at)));
    }

    fn repair<M: Medium>(self, store: &Store<M>, node: u64) {
        let medium = store.medium();
        let first = store.word(node, 0);
        if first.load(medium) & VALID != 0 {
            return;
        }
        let bitmap = self.bitmap(store, node);
        let mut slots: Vec<u8> = (0..self.slots as u8).filter(|slot| bitmap >> slot & 1 != 0).collect();
        slots.sort_unstable_by_key(|slot| store.load(node, self.entry(usize::from(*slot))));
        let durable = medium.fence(self.store_order(store, node, &Order { slots }), "wbtree repair.1");
        // Without a flush: after another crash the same is repeated.
        first.publish(medium, first.load(medium) | VALID, &durable, "wbtree repair.2");
    }

    fn insert<M: Medium>(
        self,
        tree: &Coupled<Self, M>,
        leaf: u64,
        at: usize,
        (key, value): (u64, u64),
    ) -> Result<()> {
        let (store, medium) = (&tree.store, tree.store.medium());
        let slot = self.bitmap(store, leaf).trailing_ones() as usize;
        store.word(leaf, self.entry(slot)).store(medium, key);
        store.word(leaf, self.entry(slot) + 1).store(medium, value);
        let mut order = self.order(store, leaf);
        order.slots.insert(at, slot as u8);
        self.commit(store, leaf, &order, Some(slot));
        Ok(())
    }

    fn replace<M: Medium>(self, tree: &Coupled<Self, M>, leaf: u64, at: usize, value: u64) -> Result<()> {
        let (store, medium) = (&tree.store, tree.store.medium());
        let cell = store.word(leaf, self.entry(self.slot(store, leaf, at)) + 1);
        cell.store(medium, value);
        medium.persist(cell, "wbtree update");
        Ok(())
    }

    fn erase<M: Medium>(self, tree: &Coupled<Self, M>, leaf: u64, at: usize) -> Result<()> {
        let mut order = self.order(&tree.store, leaf);
        order.slots.remove(at);
        self.commit(&tree.store, leaf, &order, None);
        Ok(())
    }
}
