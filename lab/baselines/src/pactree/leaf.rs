//! A leaf of the data layer.
//!
//! ```text
//! line 0   bitmap | right sibling | the key it begins with | the key it ends before; zero: none     then   fingerprints
//! then     items, on 16 bytes
//! ```
//!
//! Fingerprints have a line of their own in leaves of four lines or more.

use bristlecone::Medium;
use bristlecone::lab::{Inline, KeyCodec};
use bristlecone::parts::fingerprint::{GROUP, probe};
use bristlecone::parts::slot::bits;
use bristlecone_pm::{Alone, Flushed, Persist};

use crate::store::{LINE_WORDS, Store};

const NEXT: usize = 1;
const LOW: usize = 2;
const HIGH: usize = 3;
const HEADER: usize = 4;
/// Number of slots whose fingerprints fill a line.
const SLOTS_MAX: usize = 63;

/// The sizes of a leaf.
#[derive(Clone, Copy)]
pub struct Layout {
    pub slots: usize,
    tags_at: usize,
    items_at: usize,
}

impl Layout {
    pub fn new(node_lines: u64) -> Self {
        let words = node_lines as usize * LINE_WORDS;
        let tags_at = if node_lines < 4 { HEADER } else { LINE_WORDS };
        let items_at = |slots: usize| (tags_at + slots.div_ceil(8)).next_multiple_of(2);
        let fits = |slots: &usize| items_at(*slots) + slots * 2 <= words;
        let slots = (1..=SLOTS_MAX).rev().find(fits).expect("leaves have two lines or more");
        Self { slots, tags_at, items_at: items_at(slots) }
    }

    fn place(self, slot: usize) -> usize {
        self.items_at + slot * 2
    }

    fn all(self) -> u64 {
        (1 << self.slots) - 1
    }

    #[inline(always)]
    fn bitmap<M: Medium>(self, store: &Store<M>, leaf: u64) -> u64 {
        store.load(leaf, 0) & self.all()
    }

    /// Returns the right sibling; zero if there is none.
    pub fn next<M: Medium>(self, store: &Store<M>, leaf: u64) -> u64 {
        store.load(leaf, NEXT)
    }

    /// Returns the lower bound of a leaf. It never changes.
    pub fn low<M: Medium>(self, store: &Store<M>, leaf: u64) -> u64 {
        store.load(leaf, LOW)
    }

    /// Returns the exclusive upper bound of a leaf. `None`: it is the last one.
    #[inline(always)]
    pub fn high<M: Medium>(self, store: &Store<M>, leaf: u64) -> Option<u64> {
        Some(store.load(leaf, HIGH)).filter(|high| *high != 0)
    }

    pub fn has_room<M: Medium>(self, store: &Store<M>, leaf: u64) -> bool {
        self.bitmap(store, leaf) != self.all()
    }

    fn item<M: Medium>(self, store: &Store<M>, leaf: u64, slot: usize) -> (u64, u64) {
        (store.load(leaf, self.place(slot)), store.load(leaf, self.place(slot) + 1))
    }

    /// Returns the items, unordered.
    pub fn items<M: Medium>(self, store: &Store<M>, leaf: u64) -> Vec<(u64, u64)> {
        bits(self.bitmap(store, leaf)).map(|slot| self.item(store, leaf, slot)).collect()
    }

    /// Returns the slot of a key, and its value.
    #[inline(always)]
    pub fn find<M: Medium>(self, store: &Store<M>, leaf: u64, key: u64) -> Option<(usize, u64)> {
        let tag = Inline::fingerprint(key);
        let taken = self.bitmap(store, leaf);
        for group in 0..self.slots.div_ceil(8 * GROUP) {
            let tags = [0, 1].map(|at| store.load(leaf, self.tags_at + group * GROUP + at));
            let hits = probe(tags, tag) << (group * 8 * GROUP);
            for slot in bits(hits & taken) {
                let (held, value) = self.item(store, leaf, slot);
                if held == key {
                    return Some((slot, value));
                }
            }
        }
        None
    }

    /// Stores an item in a free slot, and its fingerprint.
    fn put<M: Medium>(self, store: &Store<M>, leaf: u64, slot: usize, (key, value): (u64, u64)) {
        let medium = store.medium();
        store.word(leaf, self.place(slot)).store(medium, key);
        store.word(leaf, self.place(slot) + 1).store(medium, value);
        let (tags, shift) = (store.word(leaf, self.tags_at + slot / 8), slot % 8 * 8);
        let tag = u64::from(Inline::fingerprint(key));
        tags.store(medium, tags.load(medium) & !(0xff << shift) | tag << shift);
    }

    /// Writes a leaf that no other one references yet.
    pub fn fill<M: Medium>(
        self,
        store: &Store<M>,
        leaf: u64,
        items: &[(u64, u64)],
        [next, low, high]: [u64; 3],
    ) -> Flushed {
        let header = [(1 << items.len()) - 1, next, low, high];
        header.iter().enumerate().for_each(|(at, word)| store.word(leaf, at).store(store.medium(), *word));
        items.iter().enumerate().for_each(|(slot, item)| self.put(store, leaf, slot, *item));
        store.medium().flush(store.words(leaf, 0, self.place(items.len())), "pactree split.1")
    }

    /// Inserts an item, for which there must be space.
    pub fn insert<M: Medium>(self, store: &Store<M>, leaf: u64, item: (u64, u64)) {
        let (medium, bitmap) = (store.medium(), self.bitmap(store, leaf));
        let slot = bitmap.trailing_ones() as usize;
        self.put(store, leaf, slot, item);
        let flushed = medium.flush(store.word(leaf, self.place(slot)), "pactree insert.1");
        let tags = medium.flush(store.word(leaf, self.tags_at + slot / 8), "pactree insert.1 fingerprint");
        let durable = medium.fence(flushed.and(tags), "pactree insert.1");
        store.word(leaf, 0).publish(medium, bitmap | 1 << slot, &durable, "pactree insert.2");
        medium.persist(store.word(leaf, 0), "pactree insert.2");
    }

    pub fn update<M: Medium>(self, store: &Store<M>, leaf: u64, slot: usize, value: u64) {
        let cell = store.word(leaf, self.place(slot) + 1);
        cell.store(store.medium(), value);
        store.medium().persist(cell, "pactree update");
    }

    pub fn remove<M: Medium>(self, store: &Store<M>, leaf: u64, slot: usize) {
        let bitmap = self.bitmap(store, leaf) & !(1 << slot);
        store.word(leaf, 0).publish(store.medium(), bitmap, &Alone, "pactree delete");
        store.medium().persist(store.word(leaf, 0), "pactree delete");
    }

    /// Returns the slots without those whose keys are at least `from`.
    fn below<M: Medium>(self, store: &Store<M>, leaf: u64, from: u64) -> u64 {
        let bitmap = self.bitmap(store, leaf);
        let below = |slot: &usize| store.load(leaf, self.place(*slot)) < from;
        bits(bitmap).filter(below).fold(0, |all, slot| all | 1 << slot)
    }

    /// Moves (split 1 and 2) items of a full leaf, from a key on, to a new one.
    pub fn split<M: Medium>(self, store: &Store<M>, leaf: u64, right: u64, moved: &[(u64, u64)], low: u64) {
        let medium = store.medium();
        let rest = [self.next(store, leaf), low, self.high(store, leaf).unwrap_or(0)];
        let durable = medium.fence(self.fill(store, right, moved, rest), "pactree split.1");
        store.word(leaf, NEXT).publish(medium, right, &durable, "pactree split.2");
        let ordered = medium.ordered_within_line();
        // Recovery derives it from the right sibling.
        store.word(leaf, HIGH).store_derived(medium, low);
        store.word(leaf, 0).publish(medium, self.below(store, leaf, low), &ordered, "pactree split.2 bitmap");
        medium.persist(store.word(leaf, 0), "pactree split.2");
    }

    /// Removes remains of an interrupted split from a leaf, durably: it ends where its right
    /// sibling begins.
    pub fn repair<M: Medium>(self, store: &Store<M>, leaf: u64) {
        let next = self.next(store, leaf);
        if next == 0 {
            return;
        }
        let (medium, high) = (store.medium(), self.low(store, next));
        let bitmap = self.below(store, leaf, high);
        if self.high(store, leaf) != Some(high) || bitmap != self.bitmap(store, leaf) {
            store.word(leaf, HIGH).store_derived(medium, high);
            store.word(leaf, 0).publish(medium, bitmap, &Alone, "pactree repair.1");
            medium.persist(store.word(leaf, 0), "pactree repair.1");
        }
    }
}
