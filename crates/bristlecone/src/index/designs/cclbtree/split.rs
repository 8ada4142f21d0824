//! Split: a leaf without space for its buffer's items becomes two. Step numbers are those of the protocol
//! in `mod.rs`.

use bristlecone_pm::{Durable, Flushed, Medium, Persist, Result};

use super::Core;
use super::buffer::{Locked, State};
use super::flush::Items;
use super::layout::{LeafWord, line_of};
use crate::index::parts::arena::Room;
use crate::index::parts::buffered::{Part, Pending, run_of};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::split::Run;
use crate::index::parts::words::sort_by_key;

/// The resources of a split: see [`Core::prepare_split`].
pub(super) struct NewLeaf<'a> {
    offset: u64,
    _room: Room<'a>,
}

impl<K: KeyCodec, M: Medium> Core<K, M> {
    /// Allocates everything that a split of `left` needs. After `Err` nothing has changed.
    pub(super) fn prepare_split(&self, left: &Locked<'_>) -> Result<NewLeaf<'_>> {
        let room = self.inner.reserve(1)?;
        let offset = self.alloc_leaf(left)?;
        if let Err(error) = self.buffers.number_of(offset) {
            self.leaves.free(offset);
            return Err(error);
        }
        Ok(NewLeaf { offset, _room: room })
    }

    /// Splits a leaf without space for `items`, and writes them, with the prepared resources.
    pub(super) fn split(
        &self,
        left: &mut Locked<'_>,
        NewLeaf { offset, _room }: NewLeaf<'_>,
        items: &[Pending],
        records: Option<Flushed>,
        guard: &K::Guard,
    ) {
        let medium = self.medium();
        let state = left.state();
        let cells = self.leaf(state.leaf);
        let word = LeafWord::unpack(cells.header.word.load(medium));
        let dropped = u64::from(Pending::changes(items).1);
        let stay = word.bitmap & self.slots_mask() & !dropped;
        let mut parts = self.parts_with(state.leaf, stay, items, guard);
        let len = parts.len();
        sort_by_key::<K, _>(self.level, &mut parts, Part::key);
        // Slot 0 may be reserved for the fence: it has the least item, or none, unless its record was damaged since.
        let fence = state.leaf != self.first && parts.first().is_none_or(|part| part.item.slot() != Some(0));
        let usable = self.slots - usize::from(fence);
        let least = len.saturating_sub(self.slots).max(1);
        // A run ends its leaf: see `parts/split.rs`. No slots stay free for late keys, because buffers hold them. A leaf
        // begins with an item. So that descending keys go on in a leaf of their own, it begins with the last item below
        // them.
        let kept = match run_of::<K>(&parts) {
            Some((Run::Ascending, run)) => run.end.min(len - 1).max(least).min(usable),
            Some((Run::Descending, run)) => run.start.saturating_sub(1).max(least).min(usable),
            None => len / 2,
        };
        let (lower, upper) = parts.split_at(kept);
        self.pool.events().note_split();

        // Split 1: the new leaf. All lines of a leaf are written, and fetched for that: prefetch those
        // for the next split.
        self.leaves.prefetch_next();
        let stamp = left.sequence();
        let mut flushed = self.write_leaf(offset, upper, LeafWord { bitmap: 0, next: word.next }, stamp);
        if let Some(records) = records {
            flushed = flushed.and(records);
        }
        let durable = medium.fence(flushed, "cclbtree split.1");
        // Split 2: the old leaf drops the moved items, and links the new leaf.
        let moved = upper.iter().filter_map(|part| part.item.slot());
        let gone = moved.fold(dropped, |bits, slot| bits | 1 << slot);
        let shrunk = LeafWord { bitmap: word.bitmap & !gone, next: offset };
        cells.header.word.publish(medium, shrunk.pack(), &durable, "cclbtree split.2");
        medium.persist(&cells.header.word, "cclbtree split.2");
        // Split 3: merge the new items of the lower half into the old leaf, which has space now.
        let rest: Items = lower.iter().filter(|part| part.changed).map(|part| part.item).collect();
        self.write_items(left, &rest, None, true);

        left.set_state(State { pending: 0, used: 0, uncounted: false, ..state });
        let id = self.buffers.alloc(offset, stamp).expect("the buffer has its number");
        self.inner.insert(upper[0].key, id, guard);
    }

    /// Fills a fresh leaf with items in order, so that slot 0 is its low fence; flushes it completely.
    fn write_leaf(&self, offset: u64, parts: &[Part<K::Ref<'_>>], word: LeafWord, stamp: u64) -> Flushed {
        let medium = self.medium();
        let cells = self.leaf(offset);
        let mut tags = [0; 2];
        for (slot, part) in parts.iter().enumerate() {
            cells.slots[slot].key.store(medium, part.item.key);
            cells.slots[slot].value.store(medium, part.item.value);
            tags[slot / 8] |= u64::from(part.item.tag) << (slot % 8 * 8);
        }
        let bitmap = (1 << parts.len()) - 1;
        cells.header.fingerprints.store_derived(medium, tags);
        cells.header.stamp.store(medium, stamp);
        cells.header.word.store(medium, LeafWord { bitmap, ..word }.pack());
        let last = line_of(parts.len().saturating_sub(1));
        self.flush_lines(offset, (1_u64 << (last + 1)) - 1, "cclbtree split.1")
    }

    /// Returns an empty durable leaf, the first one of a tree.
    pub(super) fn write_first_leaf(&self) -> Result<(u64, Durable)> {
        let offset = self.leaves.alloc()?;
        let flushed = self.write_leaf(offset, &[], LeafWord { bitmap: 0, next: 0 }, 0);
        Ok((offset, self.medium().fence(flushed, "cclbtree create.1")))
    }
}
