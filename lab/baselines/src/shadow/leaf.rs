//! A leaf with two copies of its metadata.
//!
//! ```text
//! line 0   twice: stamp, right sibling, bitmap (2 words)      then   fingerprints      then   items, on 16 bytes
//! ```
//!
//! A slot outside the bitmap that counts is free, and so is its fingerprint's byte. One slot stays free, so that a
//! split can leave any first item in its leaf.

use bristlecone::Medium;
use bristlecone::lab::{Inline, KeyCodec};
use bristlecone::parts::fingerprint::{GROUP, probe};
use bristlecone_pm::{Alone, Flushed, Persist, Step, Witness};

use crate::store::{LINE_WORDS, Store};

/// Words of one copy of the metadata.
const META: usize = LINE_WORDS / 2;
const SLOTS_MAX: usize = 127;

/// The sizes of a leaf, and a design's names for the steps of its changes.
#[derive(Clone, Copy)]
pub struct Shape {
    pub slots: usize,
    items_at: usize,
    steps: &'static Steps,
}

/// Names of the steps of a change.
pub struct Steps {
    pub items: Step,
    pub fresh: Step,
    pub meta: Step,
    pub unlink: Step,
}

/// Metadata of a leaf.
#[derive(Clone, Copy)]
pub struct Meta {
    pub stamp: u64,
    pub next: u64,
    pub bitmap: u128,
}

/// Returns the set bits, lowest first.
pub fn bits(mut bitmap: u128) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = bitmap.trailing_zeros() as usize;
        (bitmap != 0).then(|| {
            bitmap &= bitmap - 1;
            bit
        })
    })
}

impl Shape {
    pub fn new(node_lines: u64, steps: &'static Steps) -> Self {
        let words = node_lines as usize * LINE_WORDS;
        let items_at = |slots: usize| (LINE_WORDS + slots.div_ceil(8)).next_multiple_of(2);
        let fits = |slots: &usize| items_at(*slots) + slots * 2 <= words;
        let slots = (1..=SLOTS_MAX).rev().find(fits).expect("leaves have two lines or more");
        Self { slots, items_at: items_at(slots), steps }
    }

    /// Returns the maximum number of items of a leaf.
    pub fn capacity(self) -> usize {
        self.slots - 1
    }

    pub fn place(self, slot: usize) -> usize {
        self.items_at + slot * 2
    }

    fn meta<M: Medium>(self, store: &Store<M>, leaf: u64, which: usize) -> Meta {
        let [stamp, next, low, high] = [0, 1, 2, 3].map(|at: usize| store.load(leaf, which * META + at));
        let bitmap = u128::from(high) << 64 | u128::from(low);
        Meta { stamp, next, bitmap: bitmap & ((1 << self.slots) - 1) }
    }

    /// Returns the index of the metadata that counts.
    fn which<M: Medium>(self, store: &Store<M>, leaf: u64, stamp: u64) -> usize {
        let [first, second] = [0, 1].map(|which| store.load(leaf, which * META));
        usize::from(second <= stamp && (first > stamp || second > first))
    }

    /// Returns the metadata that counts.
    #[inline(always)]
    pub fn now<M: Medium>(self, store: &Store<M>, leaf: u64, stamp: u64) -> Meta {
        self.meta(store, leaf, self.which(store, leaf, stamp))
    }

    /// Writes the metadata that does not count, and flushes it.
    pub fn prepare<M: Medium>(self, store: &Store<M>, leaf: u64, stamp: u64, meta: Meta) -> Flushed {
        let which = 1 - self.which(store, leaf, stamp);
        self.set(store, leaf, which, meta);
        store.medium().flush(store.word(leaf, 0), self.steps.meta)
    }

    /// Commits other metadata, durably once the flush is fenced: their stamp is stored last in their line.
    pub fn commit<M: Medium>(self, store: &Store<M>, leaf: u64, meta: Meta, proof: &impl Witness) -> Flushed {
        let at = (1 - self.which(store, leaf, u64::MAX)) * META;
        self.set_but_stamp(store, leaf, at, meta);
        let _ordered = store.medium().ordered_within_line();
        store.word(leaf, at).publish(store.medium(), meta.stamp, proof, self.steps.meta);
        store.medium().flush(store.word(leaf, at), self.steps.meta)
    }

    fn set<M: Medium>(self, store: &Store<M>, leaf: u64, which: usize, meta: Meta) {
        store.word(leaf, which * META).store(store.medium(), meta.stamp);
        self.set_but_stamp(store, leaf, which * META, meta);
    }

    fn set_but_stamp<M: Medium>(self, store: &Store<M>, leaf: u64, at: usize, meta: Meta) {
        let words = [meta.next, meta.bitmap as u64, (meta.bitmap >> 64) as u64];
        for (word, to) in words.into_iter().zip(at + 1..) {
            store.word(leaf, to).store(store.medium(), word);
        }
    }

    pub fn next<M: Medium>(self, store: &Store<M>, leaf: u64, stamp: u64) -> u64 {
        self.now(store, leaf, stamp).next
    }

    /// Sets the right sibling, durably.
    pub fn link<M: Medium>(self, store: &Store<M>, leaf: u64, stamp: u64, next: u64) {
        let cell = store.word(leaf, self.which(store, leaf, stamp) * META + 1);
        cell.publish(store.medium(), next, &Alone, self.steps.unlink);
        store.medium().persist(cell, self.steps.unlink);
    }

    pub fn item<M: Medium>(self, store: &Store<M>, leaf: u64, slot: usize) -> (u64, u64) {
        (store.load(leaf, self.place(slot)), store.load(leaf, self.place(slot) + 1))
    }

    /// Returns the items of a leaf, in order.
    pub fn items<M: Medium>(self, store: &Store<M>, leaf: u64, stamp: u64) -> Vec<(u64, u64)> {
        let taken = bits(self.now(store, leaf, stamp).bitmap);
        let mut items: Vec<_> = taken.map(|slot| self.item(store, leaf, slot)).collect();
        items.sort_unstable();
        items
    }

    #[inline(always)]
    pub fn find<M: Medium>(self, store: &Store<M>, leaf: u64, stamp: u64, key: u64) -> Option<u64> {
        let tag = Inline::fingerprint(key);
        let taken = self.now(store, leaf, stamp).bitmap;
        for group in 0..self.slots.div_ceil(8 * GROUP) {
            let tags = [0, 1].map(|at| store.load(leaf, LINE_WORDS + group * GROUP + at));
            let hits = u128::from(probe(tags, tag)) << (group * 8 * GROUP);
            for slot in bits(hits & taken) {
                let (held, value) = self.item(store, leaf, slot);
                if held == key {
                    return Some(value);
                }
            }
        }
        None
    }

    /// Stores an item in a free slot, and its fingerprint.
    pub fn put<M: Medium>(self, store: &Store<M>, leaf: u64, slot: usize, (key, value): (u64, u64)) {
        let medium = store.medium();
        store.word(leaf, self.place(slot)).store(medium, key);
        store.word(leaf, self.place(slot) + 1).store(medium, value);
        let (tags, shift) = (store.word(leaf, LINE_WORDS + slot / 8), slot % 8 * 8);
        let tag = u64::from(Inline::fingerprint(key));
        tags.store(medium, tags.load(medium) & !(0xff << shift) | tag << shift);
    }

    /// Flushes the lines of stored items, each once.
    pub fn flush<M: Medium>(
        self,
        store: &Store<M>,
        leaf: u64,
        slots: impl Iterator<Item = usize>,
    ) -> Flushed {
        let words = slots.flat_map(|slot| [LINE_WORDS + slot / 8, self.place(slot)]);
        let mut lines: Vec<_> = words.map(|word| word / LINE_WORDS).collect();
        lines.sort_unstable();
        lines.dedup();
        let line = |line: usize| store.medium().flush(store.word(leaf, line * LINE_WORDS), self.steps.items);
        lines.into_iter().map(line).fold(Flushed::none(), Flushed::and)
    }

    /// Writes a leaf that no other one references yet.
    pub fn fill<M: Medium>(
        self,
        store: &Store<M>,
        leaf: u64,
        items: &[(u64, u64)],
        next: u64,
        stamp: u64,
    ) -> Flushed {
        self.set(store, leaf, 0, Meta { stamp, next, bitmap: (1 << items.len()) - 1 });
        self.set(store, leaf, 1, Meta { stamp: 0, next: 0, bitmap: 0 });
        items.iter().enumerate().for_each(|(slot, item)| self.put(store, leaf, slot, *item));
        let words = store.words(leaf, 0, self.place(items.len()));
        store.medium().flush(words, self.steps.fresh)
    }
}
