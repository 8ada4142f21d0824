//! What a LodgeTree leaf is on the medium: 512 B with 27 slots, or fewer.
//!
//! ```text
//!   0  word          bits 0-31: which slots are taken; bit 63: which of the siblings counts
//!   8  siblings      two offsets of the next leaf, or 0
//!  24  stamp         log entries up to this sequence have reached the leaf
//!  32  fingerprints  one byte per slot, 5 B spare
//!  64  fence         key word of the leaf's low fence; 8 B spare
//!  80  slots         key word, value word; the first three share the fence's line
//! ```
//!
//! The fence is written when the leaf is, and never changes: so recovery finds every leaf's range
//! as it was, and knows which leaf a log entry was meant for. A fence out of line is a record of
//! the leaf's own. The first leaf begins at minus infinity; its fence is not looked at.

use crate::shared::slot::SLOT_BYTES;
use bristlecone_pm::{Group, LINE_BYTES, Persistent, Word};

/// Most slots that a leaf can have.
pub const SLOTS_MAX: usize = 27;
/// Words of fingerprints.
pub const TAG_WORDS: usize = 4;

/// A leaf up to its slots.
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
    // What commits lies in one line, and a slot never straddles two.
    assert!(std::mem::offset_of!(Header, fence) == LINE_BYTES);
    assert!(HEADER_BYTES.is_multiple_of(SLOT_BYTES));
    assert!(leaf_bytes(SLOTS_MAX) == 512);
};

/// Bytes of a leaf with so many slots: whole lines.
pub const fn leaf_bytes(slots: usize) -> usize {
    (HEADER_BYTES + slots * SLOT_BYTES).next_multiple_of(LINE_BYTES)
}

/// What the word of a leaf says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafWord {
    /// Which slots are taken.
    pub bitmap: u32,
    /// Which of the siblings counts.
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

    /// The same slots, and the other sibling.
    pub fn switched(self) -> Self {
        Self { selector: 1 - self.selector, ..self }
    }
}

/// Offset of slot `slot` of the leaf at `leaf`.
#[inline(always)]
pub fn slot_offset(leaf: u64, slot: usize) -> u64 {
    leaf + (HEADER_BYTES + slot * SLOT_BYTES) as u64
}

/// The line of a leaf that slot `slot` stands in.
#[inline(always)]
pub fn line_of(slot: usize) -> usize {
    (HEADER_BYTES + slot * SLOT_BYTES) / LINE_BYTES
}

/// The slots of the line that an item goes to if there is room: where it is looked for first.
#[inline(always)]
pub fn home(tag: u8, slots: usize) -> u32 {
    let lines = line_of(slots - 1);
    let line = 1 + ((usize::from(tag) * lines) >> 8);
    // Three slots share the fence's line, later ones are four to a line.
    let mask = if line == 1 { 0b111 } else { 0b1111 << (4 * line - 5) };
    mask & ((1 << slots) - 1)
}

/// What is known about a leaf's slots without looking at the leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// Which are taken.
    pub bitmap: u32,
    /// Homes some of whose items stand elsewhere, at least: several homes share a bit.
    pub strays: u32,
}

impl Slots {
    /// Bits that homes share.
    const HOMES: usize = 32 - SLOTS_MAX;

    /// An item goes into slot `slot` of a leaf of `slots`.
    pub fn take(&mut self, slot: usize, tag: u8, slots: usize) {
        self.bitmap |= 1 << slot;
        if home(tag, slots) >> slot & 1 == 0 {
            self.strays |= Self::bit(tag, slots);
        }
    }

    /// Whether an item may stand elsewhere than at home.
    #[inline(always)]
    pub fn may_stray(self, tag: u8, slots: usize) -> bool {
        self.strays & Self::bit(tag, slots) != 0
    }

    /// The same slots but for `gone`.
    pub fn without(self, gone: u32) -> Self {
        Self { bitmap: self.bitmap & !gone, ..self }
    }

    #[inline(always)]
    fn bit(tag: u8, slots: usize) -> u32 {
        1 << (line_of(home(tag, slots).trailing_zeros() as usize) % Self::HOMES)
    }

    pub fn pack(self) -> u32 {
        self.bitmap | self.strays << SLOTS_MAX
    }

    #[inline(always)]
    pub fn unpack(word: u32) -> Self {
        Self { bitmap: word & ((1 << SLOTS_MAX) - 1), strays: word >> SLOTS_MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::slot::bits;

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
        assert!(!slots.may_stray(tag, SLOTS_MAX));
        slots.take(0, tag, SLOTS_MAX);
        assert!(slots.may_stray(tag, SLOTS_MAX) && !slots.may_stray(0, SLOTS_MAX));
        assert_eq!(Slots::unpack(slots.pack()), slots);
        assert_eq!(slots.without(1).bitmap, 1 << at_home);
    }

    #[test]
    fn every_slot_is_somebodys_home() {
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
    fn the_layout_is_golden() {
        assert_eq!((leaf_bytes(3), leaf_bytes(4), leaf_bytes(7), leaf_bytes(27)), (128, 192, 192, 512));
        assert_eq!((slot_offset(512, 0), slot_offset(512, 26)), (592, 1008));
        assert_eq!((line_of(2), line_of(3), line_of(26)), (1, 2, 7));
    }
}
