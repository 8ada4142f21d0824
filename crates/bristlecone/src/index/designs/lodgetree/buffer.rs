//! The buffer part of a node: items to be merged into its leaves, numbered from the right, the oldest first.

use bristlecone_pm::sync::{AtomicU64, Ordering::Relaxed};

use super::node::Counts;
use super::places::{NODE_SLOTS_MAX, NodeRef};
use crate::index::parts::buffered::{InLeaf, Item};
use crate::index::parts::fingerprint;

/// Bit beside the number of a log, which is that of a chunk.
const REMOVED: u32 = 1 << 29;
const IN_LEAF: u32 = 1 << 30;
const UNSEEN: u32 = 1 << 31;
const LOG: u32 = REMOVED - 1;
const _: () = assert!(NODE_SLOTS_MAX <= u64::BITS as usize);

/// A buffered item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffered {
    pub key: u64,
    pub value: u64,
    /// The log with its entry.
    pub log: u32,
    /// Position of its leaf in the index part.
    pub owner: usize,
    /// Whether the leaf has a slot for its key.
    pub in_leaf: InLeaf,
    /// Whether the key is removed.
    pub removed: bool,
    pub tag: u8,
}

impl Buffered {
    /// Returns the change as an item.
    #[inline(always)]
    pub fn item(&self) -> Item {
        Item { key: self.key, value: self.value, removed: self.removed }
    }
}

/// A set of buffered items of a node, one bit each, numbered from the right: the oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Items {
    set: u64,
    slots: usize,
}

impl Items {
    #[inline(always)]
    pub fn count(self) -> usize {
        self.set.count_ones() as usize
    }

    #[inline(always)]
    pub fn oldest(self) -> Option<usize> {
        self.into_iter().next()
    }

    #[inline(always)]
    pub fn without(self, others: Self) -> Self {
        Self { set: self.set & !others.set, ..self }
    }

    #[inline(always)]
    pub fn and(self, others: Self) -> Self {
        Self { set: self.set | others.set, ..self }
    }

    /// The subset of items that are newer than an item.
    #[inline(always)]
    fn behind(self, item: usize) -> Self {
        Self { set: self.set & ((1 << (self.slots - 1 - item)) - 1), ..self }
    }

    /// The subset of items that satisfy a predicate.
    pub fn that(self, wanted: impl Fn(usize) -> bool) -> Self {
        let bit = |item| 1_u64 << (self.slots - 1 - item);
        let set = self.filter(|item| wanted(*item)).fold(0, |set, item| set | bit(item));
        Self { set, ..self }
    }

    #[inline(always)]
    pub fn without_item(self, item: usize) -> Self {
        Self { set: self.set & !(1 << (self.slots - 1 - item)), ..self }
    }
}

impl Iterator for Items {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let slot = self.set.checked_ilog2()? as usize;
        self.set ^= 1 << slot;
        Some(self.slots - 1 - slot)
    }
}

/// Returns the byte of a slot.
#[inline(always)]
fn byte(words: &[AtomicU64], slot: usize) -> u8 {
    (words[slot / 8].load(Relaxed) >> (slot % 8 * 8)) as u8
}

#[inline(always)]
fn set_byte(words: &[AtomicU64], slot: usize, byte: u8) {
    let (word, shift) = (&words[slot / 8], slot % 8 * 8);
    word.store(word.load(Relaxed) & !(0xff << shift) | u64::from(byte) << shift, Relaxed);
}

/// The bytes of all slots, padded.
type Bytes = [[u8; 8]; BYTE_WORDS];
const BYTE_WORDS: usize = NODE_SLOTS_MAX.next_multiple_of(8 * fingerprint::GROUP) / 8;

#[inline(always)]
fn load_bytes(words: &[AtomicU64]) -> Bytes {
    let mut bytes = Bytes::default();
    words.iter().zip(&mut bytes).for_each(|(word, bytes)| *bytes = word.load(Relaxed).to_le_bytes());
    bytes
}

#[inline(always)]
fn store_bytes(words: &[AtomicU64], bytes: &Bytes) {
    words.iter().zip(bytes).for_each(|(word, bytes)| word.store(u64::from_le_bytes(*bytes), Relaxed));
}

impl<'a> NodeRef<'a> {
    /// Updates the positions of leaves.
    pub(super) fn renumber(self, new: impl Fn(usize) -> usize) {
        for item in self.items() {
            let slot = self.slot_of(item);
            set_byte(self.owners(), slot, new(byte(self.owners(), slot).into()) as u8);
        }
    }

    /// Returns the slot of a buffered item.
    #[inline(always)]
    fn slot_of(self, item: usize) -> usize {
        self.places.slots - 1 - item
    }

    /// Returns every buffered item.
    #[inline(always)]
    pub fn items(self) -> Items {
        let (slots, buffered) = (self.places.slots, self.counts().buffered);
        Items { set: ((1_u64 << buffered) - 1) << (slots - buffered), slots }
    }

    /// The items whose byte among `bytes` is `byte`.
    #[inline(always)]
    fn items_with(self, bytes: &[AtomicU64], byte: u8) -> Items {
        let all = self.items();
        Items { set: fingerprint::probe_cells(self.places.level, bytes, byte) & all.set, ..all }
    }

    /// Returns the items buffered for a leaf.
    #[inline(always)]
    pub fn items_of(self, at: usize) -> Items {
        self.items_with(self.owners(), at as u8)
    }

    /// Returns the buffered items whose fingerprint is `tag`.
    #[inline(always)]
    pub fn probe(self, tag: u8) -> Items {
        self.items_with(self.tags(), tag)
    }

    #[inline(always)]
    pub fn buffered(self, item: usize) -> Buffered {
        let slot = self.slot_of(item);
        let meta = self.metas()[slot].load(Relaxed);
        Buffered {
            key: self.keys()[slot].load(Relaxed),
            value: self.values()[slot].load(Relaxed),
            log: meta & LOG,
            owner: self.owner(item),
            in_leaf: if meta & UNSEEN != 0 { InLeaf::Unseen } else { (meta & IN_LEAF != 0).into() },
            removed: meta & REMOVED != 0,
            tag: self.tag(item),
        }
    }

    #[inline(always)]
    pub fn set_buffered(self, item: usize, buffered: Buffered) {
        let slot = self.slot_of(item);
        self.keys()[slot].store(buffered.key, Relaxed);
        self.values()[slot].store(buffered.value, Relaxed);
        let in_leaf = match buffered.in_leaf {
            InLeaf::Unseen => UNSEEN,
            InLeaf::Yes => IN_LEAF,
            InLeaf::No => 0,
        };
        let removed = if buffered.removed { REMOVED } else { 0 };
        self.metas()[slot].store(buffered.log | in_leaf | removed, Relaxed);
        set_byte(self.owners(), slot, buffered.owner as u8);
        set_byte(self.tags(), slot, buffered.tag);
    }

    /// Records whether the leaf of a buffered item has a slot for its key.
    pub fn set_in_leaf(self, item: usize, in_leaf: bool) {
        let meta = &self.metas()[self.slot_of(item)];
        let seen = if in_leaf { IN_LEAF } else { 0 };
        meta.store(meta.load(Relaxed) & !(UNSEEN | IN_LEAF) | seen, Relaxed);
    }

    /// Adds the newest buffered item. There must be space.
    #[inline(always)]
    pub fn push_buffered(self, buffered: Buffered) {
        assert!(self.room() > 0, "an item in a full node");
        let counts = self.counts();
        self.set_buffered(counts.buffered, buffered);
        self.set_counts(Counts { buffered: counts.buffered + 1, ..counts });
    }

    /// Returns every buffered item, the oldest first.
    #[inline(always)]
    pub fn all_buffered(self) -> impl Iterator<Item = Buffered> + use<'a> {
        self.items().map(move |item| self.buffered(item))
    }

    /// Removes buffered items; the others keep their order.
    pub fn drop_buffered(self, gone: Items) {
        let counts = self.counts();
        let Some(oldest) = gone.oldest() else { return };
        let (mut owners, mut tags) = (load_bytes(self.owners()), load_bytes(self.tags()));
        let (keys, values, metas) = (self.keys(), self.values(), self.metas());
        let mut kept = oldest;
        for item in self.items().without(gone).behind(oldest) {
            let (from, to) = (self.slot_of(item), self.slot_of(kept));
            keys[to].store(keys[from].load(Relaxed), Relaxed);
            values[to].store(values[from].load(Relaxed), Relaxed);
            metas[to].store(metas[from].load(Relaxed), Relaxed);
            for bytes in [&mut owners, &mut tags] {
                bytes.as_flattened_mut()[to] = bytes.as_flattened()[from];
            }
            kept += 1;
        }
        store_bytes(self.owners(), &owners);
        store_bytes(self.tags(), &tags);
        self.set_counts(Counts { buffered: kept, ..counts });
    }

    /// Returns the leaf of a buffered item.
    #[inline(always)]
    pub fn owner(self, item: usize) -> usize {
        byte(self.owners(), self.slot_of(item)).into()
    }

    #[inline(always)]
    pub fn tag(self, item: usize) -> u8 {
        byte(self.tags(), self.slot_of(item))
    }

    /// Returns the log with the entry of a buffered item.
    #[inline(always)]
    pub fn log(self, item: usize) -> u32 {
        self.metas()[self.slot_of(item)].load(Relaxed) & LOG
    }

    /// Returns the maximum number of items of a leaf after these items buffered for it are merged: unseen
    /// ones may be in the leaf already.
    #[inline(always)]
    pub fn live_with(self, at: usize, items: Items) -> usize {
        let growth = items.map(|item| {
            let meta = self.metas()[self.slot_of(item)].load(Relaxed);
            match (meta & REMOVED != 0, meta & IN_LEAF != 0) {
                (false, false) => 1,
                (true, true) => -1,
                _ => 0,
            }
        });
        self.taken(at).count_ones().wrapping_add_signed(growth.sum::<i32>()) as usize
    }

    /// Returns the maximum number of items of a leaf after all items buffered for it are merged.
    pub fn live_items(self, at: usize) -> usize {
        self.live_with(at, self.items_of(at))
    }
}
