//! Copy: the contents of a leaf are written to fresh blocks. Step numbers are those of the protocol in `mod.rs`.

use std::mem::MaybeUninit;

use bristlecone_pm::{Flushed, Medium, Persist, Step, read_words, write_words};

use super::NbTree;
use super::layout::{EMPTY, Header, SLOTS_MAX, Shape, State, Stored};
use super::leaf::Leaf;
use super::lookup::Pins;
use super::meta::{Tag, Tags};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::slot::bits;
use crate::index::parts::split::Cut;
use crate::index::parts::words::sort_by_key;

/// A new leaf under construction, written by one thread only.
#[derive(Clone, Copy)]
pub(super) struct Half {
    pub block: u64,
    pub tags: Tags,
    /// Slots assigned to keys; those that have since lost their item stay empty.
    pub taken: u64,
    /// Slots with items.
    pub items: u64,
}

/// One thread's proposed replacement of a leaf.
pub(super) struct LeafCopy<R> {
    pub halves: [Half; 2],
    /// The low fence of the right half, if there is one.
    pub separator: Option<R>,
    /// The copied items, by slot of the old leaf.
    pub items: Items,
    /// The slots of the old leaf whose keys were assigned slots, and the subset of them that is in the right half.
    copied: u64,
    rights: u64,
    /// The assigned slots.
    places: [u8; PLACES],
    pub flushed: Flushed,
}

/// The contents of a leaf when it was read: the words of its slots, keys and values alternating.
pub(super) struct Items {
    words: Image,
    /// Slots with items. The values of all other slots are EMPTY.
    slots: u64,
}

/// One more than the maximum number of slots: a six-bit index is always in range, so no bounds check is needed.
const PLACES: usize = SLOTS_MAX + 1;
/// The identity mapping of slots.
const OWN_PLACES: [u8; PLACES] = {
    let mut places = [0; PLACES];
    let mut at = 0;
    while at < PLACES {
        places[at] = at as u8;
        at += 1;
    }
    places
};

/// The words of a block's slots.
pub(super) type Image = [u64; 2 * PLACES];
pub(super) const NO_ITEMS: Image = [EMPTY; 2 * PLACES];

impl Items {
    #[inline(always)]
    pub fn key(&self, slot: usize) -> u64 {
        self.words[2 * (slot % PLACES)]
    }

    #[inline(always)]
    pub fn value(&self, slot: usize) -> u64 {
        self.words[2 * (slot % PLACES) + 1]
    }

    #[inline(always)]
    pub fn set_value(&mut self, slot: usize, value: u64) {
        self.words[2 * (slot % PLACES) + 1] = value;
    }
}

impl<R> LeafCopy<R> {
    /// Returns the half and the slot that the item of a slot was copied to, or `None` if it was not copied.
    #[inline(always)]
    pub fn place(&self, slot: usize) -> Option<(usize, usize)> {
        let half = (self.rights >> slot & 1) as usize;
        (self.copied >> slot & 1 == 1).then(|| (half, usize::from(self.places[slot % PLACES])))
    }

    /// Assigns a slot in a half to the key of a slot.
    pub fn give(&mut self, slot: usize, half: usize, shape: Shape, tag: Tag) -> usize {
        let place = self.halves[half].place(shape, tag);
        self.places[slot % PLACES] = place as u8;
        self.copied |= 1 << slot;
        self.rights = self.rights & !(1 << slot) | (half as u64) << slot;
        place
    }
}

impl Half {
    pub fn new(block: u64) -> Self {
        Self { block, tags: Tags::default(), taken: 0, items: 0 }
    }

    /// Assigns a slot to a key.
    #[inline(always)]
    pub fn place(&mut self, shape: Shape, tag: Tag) -> usize {
        let slot = shape.pick(!self.taken & shape.all(), tag.hash);
        self.taken |= 1 << slot;
        self.tags.set(slot, tag);
        slot
    }
}

impl<K: KeyCodec, M: Medium> NbTree<K, M> {
    /// Copy 2: writes the contents of the leaf to fresh blocks. Values may change concurrently.
    pub(super) fn copy<'k>(
        &'k self,
        leaf: &Leaf,
        seen: u64,
        blocks: [u64; 2],
        key: K::Ref<'k>,
        pins: &'k Pins<K>,
    ) -> LeafCopy<K::Ref<'k>> {
        let items = Items { words: NO_ITEMS, slots: 0 };
        let (halves, places) = (blocks.map(Half::new), OWN_PLACES);
        let flushed = Flushed::none();
        let mut copy = LeafCopy { halves, separator: None, items, copied: 0, rights: 0, places, flushed };
        self.read_items(&mut copy.items, leaf, seen);
        if blocks[1] != 0 {
            let middle = self.middle(&copy.items, key, pins);
            copy.separator = middle.map(|(separator, _)| separator);
            copy.rights = middle.map_or(0, |(_, rights)| rights);
            if copy.separator.is_none() {
                self.blocks.free(blocks[1]);
                copy.halves[1].block = 0;
            }
        }
        let (rights, strays) = (copy.rights, self.strays(&copy.items, pins));
        copy.copied = copy.items.slots;
        // Items in their home line keep their slot. The others may find space in theirs now.
        let tags = self.tags(leaf);
        let birth = self.stamp();
        for (at, going) in [!rights, rights].into_iter().enumerate() {
            if copy.halves[at].block == 0 {
                continue;
            }
            let mut image = copy.items.words;
            let stay = copy.items.slots & going & !strays;
            for slot in bits(copy.items.slots & !stay) {
                image[2 * (slot % PLACES) + 1] = EMPTY;
            }
            let half = &mut copy.halves[at];
            half.taken = stay;
            half.tags = tags.of_slots(stay);
            for slot in bits(going & strays) {
                let (word, value) = (copy.items.key(slot), copy.items.value(slot));
                let tag = Tag::of::<K>(self.keys.read(word, &pins.key));
                let place = copy.give(slot, at, self.shape, tag) % PLACES;
                (image[2 * place], image[2 * place + 1]) = (word, value);
            }
            let half = &mut copy.halves[at];
            half.items = half.taken;
            let flushed = self.write_block(half.block, &image, leaf.block(), birth, "nbtree copy.2");
            copy.flushed = std::mem::replace(&mut copy.flushed, Flushed::none()).and(flushed);
        }
        copy
    }

    /// Reads the contents of a leaf.
    #[inline(always)]
    fn read_items(&self, items: &mut Items, leaf: &Leaf, seen: u64) {
        let count = 2 * self.shape.slots;
        let cells = self.pool.words(self.shape.first(leaf.block()), count);
        let words = &mut items.words[..count];
        // SAFETY: the same words, to which others are written.
        let to =
            unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<MaybeUninit<u64>>(), count) };
        read_words(self.medium(), cells, to);
        // Usually, a word that is not a plain value is EMPTY. Such words are few if values are words.
        let mut others = 0_u64;
        for slot in (0..PLACES).rev() {
            others = others << 1 | u64::from(!Stored::is_plain(items.words[2 * slot + 1]));
        }
        items.slots = seen & self.shape.all();
        for slot in bits(others & items.slots) {
            let value = self.resolve(items.value(slot));
            items.set_value(slot, value);
            items.slots &= !(u64::from(value == EMPTY) << slot);
        }
        for slot in bits(self.shape.all() & !seen) {
            items.set_value(slot, EMPTY);
        }
    }

    /// Returns the slots with items that are not in their home line.
    #[inline(always)]
    fn strays(&self, items: &Items, pins: &Pins<K>) -> u64 {
        let key = |slot| self.keys.read(items.key(slot), &pins.key);
        let is_stray = |slot| u64::from(self.shape.home(K::hash(key(slot))) != self.shape.line(slot));
        if K::INLINE {
            // Includes slots without an item, because excluding them takes more instructions.
            let strays = (0..PLACES).rev().fold(0, |strays, slot| strays << 1 | is_stray(slot));
            return strays & items.slots;
        }
        bits(items.slots).fold(0, |strays, slot| strays | is_stray(slot) << slot)
    }

    /// Returns the low fence of the right half, as [`Cut`] says, and the slots whose items go there. Returns `None` if
    /// there is at most one item.
    fn middle<'k>(&'k self, items: &Items, new: K::Ref<'k>, pins: &'k Pins<K>) -> Option<(K::Ref<'k>, u64)> {
        let key = |slot| self.keys.read(items.key(slot), &pins.key);
        let count = items.slots.count_ones() as usize;
        if count < 2 {
            return None;
        }
        if K::INLINE {
            // Selecting the middle takes fewer instructions than sorting words.
            let mut keys = [new; PLACES];
            keys.iter_mut().zip(bits(items.slots)).for_each(|(to, slot)| *to = key(slot));
            let keys = &mut keys[..count];
            let below = keys.iter().filter(|key| **key < new).count();
            let around = || {
                let before = keys.iter().filter(|key| **key < new).max().expect("keys below");
                let behind = keys.iter().filter(|key| **key >= new).min().expect("keys above");
                (*before, *behind)
            };
            let cut = Cut::new::<K>(count, below, new, around, |at| keys[at]);
            let (_, left, above) = keys.select_nth_unstable(cut.kept - 1);
            let first = above.iter().min().unwrap_or(&new);
            debug_assert!(*left < *first, "keys of a leaf differ");
            let separator = cut.separator::<K>(*left, new, *first);
            // Includes slots without an item, because excluding them takes more instructions.
            let is_right = |slot| u64::from(separator <= key(slot));
            let rights = (0..PLACES).rev().fold(0, |rights, slot| rights << 1 | is_right(slot));
            return Some((separator, rights & items.slots));
        }
        let mut keys = [(new, 0); PLACES];
        keys.iter_mut().zip(bits(items.slots)).for_each(|(to, slot)| *to = (key(slot), slot));
        let keys = &mut keys[..count];
        sort_by_key::<K, _>(self.level, keys, |(key, _)| *key);
        let below = keys.partition_point(|(key, _)| *key < new);
        let key_of = |at: usize| keys[at].0;
        let cut = Cut::new::<K>(count, below, new, || (key_of(below - 1), key_of(below)), key_of);
        let (left, first) = (keys[cut.kept - 1].0, keys.get(cut.kept).map_or(new, |(key, _)| *key));
        debug_assert!(
            left < first
                || bits(items.slots).any(|slot| self.keys.verify_held(items.key(slot), &pins.key).is_err()),
            "keys of a leaf differ"
        );
        let separator = cut.separator::<K>(left, new, first);
        // Damaged keys may be equal, and none of them is below the separator then.
        let kept = keys.partition_point(|(key, _)| *key < separator);
        Some((separator, keys[kept..].iter().fold(0, |rights, (_, slot)| rights | 1 << slot)))
    }

    /// Writes a block that replaces the one at `origin`, if there is one.
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
        // If the medium persists the new stamp but the old state, the block still has its old state. The new state
        // with an old stamp would be invalid: relies on line order.
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
