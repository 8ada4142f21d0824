//! Layout of a LodgeTree leaf on the medium: 512 B with 27 slots, or fewer.
//!
//! ```text
//!   0  word          bits 0-31: the taken slots; bit 63: the valid sibling
//!   8  siblings      two offsets of the next leaf, or 0
//!  24  stamp         log entries up to this sequence are merged into the leaf
//!  32  fingerprints  one byte per slot, 5 B spare
//!  64  fence         key word of the leaf's low fence; 8 B spare
//!  80  slots         key word, value word; the first three share the fence's line
//! ```
//!
//! The fence is written when the leaf is created, and never changes. Recovery therefore finds every
//! leaf's original range, and the leaf that a log entry belongs to. An out-of-line fence is a record
//! owned by the leaf. The first leaf begins at minus infinity; its fence is ignored.

use bristlecone_pm::{Group, LINE_BYTES, Medium, Persistent, SlotKind, Step, Word};

use crate::index::parts::buffered::{LeafLayout, Link};
use crate::index::parts::slot::SLOT_BYTES;

/// The slots of leaves.
pub const LEAVES: SlotKind = SlotKind::new(10);
/// Maximum number of slots of a leaf.
pub const SLOTS_MAX: usize = 27;
/// Number of words of fingerprints.
pub const TAG_WORDS: usize = 4;
/// Number of items outside their home line that a node remembers for each leaf.
const STRAYS: usize = 4;

/// The header of a leaf, before its slots.
#[repr(C)]
pub struct Header {
    pub word: Word,
    pub siblings: [Word; 2],
    pub stamp: Word,
    pub fingerprints: Group<TAG_WORDS>,
    pub fence: Word,
    pub spare: Word,
}

// SAFETY: repr(C), words only, no padding (sizes asserted below).
unsafe impl Persistent for Header {}
pub const HEADER_BYTES: usize = 80;

const _: () = {
    assert!(size_of::<Header>() == HEADER_BYTES);
    assert!(std::mem::offset_of!(Header, siblings) == 8);
    assert!(std::mem::offset_of!(Header, stamp) == 24);
    assert!(std::mem::offset_of!(Header, fingerprints) == 32);
    assert!(std::mem::offset_of!(Header, fence) == 64);
    // The words that commit lie in one line, and a slot never straddles two.
    assert!(std::mem::offset_of!(Header, fence) == LINE_BYTES);
    assert!(HEADER_BYTES.is_multiple_of(SLOT_BYTES));
    assert!(leaf_bytes(SLOTS_MAX) == 512);
};

impl LeafLayout for Header {
    const KIND: SlotKind = LEAVES;
    const RECORD_STEPS: [Step; 2] = ["lodgetree write.1 key", "lodgetree write.1 value"];
    type Tags = [u64; TAG_WORDS];

    #[inline(always)]
    fn bytes(slots: usize) -> usize {
        leaf_bytes(slots)
    }

    #[inline(always)]
    fn slot_offset(leaf: u64, slot: usize) -> u64 {
        leaf + (HEADER_BYTES + slot * SLOT_BYTES) as u64
    }

    fn link<M: Medium>(&self, medium: &M) -> Link {
        let LeafWord { bitmap, selector } = LeafWord::unpack(self.word.load(medium));
        Link { bitmap: bitmap.into(), next: self.siblings[selector].load(medium) }
    }

    fn stamp(&self) -> &Word {
        &self.stamp
    }

    fn fence(&self) -> &Word {
        &self.fence
    }

    fn tags<M: Medium>(&self, medium: &M) -> [u64; TAG_WORDS] {
        self.fingerprints.load(medium)
    }

    fn derive_tags<M: Medium>(&self, medium: &M, tags: [u64; TAG_WORDS]) {
        self.fingerprints.store_derived(medium, tags);
    }
}

/// Returns the size of a leaf with this number of slots, in whole lines.
pub const fn leaf_bytes(slots: usize) -> usize {
    (HEADER_BYTES + slots * SLOT_BYTES).next_multiple_of(LINE_BYTES)
}

/// The decoded word of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafWord {
    /// The taken slots.
    pub bitmap: u32,
    /// The valid one of the two sibling pointers.
    pub selector: usize,
}

impl LeafWord {
    #[inline(always)]
    pub fn unpack(word: u64) -> Self {
        Self { bitmap: word as u32, selector: (word >> 63) as usize }
    }

    #[inline(always)]
    pub fn pack(self) -> u64 {
        u64::from(self.bitmap) | (self.selector as u64) << 63
    }

    /// Returns the same slots with the other sibling pointer.
    pub fn switched(self) -> Self {
        Self { selector: 1 - self.selector, ..self }
    }
}

/// Returns the offset of a slot of the leaf at `leaf`.
#[inline(always)]
pub fn slot_offset(leaf: u64, slot: usize) -> u64 {
    Header::slot_offset(leaf, slot)
}

/// Returns the line of a leaf that contains slot `slot`.
#[inline(always)]
pub const fn line_of(slot: usize) -> usize {
    (HEADER_BYTES + slot * SLOT_BYTES) / LINE_BYTES
}

/// Returns the slots of an item's home line. The number of fingerprints with a home line is proportional
/// to its slots.
#[inline(always)]
pub fn home(tag: u8, slots: usize) -> u32 {
    slots_of_line(line_of((usize::from(tag) * slots) >> 8)) & ((1 << slots) - 1)
}

/// Returns the slots of a line of a leaf with the maximum number of slots.
#[inline(always)]
pub fn slots_of_line(line: usize) -> u32 {
    // Three slots share the fence's line, later ones are four to a line.
    ((0b1111_u64 << (4 * line)) >> 5) as u32
}

/// Returns the line that contains most of the given slots.
#[inline(always)]
pub fn roomiest(slots: u32) -> usize {
    // The number of slots in each line: the slots of a line become four bits of their own.
    let by_line = slots << 5;
    let pairs = by_line - (by_line >> 1 & 0x5555_5555);
    let room = (pairs & 0x3333_3333) + (pairs >> 2 & 0x3333_3333);
    let (four, three, two) = (room & 0x4444_4444, room & room >> 1 & 0x1111_1111, room & 0x2222_2222);
    let most = [four, three, two].into_iter().find(|most| *most != 0).unwrap_or(room);
    most.trailing_zeros() as usize / 4
}

/// Information about a leaf's slots that needs no access to the leaf. Strays are items outside their home
/// line; a few are remembered with their slots, which are taken. An item in its home line is not a stray.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// The taken slots.
    pub bitmap: u32,
    /// Home lines of strays that are not remembered, one bit per line; these strays may have been
    /// removed.
    pub forgotten: u32,
    /// Fingerprints of strays, one byte each.
    pub stray_tags: u32,
    /// Their slots, five bits each.
    pub stray_slots: u32,
}

impl Slots {
    /// Number of possible home lines of a leaf.
    const HOMES: usize = line_of(SLOTS_MAX - 1);
    /// Number of bits of a stray's slot.
    const STRAY_BITS: usize = 5;
    const STRAY_MASK: u32 = (1 << Self::STRAY_BITS) - 1;
    /// Number of bits of all fields except the fingerprints.
    pub const BITS: usize = SLOTS_MAX + Self::HOMES + STRAYS * Self::STRAY_BITS;

    /// Adds an item in the free slot `slot` of a leaf with `slots` slots.
    #[inline(always)]
    pub fn take(&mut self, slot: usize, tag: u8, slots: usize) {
        self.bitmap |= 1 << slot;
        if home(tag, slots) >> slot & 1 == 0 {
            self.take_away(slot, tag, slots);
        }
    }

    fn take_away(&mut self, slot: usize, tag: u8, slots: usize) {
        match (0..STRAYS).find(|at| !self.is_stray(*at, slots)) {
            Some(at) => self.remember(at, tag, slot),
            None => self.forgotten |= Self::bit(tag, slots),
        }
    }

    /// Returns the slots of remembered strays with this fingerprint.
    #[inline(always)]
    pub fn strays(self, tag: u8) -> u32 {
        // A zero byte borrows from those above it, and only then.
        let differ = self.stray_tags ^ (u32::from(tag) * 0x0101_0101);
        if differ.wrapping_sub(0x0101_0101) & !differ & 0x8080_8080 == 0 {
            return 0;
        }
        let bit = |(other, slot): (u8, usize)| u32::from(other == tag) << slot;
        (0..STRAYS).fold(0, |slots, at| slots | bit(self.stray(at))) & self.bitmap
    }

    /// Returns whether an item may be outside its home line without being remembered.
    #[inline(always)]
    pub fn may_be_forgotten(self, tag: u8, slots: usize) -> bool {
        self.forgotten & Self::bit(tag, slots) != 0
    }

    /// Returns a slot of the line where an item is searched first.
    #[inline(always)]
    pub fn first(self, tag: u8, slots: usize) -> usize {
        let strays = self.strays(tag);
        (if strays == 0 { home(tag, slots) } else { strays }).trailing_zeros() as usize
    }

    /// Returns whether an item in this slot is found by its fingerprint.
    pub fn lead_to(self, slot: usize, tag: u8, slots: usize) -> bool {
        (home(tag, slots) | self.strays(tag)) >> slot & 1 != 0 || self.may_be_forgotten(tag, slots)
    }

    /// Returns the same slots without `gone`.
    #[inline(always)]
    pub fn without(mut self, gone: u32) -> Self {
        self.bitmap &= !gone;
        if gone != 0 {
            // The next item of the slot is not the stray.
            for at in 0..STRAYS {
                if gone >> self.stray(at).1 & 1 != 0 {
                    self.remember(at, 0, 0);
                }
            }
        }
        self
    }

    /// Returns fingerprint and slot of a stray.
    #[inline(always)]
    fn stray(self, at: usize) -> (u8, usize) {
        let slot = self.stray_slots >> (Self::STRAY_BITS * at) & Self::STRAY_MASK;
        ((self.stray_tags >> (8 * at)) as u8, slot as usize)
    }

    fn is_stray(self, at: usize, slots: usize) -> bool {
        let (tag, slot) = self.stray(at);
        home(tag, slots) >> slot & 1 == 0
    }

    fn remember(&mut self, at: usize, tag: u8, slot: usize) {
        let (low, low_slot) = (8 * at, Self::STRAY_BITS * at);
        self.stray_tags = self.stray_tags & !(0xff << low) | u32::from(tag) << low;
        self.stray_slots = self.stray_slots & !(Self::STRAY_MASK << low_slot) | (slot as u32) << low_slot;
    }

    #[inline(always)]
    fn bit(tag: u8, slots: usize) -> u32 {
        1 << (line_of(home(tag, slots).trailing_zeros() as usize) - 1)
    }

    /// Packs all fields except the fingerprints.
    pub fn pack(self) -> u64 {
        let homes = u64::from(self.forgotten) | u64::from(self.stray_slots) << Self::HOMES;
        u64::from(self.bitmap) | homes << SLOTS_MAX
    }

    /// Returns the taken slots, from the lower half of the packed word.
    #[inline(always)]
    pub fn taken_of(word: u32) -> u32 {
        word & ((1 << SLOTS_MAX) - 1)
    }

    #[inline(always)]
    pub fn unpack(word: u64, stray_tags: u32) -> Self {
        let (bitmap, homes) = (Self::taken_of(word as u32), (word >> SLOTS_MAX) as u32);
        let forgotten = homes & ((1 << Self::HOMES) - 1);
        Self { bitmap, forgotten, stray_tags, stray_slots: homes >> Self::HOMES }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::parts::slot::bits;

    #[test]
    fn a_word_holds_slots_and_selector() {
        let word = LeafWord { bitmap: 0x07ff_ffff, selector: 1 };
        assert_eq!(LeafWord::unpack(word.pack()), word);
        assert_eq!(word.switched().pack(), 0x07ff_ffff);
    }

    #[test]
    fn items_away_from_home_are_remembered() {
        let mut slots = Slots::default();
        let tag = 0xff;
        let at_home = home(tag, SLOTS_MAX).trailing_zeros() as usize;
        slots.take(at_home, tag, SLOTS_MAX);
        assert_eq!((slots.strays(tag), slots.first(tag, SLOTS_MAX)), (0, at_home));
        slots.take(7, tag, SLOTS_MAX);
        assert_eq!((slots.strays(tag), slots.first(tag, SLOTS_MAX)), (1 << 7, 7));
        assert!(!slots.may_be_forgotten(tag, SLOTS_MAX));
        assert_eq!(Slots::unpack(slots.pack(), slots.stray_tags), slots);
        // It is removed; then another item is added, which is in its home line there.
        assert_eq!((slots.without(1 << 7).strays(tag), slots.without(1 << 7).bitmap), (0, 1 << at_home));
        slots = slots.without(1 << 7);
        let other = (0..=255).find(|tag| home(*tag, SLOTS_MAX) >> 7 & 1 != 0).unwrap();
        slots.take(7, other, SLOTS_MAX);
        assert_eq!((slots.strays(tag), slots.strays(other)), (0, 0));
    }

    #[test]
    fn strays_beyond_the_remembered_ones_may_be_anywhere() {
        let (tag, mut slots) = (0xff, Slots::default());
        for slot in 0..STRAYS {
            slots.take(slot, tag - slot as u8, SLOTS_MAX);
        }
        assert!((0..STRAYS).all(|slot| slots.strays(tag - slot as u8) == 1 << slot));
        assert!(!slots.may_be_forgotten(tag, SLOTS_MAX));
        // A removed one frees its place for another one.
        let mut again = slots.without(1 << 2);
        again.take(9, tag, SLOTS_MAX);
        assert_eq!((again.strays(tag), again.strays(tag - 2)), (1 | 1 << 9, 0));
        assert!(!again.may_be_forgotten(tag, SLOTS_MAX));
        slots.take(STRAYS, tag, SLOTS_MAX);
        assert_eq!(slots.strays(tag), 1);
        assert!(slots.lead_to(STRAYS, tag, SLOTS_MAX) && !slots.lead_to(STRAYS, 0, SLOTS_MAX));
        assert!(slots.may_be_forgotten(tag, SLOTS_MAX) && !slots.may_be_forgotten(0, SLOTS_MAX));
        assert_eq!(Slots::unpack(slots.pack(), slots.stray_tags), slots);
    }

    #[test]
    fn every_slot_is_home_to_a_fingerprint() {
        for slots in 1..=SLOTS_MAX {
            let mut all = 0;
            for tag in 0..=255 {
                let home = home(tag, slots);
                let lines: Vec<_> = bits(home).map(line_of).collect();
                assert!(!lines.is_empty() && lines.iter().all(|line| *line == lines[0]), "{slots} {tag}");
                all |= home;
            }
            assert_eq!(all, (1 << slots) - 1, "{slots}");
        }
    }

    #[test]
    fn the_roomiest_line_has_most_slots() {
        for slots in (1_u32..1 << 27).step_by(4099) {
            let room = |line: usize| (slots & slots_of_line(line)).count_ones();
            assert_eq!(room(roomiest(slots)), (1..8).map(room).max().unwrap(), "{slots:b}");
        }
    }

    #[test]
    fn the_format_is_golden() {
        assert_eq!((leaf_bytes(3), leaf_bytes(4), leaf_bytes(7), leaf_bytes(27)), (128, 192, 192, 512));
        assert_eq!((slot_offset(512, 0), slot_offset(512, 1), slot_offset(512, 26)), (592, 608, 1008));
        assert_eq!((line_of(2), line_of(3), line_of(26)), (1, 2, 7));
        let siblings = std::mem::offset_of!(Header, siblings);
        let stamp = std::mem::offset_of!(Header, stamp);
        let fingerprints = std::mem::offset_of!(Header, fingerprints);
        assert_eq!((siblings, stamp, fingerprints, std::mem::offset_of!(Header, fence)), (8, 24, 32, 64));
        assert_eq!((SLOTS_MAX, LEAVES.code()), (27, 10));
        assert_eq!(LeafWord { bitmap: 0x0400_0001, selector: 1 }.pack(), 0x8000_0000_0400_0001);
    }
}
