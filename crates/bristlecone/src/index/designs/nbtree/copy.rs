//! Copy: what a leaf holds goes into fresh blocks. Step numbers are those of the protocol in `mod.rs`.

use bristlecone_pm::{Flushed, Medium, Persist};

use super::NbTree;
use super::layout::{EMPTY, Header, SLOTS_MAX, Shape, State};
use super::leaf::Leaf;
use super::lookup::Pins;
use super::meta::{Tag, Tags};
use crate::index::parts::codec::{Codec, KeyCodec};
use crate::index::parts::slot::{SLOT_BYTES, Slot, bits};

/// One new leaf in the making, which no other thread writes to.
#[derive(Clone, Copy)]
pub(super) struct Half {
    pub block: u64,
    pub tags: Tags,
    /// Slots that keys were given; those that lost their item meanwhile stay empty.
    taken: u64,
    /// Slots with items.
    pub items: u64,
}

/// What one thread would put in a leaf's place.
pub(super) struct LeafCopy<R> {
    pub halves: [Half; 2],
    /// Where the right half begins, if there is one.
    pub separator: Option<R>,
    /// The values that the items of the old leaf's slots went there with.
    pub values: [u64; SLOTS_MAX],
    /// The cells where those stand; zero where nothing of a slot was copied.
    pub cells: [u64; SLOTS_MAX],
    pub flushed: Flushed,
}

/// What a leaf held when it was looked at.
struct Items<'k, K: KeyCodec> {
    /// Slots with items.
    slots: u64,
    /// By slot.
    values: [u64; SLOTS_MAX],
    /// In the order of the slots with items.
    keys: [K::Ref<'k>; SLOTS_MAX],
}

impl Half {
    fn new(block: u64) -> Self {
        Self { block, tags: Tags::default(), taken: 0, items: 0 }
    }

    /// Gives a key a slot.
    #[inline(always)]
    pub fn place(&mut self, shape: Shape, tag: Tag) -> usize {
        let slot = shape.pick(!self.taken & shape.all(), tag.hash);
        self.taken |= 1 << slot;
        self.tags.set(slot, tag);
        slot
    }
}

impl<R: Copy + Ord> LeafCopy<R> {
    fn new(blocks: [u64; 2], values: [u64; SLOTS_MAX]) -> Self {
        let (halves, cells) = (blocks.map(Half::new), [0; SLOTS_MAX]);
        Self { halves, separator: None, values, cells, flushed: Flushed::none() }
    }

    /// Returns whether a key belongs to the right half.
    #[inline(always)]
    pub fn is_right(&self, key: R) -> bool {
        self.separator.is_some_and(|separator| separator <= key)
    }
}

impl<K: KeyCodec, V: Codec, M: Medium> NbTree<K, V, M> {
    /// Copy 2: writes what the leaf holds into fresh blocks. Values may change meanwhile.
    pub(super) fn copy<'k>(
        &'k self,
        leaf: &Leaf,
        seen: u64,
        blocks: [u64; 2],
        key: K::Ref<'k>,
        pins: &'k Pins<K, V>,
    ) -> LeafCopy<K::Ref<'k>> {
        let items = self.read_items(leaf, seen, key, pins);
        let mut copy = LeafCopy::new(blocks, items.values);
        let count = items.slots.count_ones() as usize;
        if blocks[1] != 0 && count > 1 {
            let mut any_order = items.keys;
            copy.separator = Some(Self::middle(&mut any_order[..count], key));
        } else if blocks[1] != 0 {
            self.blocks.free(blocks[1]);
            copy.halves[1].block = 0;
        }
        let (rights, strays) = self.copy_in_place(leaf, &items, &mut copy);
        // What is at home stays in its slot. The others may find room there now.
        let tags = self.tags(leaf);
        for (half, going) in copy.halves.iter_mut().zip([!rights, rights]) {
            half.taken = items.slots & going & !strays;
            half.tags = tags.of_slots(half.taken);
        }
        self.copy_strays(leaf, (rights, strays), &mut copy, pins);
        let birth = self.stamp();
        for half in copy.halves.iter_mut().filter(|half| half.block != 0) {
            half.items = half.taken;
            let flushed = self.write_header(half, leaf.block(), birth);
            copy.flushed = std::mem::replace(&mut copy.flushed, Flushed::none()).and(flushed);
        }
        copy
    }

    /// Reads what a leaf holds. `any` stands where no key does.
    fn read_items<'k>(
        &'k self,
        leaf: &Leaf,
        seen: u64,
        any: K::Ref<'k>,
        pins: &'k Pins<K, V>,
    ) -> Items<'k, K> {
        let medium = self.medium();
        let old = self.slots_of(leaf.block());
        let mut items = Items { slots: 0, values: [EMPTY; SLOTS_MAX], keys: [any; SLOTS_MAX] };
        let mut count = 0;
        for slot in bits(seen) {
            items.values[slot] = self.resolve(old[slot].value.load(medium));
            if items.values[slot] != EMPTY {
                items.slots |= 1 << slot;
                items.keys[count] = K::read(&self.keys, old[slot].key.load(medium), &pins.key);
                count += 1;
            }
        }
        items
    }

    /// Copies each item to its own slot of its half. Returns the slots of the right half's items, and of those that are
    /// not in their home line.
    fn copy_in_place<'k>(
        &self,
        leaf: &Leaf,
        items: &Items<'k, K>,
        copy: &mut LeafCopy<K::Ref<'k>>,
    ) -> (u64, u64) {
        let medium = self.medium();
        let old = self.slots_of(leaf.block());
        let new = self.slots_of_halves(copy);
        let firsts = copy.halves.map(|half| self.shape.cell(half.block, 0));
        let (mut rights, mut strays) = (0_u64, 0_u64);
        for (slot, &key) in bits(items.slots).zip(&items.keys) {
            let right = copy.is_right(key);
            rights |= u64::from(right) << slot;
            strays |= u64::from(self.shape.home(K::hash(key)) != self.shape.line(slot)) << slot;
            let half = usize::from(right);
            copy.cells[slot] = firsts[half] + (slot * SLOT_BYTES) as u64;
            let target = &new[half][slot];
            target.key.store(medium, old[slot].key.load(medium));
            target.value.store(medium, items.values[slot]);
        }
        (rights, strays)
    }

    /// Copies the items that are not in their home line once more, there if it has room.
    fn copy_strays(
        &self,
        leaf: &Leaf,
        (rights, strays): (u64, u64),
        copy: &mut LeafCopy<K::Ref<'_>>,
        pins: &Pins<K, V>,
    ) {
        let medium = self.medium();
        let old = self.slots_of(leaf.block());
        let new = self.slots_of_halves(copy);
        for slot in bits(strays) {
            let half = (rights >> slot & 1) as usize;
            let word = old[slot].key.load(medium);
            let tag = Tag::of::<K>(K::read(&self.keys, word, &pins.key));
            let at = copy.halves[half].place(self.shape, tag);
            copy.cells[slot] = self.shape.cell(copy.halves[half].block, at);
            new[half][at].key.store(medium, word);
            new[half][at].value.store(medium, copy.values[slot]);
        }
    }

    /// Returns the slots of both halves. Without a right one, nothing goes there.
    fn slots_of_halves<R>(&self, copy: &LeafCopy<R>) -> [&[Slot]; 2] {
        [0, usize::from(copy.halves[1].block != 0)].map(|half| self.slots_of(copy.halves[half].block))
    }

    /// Returns where the right half begins: at the median, or, if all keys lie below the `new` one, there.
    fn middle<'k>(keys: &mut [K::Ref<'k>], new: K::Ref<'k>) -> K::Ref<'k> {
        let ascending = keys.iter().max().is_some_and(|greatest| *greatest < new);
        let last = if ascending { keys.len() } else { keys.len().div_ceil(2) } - 1;
        let (_, left, above) = keys.select_nth_unstable(last);
        let first = above.iter().min().unwrap_or(&new);
        debug_assert!(*left < *first, "keys of a leaf differ");
        K::separator(*left, *first)
    }

    /// Writes what a copy's block has beside the items.
    fn write_header(&self, half: &Half, origin: u64, birth: u64) -> Flushed {
        let medium = self.medium();
        self.clear_slots(half.block, !half.taken);
        let header: &Header = self.pool.at(half.block);
        header.birth.store(medium, birth);
        // An older state with the new stamp is still the older state; the new state with an older
        // stamp would not be the new one: relies on line order.
        let ordered = medium.ordered_within_line();
        let state = State::Live { origin }.encode();
        header.state.publish(medium, state, &ordered, "nbtree copy.2");
        medium.flush(self.words_of(half.block), "nbtree copy.2")
    }

    /// Empties some slots of a block.
    pub(super) fn clear_slots(&self, block: u64, slots: u64) {
        let cells = self.slots_of(block);
        for at in bits(slots & self.shape.all()) {
            cells[at].value.store(self.medium(), EMPTY);
        }
    }
}
