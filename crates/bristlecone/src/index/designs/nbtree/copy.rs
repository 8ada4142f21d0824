//! Copy: what a leaf holds goes into fresh blocks. Step numbers are those of the protocol in `mod.rs`.

use std::mem::MaybeUninit;

use bristlecone_pm::{Flushed, Medium, Persist, Step, read_words, write_words};

use super::NbTree;
use super::layout::{EMPTY, Header, SLOTS_MAX, Shape, State, Stored};
use super::leaf::Leaf;
use super::lookup::Pins;
use super::meta::{Tag, Tags};
use crate::index::parts::codec::{Codec, KeyCodec};
use crate::index::parts::slot::{SLOT_BYTES, bits};

/// One new leaf in the making, which no other thread writes to.
#[derive(Clone, Copy)]
pub(super) struct Half {
    pub block: u64,
    pub tags: Tags,
    /// Slots that keys were given; those that lost their item meanwhile stay empty.
    pub taken: u64,
    /// Slots with items.
    pub items: u64,
}

/// What one thread would put in a leaf's place.
pub(super) struct LeafCopy<R> {
    pub halves: [Half; 2],
    /// Where the right half begins, if there is one.
    pub separator: Option<R>,
    /// What the items of the old leaf's slots went there with.
    pub items: Items,
    /// The cells where their values stand; zero where nothing of a slot was copied.
    pub cells: [u64; SLOTS_MAX],
    pub flushed: Flushed,
}

/// What a leaf held when it was looked at: the words of its slots, keys and values by turns.
pub(super) struct Items {
    words: Image,
    /// Slots with items. The values of all others are EMPTY.
    slots: u64,
}

/// The words of a block's slots.
pub(super) type Image = [u64; 2 * SLOTS_MAX];

impl Items {
    #[inline(always)]
    pub fn key(&self, slot: usize) -> u64 {
        self.words[2 * slot]
    }

    #[inline(always)]
    pub fn value(&self, slot: usize) -> u64 {
        self.words[2 * slot + 1]
    }

    #[inline(always)]
    pub fn set_value(&mut self, slot: usize, value: u64) {
        self.words[2 * slot + 1] = value;
    }
}

impl Half {
    pub fn new(block: u64) -> Self {
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
        let items = self.read_items(leaf, seen);
        let (halves, cells) = (blocks.map(Half::new), [0; SLOTS_MAX]);
        let mut copy = LeafCopy { halves, separator: None, items, cells, flushed: Flushed::none() };
        if blocks[1] != 0 {
            copy.separator = self.middle(&copy.items, key, pins);
            if copy.separator.is_none() {
                self.blocks.free(blocks[1]);
                copy.halves[1].block = 0;
            }
        }
        let (rights, strays) = self.divide(&mut copy, pins);
        // What is at home stays in its slot. The others may find room there now.
        let tags = self.tags(leaf);
        let birth = self.stamp();
        for (at, going) in [!rights, rights].into_iter().enumerate() {
            if copy.halves[at].block == 0 {
                continue;
            }
            let mut image = copy.items.words;
            for slot in bits(copy.items.slots & !(going & !strays)) {
                image[2 * slot + 1] = EMPTY;
            }
            let half = &mut copy.halves[at];
            half.taken = copy.items.slots & going & !strays;
            half.tags = tags.of_slots(half.taken);
            for slot in bits(going & strays) {
                let tag = Tag::of::<K>(K::read(&self.keys, copy.items.key(slot), &pins.key));
                let place = half.place(self.shape, tag);
                copy.cells[slot] = self.shape.cell(half.block, place);
                image[2 * place..2 * place + 2].copy_from_slice(&copy.items.words[2 * slot..2 * slot + 2]);
            }
            half.items = half.taken;
            let flushed = self.write_block(half.block, &image, leaf.block(), birth, "nbtree copy.2");
            copy.flushed = std::mem::replace(&mut copy.flushed, Flushed::none()).and(flushed);
        }
        copy
    }

    /// Reads what a leaf holds.
    fn read_items(&self, leaf: &Leaf, seen: u64) -> Items {
        let mut words = [const { MaybeUninit::new(EMPTY) }; 2 * SLOTS_MAX];
        let count = 2 * self.shape.slots;
        let cells = self.pool.words(self.shape.first(leaf.block()), count);
        read_words(self.medium(), cells, &mut words[..count]);
        // SAFETY: every one of them was written.
        let words = words.map(|word| unsafe { word.assume_init() });
        let (mut full, mut sealed) = (0_u64, 0_u64);
        for slot in 0..SLOTS_MAX {
            full |= u64::from(words[2 * slot + 1] != EMPTY) << slot;
            sealed |= u64::from(Stored::is_sealed(words[2 * slot + 1])) << slot;
        }
        let mut items = Items { words, slots: full & seen };
        for slot in bits(full & !seen) {
            items.set_value(slot, EMPTY);
        }
        for slot in bits(sealed & seen) {
            let value = self.resolve(items.value(slot));
            items.set_value(slot, value);
            items.slots &= !(u64::from(value == EMPTY) << slot);
        }
        items
    }

    /// Tells which slots' items go to the right half, and which of all are not in their home line; notes the cells of
    /// those that are.
    #[inline(always)]
    fn divide(&self, copy: &mut LeafCopy<K::Ref<'_>>, pins: &Pins<K, V>) -> (u64, u64) {
        let firsts = copy.halves.map(|half| self.shape.cell(half.block, 0));
        let (mut rights, mut strays) = (0_u64, 0_u64);
        for slot in bits(copy.items.slots) {
            let key = K::read(&self.keys, copy.items.key(slot), &pins.key);
            let right = copy.separator.is_some_and(|separator| K::shorten(separator) <= key);
            rights |= u64::from(right) << slot;
            strays |= u64::from(self.shape.home(K::hash(key)) != self.shape.line(slot)) << slot;
            copy.cells[slot] = firsts[usize::from(right)] + (slot * SLOT_BYTES) as u64;
        }
        (rights, strays)
    }

    /// Returns where the right half begins: at the median, or, if all keys lie below the `new` one, there. `None`: there
    /// is one item at most.
    fn middle<'k>(&'k self, items: &Items, new: K::Ref<'k>, pins: &'k Pins<K, V>) -> Option<K::Ref<'k>> {
        let mut keys = [new; SLOTS_MAX];
        let (mut count, mut ascending) = (0, true);
        for slot in bits(items.slots) {
            keys[count] = K::read(&self.keys, items.key(slot), &pins.key);
            ascending &= keys[count] < new;
            count += 1;
        }
        if count < 2 {
            return None;
        }
        let keys = &mut keys[..count];
        let last = if ascending { count } else { count.div_ceil(2) } - 1;
        let (_, left, above) = keys.select_nth_unstable(last);
        let first = above.iter().min().unwrap_or(&new);
        debug_assert!(*left < *first, "keys of a leaf differ");
        Some(K::separator(*left, *first))
    }

    /// Writes a block, which takes the place of the one at `origin`, if there is one.
    pub(super) fn write_block(
        &self,
        block: u64,
        image: &Image,
        origin: u64,
        birth: u64,
        step: Step,
    ) -> Flushed {
        let medium = self.medium();
        let count = 2 * self.shape.slots;
        write_words(medium, self.pool.words(self.shape.first(block), count), &image[..count]);
        let header: &Header = self.pool.at(block);
        header.birth.store(medium, birth);
        // An older state with the new stamp is still the older state; the new state with an older
        // stamp would not be the new one: relies on line order.
        let ordered = medium.ordered_within_line();
        let state = State::Live { origin }.encode();
        header.state.publish(medium, state, &ordered, step);
        medium.flush(self.words_of(block), step)
    }

    /// Empties some slots of a block.
    pub(super) fn clear_slots(&self, block: u64, slots: u64) {
        let cells = self.slots_of(block);
        for at in bits(slots & self.shape.all()) {
            cells[at].value.store(self.medium(), EMPTY);
        }
    }
}
