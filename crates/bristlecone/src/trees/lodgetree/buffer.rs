//! The buffer part of a node: items on their way to its leaves, numbered from the right, the oldest
//! first.

use std::sync::atomic::Ordering::Relaxed;

use super::node::{Counts, NODE_SLOTS_MAX, NodeRef};
use crate::shared::fingerprint;
use crate::shared::search::Level;

const REMOVED: u8 = 0x80;
const IN_LEAF: u8 = 0x40;
const OWNER: u8 = 0x3f;
const _: () = assert!(NODE_SLOTS_MAX <= OWNER as usize);
/// Beside the number of a log, which is a chunk's.
const UNSEEN: u32 = 1 << 31;

/// Whether a leaf has a slot for a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InLeaf {
    #[default]
    No,
    Yes,
    /// Nobody has looked: the item was written without asking. It is none that goes, and its value is none
    /// that the leaf holds.
    Unseen,
}

impl From<bool> for InLeaf {
    fn from(seen: bool) -> Self {
        if seen { Self::Yes } else { Self::No }
    }
}

/// A buffered item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffered {
    pub key: u64,
    pub value: u64,
    /// The log that holds it.
    pub log: u32,
    /// Place of its leaf in the index part.
    pub owner: usize,
    /// Whether the leaf has a slot for its key.
    pub in_leaf: InLeaf,
    /// Whether the key goes.
    pub removed: bool,
    pub tag: u8,
}

/// What is buffered for a leaf.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub items: u32,
    /// Items that the leaf will have more, at most: what nobody looked for may be there already.
    pub growth: i32,
}

impl<'a> NodeRef<'a> {
    /// Leaves have got other places.
    pub(super) fn renumber(self, new: impl Fn(usize) -> usize) {
        for item in 0..self.counts().buffered {
            let owner = &self.owners()[self.slot_of(item)];
            let old = owner.load(Relaxed);
            owner.store(old & !OWNER | new((old & OWNER).into()) as u8, Relaxed);
        }
    }

    /// The slot of a buffered item.
    #[inline(always)]
    fn slot_of(self, item: usize) -> usize {
        self.places.slots - 1 - item
    }

    #[inline(always)]
    pub fn buffered(self, item: usize) -> Buffered {
        let slot = self.slot_of(item);
        let owner = self.owners()[slot].load(Relaxed);
        let meta = self.metas()[slot].load(Relaxed);
        Buffered {
            key: self.keys()[slot].load(Relaxed),
            value: self.values()[slot].load(Relaxed),
            log: meta & !UNSEEN,
            owner: (owner & OWNER).into(),
            in_leaf: if meta & UNSEEN != 0 { InLeaf::Unseen } else { (owner & IN_LEAF != 0).into() },
            removed: owner & REMOVED != 0,
            tag: self.tag(slot),
        }
    }

    pub fn set_buffered(self, item: usize, buffered: Buffered) {
        let slot = self.slot_of(item);
        self.keys()[slot].store(buffered.key, Relaxed);
        self.values()[slot].store(buffered.value, Relaxed);
        let (unseen, in_leaf) = match buffered.in_leaf {
            InLeaf::Unseen => (UNSEEN, 0),
            InLeaf::Yes => (0, IN_LEAF),
            InLeaf::No => (0, 0),
        };
        self.metas()[slot].store(buffered.log | unseen, Relaxed);
        let flags = in_leaf | if buffered.removed { REMOVED } else { 0 };
        self.owners()[slot].store(buffered.owner as u8 | flags, Relaxed);
        self.set_tag(slot, buffered.tag);
    }

    /// Adds a buffered item, the newest. There is room.
    pub fn push_buffered(self, buffered: Buffered) {
        assert!(self.room() > 0, "an item in a full node");
        let counts = self.counts();
        self.set_buffered(counts.buffered, buffered);
        self.set_counts(Counts { buffered: counts.buffered + 1, ..counts });
    }

    /// Every buffered item, the oldest first.
    #[inline(always)]
    pub fn all_buffered(self) -> impl Iterator<Item = Buffered> + use<'a> {
        (0..self.counts().buffered).map(move |item| self.buffered(item))
    }

    /// Keeps the buffered items that are wanted, by their numbers, in their order.
    pub fn retain_buffered(self, mut wanted: impl FnMut(usize) -> bool) {
        let counts = self.counts();
        let mut kept = 0;
        for item in 0..counts.buffered {
            if wanted(item) {
                if kept != item {
                    self.copy_buffered(item, kept);
                }
                kept += 1;
            }
        }
        self.set_counts(Counts { buffered: kept, ..counts });
    }

    fn copy_buffered(self, from: usize, to: usize) {
        let (from, to) = (self.slot_of(from), self.slot_of(to));
        self.keys()[to].store(self.keys()[from].load(Relaxed), Relaxed);
        self.values()[to].store(self.values()[from].load(Relaxed), Relaxed);
        self.metas()[to].store(self.metas()[from].load(Relaxed), Relaxed);
        self.owners()[to].store(self.owners()[from].load(Relaxed), Relaxed);
        self.set_tag(to, self.tag(from));
    }

    #[inline(always)]
    fn tag(self, slot: usize) -> u8 {
        (self.tags()[slot / 8].load(Relaxed) >> (slot % 8 * 8)) as u8
    }

    #[inline(always)]
    fn set_tag(self, slot: usize, tag: u8) {
        let (word, shift) = (&self.tags()[slot / 8], slot % 8 * 8);
        word.store(word.load(Relaxed) & !(0xff << shift) | u64::from(tag) << shift, Relaxed);
    }

    /// The leaf of a buffered item.
    #[inline(always)]
    pub fn owner(self, item: usize) -> usize {
        (self.owners()[self.slot_of(item)].load(Relaxed) & OWNER).into()
    }

    /// The log that holds a buffered item.
    #[inline(always)]
    pub fn log(self, item: usize) -> u32 {
        self.metas()[self.slot_of(item)].load(Relaxed) & !UNSEEN
    }

    /// Buffered items whose fingerprint is `tag`.
    #[inline(always)]
    pub fn probe(self, level: Level, tag: u8) -> impl Iterator<Item = usize> + use<'a> {
        let slots = self.places.slots;
        let buffered = self.counts().buffered;
        let part = ((1_u64 << buffered) - 1) << (slots - buffered);
        let mut hits = fingerprint::probe_cells(level, self.tags(), tag) & part;
        std::iter::from_fn(move || {
            let slot = hits.trailing_zeros() as usize;
            (hits != 0).then(|| {
                hits &= hits - 1;
                slots - 1 - slot
            })
        })
    }

    /// What is buffered, leaf by leaf.
    #[inline(always)]
    pub fn tallies(self) -> [Tally; NODE_SLOTS_MAX] {
        let mut tallies = [Tally::default(); NODE_SLOTS_MAX];
        for item in 0..self.counts().buffered {
            let owner = self.owners()[self.slot_of(item)].load(Relaxed);
            let tally = &mut tallies[usize::from(owner & OWNER) % NODE_SLOTS_MAX];
            tally.items += 1;
            tally.growth += match (owner & REMOVED != 0, owner & IN_LEAF != 0) {
                (false, false) => 1,
                (true, true) => -1,
                _ => 0,
            };
        }
        tallies
    }

    /// Items of a leaf once everything that is tallied for it has reached it, at most.
    pub fn live_with(self, at: usize, tally: Tally) -> usize {
        self.entry(at).slots.bitmap.count_ones().wrapping_add_signed(tally.growth) as usize
    }

    /// Items of a leaf once everything buffered for it has reached it, at most.
    pub fn live_items(self, at: usize) -> usize {
        self.live_with(at, self.tallies()[at])
    }

    /// Items buffered for a leaf.
    #[inline(always)]
    pub fn buffered_for(self, at: usize) -> usize {
        (0..self.counts().buffered).filter(|item| self.owner(*item) == at).count()
    }
}
