//! A leaf that has no room for what its buffer gathered becomes two. Step numbers are those of
//! the story in `mod.rs`.

use bristlecone_pm::{Durable, Flushed, Medium, Persist, Result};

use super::Core;
use super::buffer::{Locked, State};
use super::flush::{ITEMS_MAX, Items};
use super::layout::{LeafWord, SLOTS_MAX};
use crate::shared::arena::Room;
use crate::shared::change::Item;
use crate::shared::codec::{Codec, KeyCodec};
use crate::shared::slot::bits;

/// Most items that a leaf and its buffer hold together with the one that overflows them.
const PARTS_MAX: usize = SLOTS_MAX + ITEMS_MAX;

/// An item of a leaf that is being split.
#[derive(Clone, Copy)]
struct Part<R> {
    key: R,
    item: Item,
    /// The slot that holds it.
    slot: Option<usize>,
    /// Whether the leaf does not hold it yet, or with another value.
    changed: bool,
}

impl<R: Copy> Part<R> {
    /// Returns what parts are sorted by; a closure would have each kind of tree compile the sort anew.
    fn key(&self) -> R {
        self.key
    }
}

/// What a split cannot do without: see [`Core::prepare_split`].
pub(super) struct NewLeaf<'a> {
    offset: u64,
    _room: Room<'a>,
}

impl<K: KeyCodec, V: Codec, M: Medium> Core<K, V, M> {
    /// Allocates all that a split of `left` needs. `Err`: nothing changed.
    pub(super) fn prepare_split(&self, left: &Locked<'_>) -> Result<NewLeaf<'_>> {
        let room = self.inner.reserve(1)?;
        let offset = self.alloc_leaf(left)?;
        if let Err(error) = self.buffers.number_of(offset) {
            self.leaves.free(offset);
            return Err(error);
        }
        Ok(NewLeaf { offset, _room: room })
    }

    /// Splits a leaf that has no room for `items`, and writes them, with what was prepared for it.
    pub(super) fn split(
        &self,
        left: &mut Locked<'_>,
        NewLeaf { offset, _room }: NewLeaf<'_>,
        items: &Items,
        records: Option<Flushed>,
        guards: &(K::Guard, V::Guard),
    ) {
        let medium = self.medium();
        let state = left.state();
        let cells = self.leaf(state.leaf);
        let word = LeafWord::unpack(cells.header.word.load(medium));
        let nothing = Part { key: K::least(), item: Item::default(), slot: None, changed: false };
        let mut parts = [nothing; PARTS_MAX];
        let len = self.gather(left, items, &mut parts, &guards.0);
        let parts = &mut parts[..len];
        parts.sort_unstable_by_key(Part::key);
        let held = word.bitmap.count_ones() as usize;
        // Slot 0 may be the fence's alone.
        let fence = state.leaf != self.first && word.bitmap & !items.dropped() & 1 == 0;
        let usable = self.slots - usize::from(fence);
        // New items above all others: an ascending load leaves full leaves behind.
        let ascending = parts.iter().skip(held).all(|part| part.changed && part.slot.is_none());
        let kept = if ascending && len > held { (len - 1).min(usable) } else { len / 2 };
        let (lower, upper) = parts.split_at(kept);

        // Split 1: the new leaf.
        // All lines of a leaf are written, and fetched for that: those of the next one by the next split.
        self.leaves.prefetch_next();
        let stamp = left.sequence();
        let mut flushed = self.write_leaf(offset, upper, LeafWord { bitmap: 0, next: word.next }, stamp);
        if let Some(records) = records {
            flushed = flushed.and(records);
        }
        let durable = medium.fence(flushed, "cclbtree split.1");
        // Split 2: the old leaf drops what moved, and leads on to it.
        let gone =
            upper.iter().filter_map(|part| part.slot).fold(items.dropped(), |bits, slot| bits | 1 << slot);
        let shrunk = LeafWord { bitmap: word.bitmap & !gone, next: offset };
        cells.header.word.publish(medium, shrunk.pack(), &durable, "cclbtree split.2");
        medium.persist(&cells.header.word, "cclbtree split.2");
        // Split 3: the old leaf takes what is new of the lower half; now it has the room.
        let mut rest = Items::default();
        lower.iter().filter(|part| part.changed).for_each(|part| rest.push(part.item, part.slot));
        self.write_items(left, &rest, None, true);

        left.set_state(State { pending: 0, used: 0, uncounted: false, ..state });
        let id = self.buffers.alloc(offset, stamp).expect("the buffer has its number");
        self.inner.insert(upper[0].key, id, &guards.0);
    }

    /// The items that a leaf holds once `items` have reached it, in no order; how many.
    fn gather<'g>(
        &'g self,
        leaf: &Locked<'_>,
        items: &Items,
        parts: &mut [Part<K::Ref<'g>>; PARTS_MAX],
        guard: &'g K::Guard,
    ) -> usize {
        let medium = self.medium();
        let cells = self.leaf(leaf.state().leaf);
        let taken = LeafWord::unpack(cells.header.word.load(medium)).bitmap & self.slots_mask();
        let mut len = 0;
        for slot in bits(taken & !items.dropped()) {
            let held = &cells.slots[slot];
            let item = Item { key: held.key.load(medium), value: held.value.load(medium), removed: false };
            let newer = items.iter().find(|(_, at)| *at == Some(slot)).map(|(newer, _)| newer);
            let item = newer.map_or(item, |newer| Item { key: item.key, ..*newer });
            let key = K::read(&self.keys, item.key, guard);
            parts[len] = Part { key, item, slot: Some(slot), changed: newer.is_some() };
            len += 1;
        }
        for item in items.added() {
            let key = K::read(&self.keys, item.key, guard);
            parts[len] = Part { key, item: *item, slot: None, changed: true };
            len += 1;
        }
        len
    }

    /// Fills a fresh leaf with items in order, so that slot 0 is its low fence; wholly flushed.
    fn write_leaf(&self, offset: u64, parts: &[Part<K::Ref<'_>>], word: LeafWord, stamp: u64) -> Flushed {
        let medium = self.medium();
        let cells = self.leaf(offset);
        let mut tags = [0; 2];
        for (slot, part) in parts.iter().enumerate() {
            cells.slots[slot].key.store(medium, part.item.key);
            cells.slots[slot].value.store(medium, part.item.value);
            tags[slot / 8] |= u64::from(K::fingerprint(part.key)) << (slot % 8 * 8);
        }
        let bitmap = (1 << parts.len()) - 1;
        cells.header.fingerprints.store_derived(medium, tags);
        cells.header.stamp.store(medium, stamp);
        cells.header.word.store(medium, LeafWord { bitmap, ..word }.pack());
        let last = super::layout::line_of(parts.len().saturating_sub(1));
        self.flush_lines(offset, (1 << (last + 1)) - 1, "cclbtree split.1")
    }

    /// An empty leaf, durable when this returns: where a tree begins.
    pub(super) fn write_first_leaf(&self) -> Result<(u64, Durable)> {
        let offset = self.leaves.alloc()?;
        let flushed = self.write_leaf(offset, &[], LeafWord { bitmap: 0, next: 0 }, 0);
        Ok((offset, self.medium().fence(flushed, "cclbtree create.1")))
    }
}
