//! Items to be written to a leaf, with the leaf's slots for them, and the words that this releases.

use std::ops::Range;

use bristlecone_pm::Medium;
use smallvec::SmallVec;

use super::leaf::tag_of;
use super::{Item, LeafLayout, Store};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::slot::bits;
use crate::index::parts::split::Run;

/// A change of one key, as words, and the slot that its leaf has for the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    pub key: u64,
    pub value: u64,
    pub removed: bool,
    pub tag: u8,
    slot: Option<u8>,
}

impl Pending {
    #[inline(always)]
    pub fn of(Item { key, value, removed }: Item, tag: u8, slot: Option<usize>) -> Self {
        Self { key, value, removed, tag, slot: slot.map(|slot| slot as u8) }
    }

    /// Returns whether the leaf needs a slot for it.
    #[inline(always)]
    pub fn is_new(&self) -> bool {
        !self.removed && self.slot.is_none()
    }

    #[inline(always)]
    pub fn slot(&self) -> Option<usize> {
        self.slot.map(usize::from)
    }

    /// Returns the number of items without a slot in the leaf, and the slots whose items are removed.
    #[inline(always)]
    pub fn changes(items: &[Self]) -> (usize, u32) {
        items.iter().fold((0, 0), |(added, dropped), item| match item.slot {
            Some(slot) if item.removed => (added, dropped | 1 << slot),
            _ => (added + usize::from(item.is_new()), dropped),
        })
    }
}

/// An item of a leaf that is being split.
#[derive(Clone, Copy)]
pub struct Part<R> {
    pub key: R,
    pub item: Pending,
    /// Whether the leaf does not have it yet, or has another value.
    pub changed: bool,
}

impl<R: Copy> Part<R> {
    /// Returns the sort key of parts; with a closure, each kind of tree would compile its own sort.
    pub fn key(&self) -> R {
        self.key
    }
}

/// Returns the run that the new items of a leaf continue, if they do, and their places. The items are sorted.
pub fn run_of<K: KeyCodec>(parts: &[Part<K::Ref<'_>>]) -> Option<(Run, Range<usize>)> {
    let is_new = |part: &Part<K::Ref<'_>>| part.item.is_new();
    let start = parts.iter().position(is_new)?;
    let end = parts.iter().rposition(is_new)? + 1;
    if !parts[start..end].iter().all(is_new) {
        return None;
    }
    let run = if end == parts.len() {
        Run::Ascending
    } else if start == 0 {
        Run::Descending
    } else {
        Run::of::<K>(parts[start - 1].key, (parts[start].key, parts[end - 1].key), parts[end].key)?
    };
    Some((run, start..end))
}

/// The items of a leaf, with the keys that they are sorted by.
pub type Parts<R> = SmallVec<[Part<R>; 32]>;

/// Words that a tree releases once a change of a leaf is durable.
#[derive(Default)]
pub struct Leftovers {
    values: SmallVec<[u64; 9]>,
    keys: SmallVec<[u64; 9]>,
}

impl<L: LeafLayout, K: KeyCodec, M: Medium> Store<L, K, M> {
    /// Returns the items of a leaf after others are merged into it; the given slots stay taken. Items with an
    /// existing slot come first.
    pub fn parts_with<'g>(
        &'g self,
        leaf: u64,
        stay: u64,
        items: &[Pending],
        guard: &'g K::Guard,
    ) -> Parts<K::Ref<'g>> {
        let medium = self.medium();
        let tags = self.leaf(leaf).tags(medium);
        let changes = items.iter().filter_map(Pending::slot).fold(0_u64, |bits, slot| bits | 1 << slot);
        let mut parts = Parts::new();
        for slot in bits(stay) {
            let cell = self.slot(leaf, slot);
            let newer = if changes >> slot & 1 == 0 {
                None
            } else {
                items.iter().find(|item| item.slot() == Some(slot))
            };
            let (key, value) = (cell.key.load(medium), cell.value.load(medium));
            let value = newer.map_or(value, |newer| newer.value);
            let item =
                Pending::of(Item { key, value, removed: false }, tag_of(tags.as_ref(), slot), Some(slot));
            parts.push(Part { key: self.keys.read(key, guard), item, changed: newer.is_some() });
        }
        for &item in items.iter().filter(|item| item.is_new()) {
            parts.push(Part { key: self.keys.read(item.key, guard), item, changed: true });
        }
        parts
    }

    /// Adds the words that the pending items replace or remove in a leaf.
    #[inline(always)]
    pub fn note_leftovers(&self, leaf: u64, items: &[Pending], leftovers: &mut Leftovers) {
        if K::INLINE && self.values.are_words() {
            return;
        }
        for item in items {
            let cell = item.slot().map(|slot| self.slot(leaf, slot));
            let old = cell.map(|cell| cell.value.load(self.medium()));
            // After a crash an item may be buffered although it was merged into the leaf already.
            leftovers.values.extend(old.filter(|old| item.removed || *old != item.value));
            // The leaf keeps its own word for a key that was written without searching it.
            let other = cell.map(|cell| cell.key.load(self.medium())).filter(|key| *key != item.key);
            leftovers.keys.extend((item.removed || other.is_some()).then_some(item.key));
            leftovers.keys.extend(other.filter(|_| item.removed));
        }
    }

    /// Durably releases the words that no leaf and no buffer holds any more.
    #[inline(always)]
    pub fn let_go(&self, leftovers: Leftovers, retire_key: impl Fn(u64)) {
        if K::INLINE && self.values.are_words() {
            return;
        }
        leftovers.values.into_iter().for_each(|value| self.values.retire(value));
        leftovers.keys.into_iter().for_each(retire_key);
    }
}
