//! A last-level inner node: separators and leaves from the left, buffered items from the right, in the same slots,
//! under one lock that also covers the leaves.
//!
//! A bitmap replaces the paper's count of items. Strays are items outside the home line of their fingerprint: the
//! node remembers a few, so that readers read one line of the leaf. Buffered items are numbered from the right,
//! the oldest first. `places` describes the layout.

use bristlecone_pm::sync::Ordering::Relaxed;
use bristlecone_pm::{LINE_BYTES, Manifest, ManifestReader, Memory, Result};

use super::layout::Slots;
use super::places::{DEFAULT_BYTES, Header, NodeRef, Places};
use crate::index::parts::arena::{Arena, Room};
use crate::index::parts::locked::{self, Guarded};
use crate::index::parts::optimistic_lock::{OptimisticLock, Version};
use crate::index::parts::prefetch;
use crate::index::parts::search::{self, Level};

/// Number of attempts of a reader before it locks.
const PATIENCE: u32 = 8;

/// Number of bits of a leaf's offset, in lines; the bits above hold the part of its meta that does not fit there.
const LEAF_BITS: usize = 48 - LINE_BYTES.trailing_zeros() as usize;
const _: () = assert!(LEAF_BITS + Slots::BITS <= 64 + 32);

/// The last-level inner nodes of a tree.
#[derive(Debug)]
pub struct Nodes {
    arena: Arena<Header>,
    places: Places,
    by_default: bool,
}

/// Number of slots of each part of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Leaves.
    pub index: usize,
    /// Buffered items.
    pub buffered: usize,
}

/// A node's information about a leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Key word of the low fence.
    pub fence: u64,
    /// Offset of the leaf.
    pub leaf: u64,
    pub slots: Slots,
}

/// The time of a node's last split, on the clock of leaf splits, and its number of parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Splits {
    pub last: u32,
    /// Time between the last split and the one before.
    pub interval: u32,
    pub parts: usize,
}

impl Nodes {
    pub fn new(slots: usize, memory: &Memory) -> Result<Self> {
        let places = Places::new(slots, Level::detect());
        Ok(Self::over(Arena::new(places.bytes, memory)?, places))
    }

    /// Takes over the nodes of a closed tree.
    pub fn resume(slots: usize, manifest: &mut ManifestReader<'_>) -> Option<Self> {
        let places = Places::new(slots, Level::detect());
        Some(Self::over(Arena::resume(places.bytes, manifest)?, places))
    }

    fn over(arena: Arena<Header>, places: Places) -> Self {
        Self { arena, places, by_default: Some(places) == Places::DEFAULT }
    }

    /// Saves the nodes for the next open of the tree.
    pub fn save(&self, manifest: &mut Manifest) -> Option<()> {
        self.arena.save(manifest)
    }

    /// Returns the SIMD level for searches of their keys.
    pub fn level(&self) -> Level {
        self.places.level
    }

    /// Returns whether nodes have the default layout that [`get_as`](Self::get_as) can assume.
    #[inline(always)]
    pub fn have_default_layout(&self) -> bool {
        self.by_default
    }

    /// Same as [`get`](Self::get). With `DEFAULT`, all positions are compile-time constants.
    #[inline(always)]
    pub fn get_as<const DEFAULT: bool>(&self, id: u32) -> NodeRef<'_> {
        match &Places::DEFAULT {
            Some(places) if DEFAULT => {
                debug_assert!(self.have_default_layout());
                NodeRef { id, node: self.arena.get_spaced::<DEFAULT_BYTES>(id), places }
            }
            _ => self.get(id),
        }
    }

    #[inline(always)]
    pub fn get(&self, id: u32) -> NodeRef<'_> {
        NodeRef { id, node: self.arena.get(id), places: &self.places }
    }

    /// Returns an empty node that no other thread knows, unlocked, with a count above `count`.
    pub fn alloc(&self, count: u64) -> Result<u32> {
        let id = self.arena.alloc()?;
        let node = self.get(id);
        node.set_counts(Counts { index: 0, buffered: 0 });
        node.set_splits(Splits::default());
        node.lock.renew_above(count);
        Ok(id)
    }

    /// Reserves nodes.
    pub fn reserve(&self, nodes: usize) -> Result<Room<'_>> {
        self.arena.reserve(nodes)
    }

    pub fn free(&self, id: u32) {
        self.arena.free(id);
    }

    /// Returns an upper bound of the ids of all nodes ever allocated.
    pub fn end(&self) -> u32 {
        self.arena.begun()
    }

    pub fn live(&self) -> usize {
        self.arena.live()
    }

    pub fn bytes(&self) -> u64 {
        self.arena.bytes()
    }
}

impl<'a> NodeRef<'a> {
    /// Prefetches all its lines.
    #[inline(always)]
    pub fn prefetch(self) {
        let start = std::ptr::from_ref(self.node).cast::<u8>();
        (0..self.places.bytes).step_by(LINE_BYTES).for_each(|at| prefetch(start.wrapping_add(at)));
    }

    /// Returns the number of slots of each part, never more than the node has.
    #[inline(always)]
    pub fn counts(self) -> Counts {
        let word = self.node.counts.load(Relaxed);
        let index = (word as u32 as usize).min(self.places.slots);
        Counts { index, buffered: ((word >> 32) as usize).min(self.places.slots - index) }
    }

    #[inline(always)]
    pub(super) fn set_counts(self, counts: Counts) {
        self.node.counts.store(counts.index as u64 | (counts.buffered as u64) << 32, Relaxed);
    }

    pub fn splits(self) -> Splits {
        let word = self.node.splits.load(Relaxed);
        let (last, interval) = (word as u32, (word >> 32) as u32 & 0x0fff_ffff);
        Splits { last, interval, parts: (word >> 60) as usize }
    }

    pub fn set_splits(self, splits: Splits) {
        let interval = splits.interval.min(0x0fff_ffff);
        let word = u64::from(splits.last) | u64::from(interval) << 32 | (splits.parts as u64) << 60;
        self.node.splits.store(word, Relaxed);
    }

    /// Returns the number of free slots.
    #[inline(always)]
    pub fn room(self) -> usize {
        let Counts { index, buffered } = self.counts();
        self.places.slots - index - buffered
    }

    /// Returns the key word of a leaf's low fence.
    #[inline(always)]
    pub fn fence(self, at: usize) -> u64 {
        self.keys()[at].load(Relaxed)
    }

    /// Returns the taken slots of a leaf.
    #[inline(always)]
    pub fn taken(self, at: usize) -> u32 {
        Slots::taken_of(self.metas()[at].load(Relaxed))
    }

    /// Offset of a leaf.
    #[inline(always)]
    pub fn leaf(self, at: usize) -> u64 {
        (self.values()[at].load(Relaxed) & ((1 << LEAF_BITS) - 1)) * LINE_BYTES as u64
    }

    /// Returns the last of the leaves that begin at `fence` or before, or the first leaf: for fences whose words
    /// order like the keys.
    #[inline(always)]
    pub fn last_up_to(self, fence: u64) -> usize {
        let fences = (1 << self.counts().index) - 1;
        let up_to = search::mask_le(self.places.level, self.fences(), fence) & fences;
        (up_to | 1).trailing_ones() as usize - 1
    }

    #[inline(always)]
    pub fn entry(self, at: usize) -> Entry {
        let value = self.values()[at].load(Relaxed);
        let slots = u64::from(self.metas()[at].load(Relaxed)) | value >> LEAF_BITS << 32;
        Entry {
            fence: self.fence(at),
            leaf: self.leaf(at),
            slots: Slots::unpack(slots, self.strays()[at].load(Relaxed)),
        }
    }

    pub fn set_entry(self, at: usize, Entry { fence, leaf, slots }: Entry) {
        debug_assert!(leaf.is_multiple_of(LINE_BYTES as u64) && leaf < 1 << 48);
        self.keys()[at].store(fence, Relaxed);
        let (word, number) = (slots.pack(), leaf / LINE_BYTES as u64);
        self.values()[at].store(number | word >> 32 << LEAF_BITS, Relaxed);
        self.metas()[at].store(word as u32, Relaxed);
        self.strays()[at].store(slots.stray_tags, Relaxed);
    }

    /// Inserts a leaf at a position of the index part. There must be space.
    pub fn insert_entry(self, at: usize, entry: Entry) {
        let counts = self.counts();
        assert!(self.room() > 0, "an entry in a full node");
        (at..counts.index).rev().for_each(|from| self.set_entry(from + 1, self.entry(from)));
        self.set_entry(at, entry);
        self.set_counts(Counts { index: counts.index + 1, ..counts });
        self.renumber(|owner| if owner >= at { owner + 1 } else { owner });
    }

    /// Removes a leaf. Nothing may be buffered for it.
    pub fn remove_entry(self, at: usize) {
        let counts = self.counts();
        (at + 1..counts.index).for_each(|from| self.set_entry(from - 1, self.entry(from)));
        self.set_counts(Counts { index: counts.index - 1, ..counts });
        self.renumber(|owner| if owner > at { owner - 1 } else { owner });
    }

    /// Keeps only the first `count` leaves.
    pub fn truncate(self, count: usize) {
        self.set_counts(Counts { index: count, ..self.counts() });
    }

    /// Returns the version that a reader of this node validates after `tries` attempts: the one it read, or, after
    /// too many attempts, a locked one that cannot change. Returns `None` if another thread changed the node
    /// first.
    #[inline(always)]
    pub fn hold(self, version: Version, tries: u32) -> Option<(Option<Locked<'a>>, Version)> {
        if tries < PATIENCE {
            return Some((None, version));
        }
        let locked = self.lock_at(version)?;
        Some((Some(locked), version.locked()))
    }

    /// Locks the node if it is unchanged since `version`.
    #[inline(always)]
    pub fn lock_at(self, version: Version) -> Option<Locked<'a>> {
        Locked::at(self, version)
    }
}

/// A node and its leaves, locked by their only writer.
pub type Locked<'a> = locked::Locked<NodeRef<'a>>;

impl Guarded for NodeRef<'_> {
    #[inline(always)]
    fn lock(&self) -> &OptimisticLock {
        &self.node.lock
    }

    fn clear(&self) {
        self.set_counts(Counts { index: 0, buffered: 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::super::buffer::Buffered;
    use super::super::places::NODE_SLOTS_MAX;
    use super::*;
    use crate::index::parts::buffered::InLeaf;

    fn item(key: u64, owner: usize) -> Buffered {
        Buffered {
            key,
            value: key + 1,
            log: 7,
            owner,
            in_leaf: [InLeaf::No, InLeaf::Yes, InLeaf::Unseen][key as usize % 3],
            removed: key.is_multiple_of(4),
            tag: key as u8,
        }
    }

    fn entry(number: u64) -> Entry {
        let bitmap = number as u32;
        let (stray_tags, stray_slots) = (0xff00_0201 + bitmap, 0xf_fff0 + bitmap);
        let slots = Slots { bitmap, forgotten: 0x7e, stray_tags, stray_slots };
        Entry { fence: 10 * number, leaf: (1 << 48) - 512 * number, slots }
    }

    #[test]
    fn both_parts_share_the_slots() {
        for slots in [6, 29, NODE_SLOTS_MAX] {
            let nodes = Nodes::new(slots, &Memory::private()).unwrap();
            let node = nodes.get(nodes.alloc(5).unwrap());
            assert_eq!((node.lock.count(), node.room()), (6, slots));
            node.insert_entry(0, entry(1));
            node.insert_entry(1, entry(3));
            (0..slots as u64 - 3).for_each(|key| node.push_buffered(item(key, (key % 2) as usize)));
            node.insert_entry(1, entry(2));
            assert_eq!(
                (node.room(), node.entry(0), node.entry(1), node.entry(2)),
                (0, entry(1), entry(2), entry(3))
            );
            // Items of the second leaf now belong to the third.
            let want: Vec<_> = (0..slots as u64 - 3).map(|key| item(key, (key % 2 * 2) as usize)).collect();
            assert!(node.all_buffered().eq(want.iter().copied()));
            for buffered in &want {
                let hits: Vec<_> = node.probe(buffered.tag).collect();
                assert_eq!(hits, [buffered.key as usize]);
            }
            node.drop_buffered(node.items_of(0));
            assert!(node.all_buffered().eq(want.iter().copied().filter(|item| item.owner == 2)));
            node.remove_entry(1);
            assert_eq!((node.items_of(1).count(), node.counts().index), (node.counts().buffered, 2));
            assert_eq!(node.probe(0).count(), 0, "what left the buffer is not found");
        }
    }

    #[test]
    fn splits_are_remembered() {
        let nodes = Nodes::new(29, &Memory::private()).unwrap();
        let node = nodes.get(nodes.alloc(0).unwrap());
        let splits = Splits { last: u32::MAX, interval: 77, parts: 5 };
        node.set_splits(splits);
        assert_eq!(node.splits(), splits);
    }

    #[test]
    fn live_items_count_what_is_on_its_way() {
        let nodes = Nodes::new(8, &Memory::private()).unwrap();
        let node = nodes.get(nodes.alloc(0).unwrap());
        node.insert_entry(0, Entry { slots: Slots { bitmap: 0b111, ..Slots::default() }, ..entry(1) });
        for (in_leaf, removed, live) in [
            (InLeaf::No, false, 4),
            (InLeaf::Yes, false, 4),
            (InLeaf::Unseen, false, 5),
            (InLeaf::Yes, true, 4),
            (InLeaf::No, true, 4),
        ] {
            node.push_buffered(Buffered { in_leaf, removed, ..Buffered::default() });
            assert_eq!(node.live_items(0), live);
        }
    }
}
