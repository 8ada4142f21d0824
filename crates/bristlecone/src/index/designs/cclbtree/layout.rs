//! Layout of a CCL-BTree leaf on the medium: one media line of 256 B.
//!
//! ```text
//!   0  word          bits 0-13: the taken slots; bits 16-63: offset of the next leaf, or 0
//!   8  stamp         log entries up to this sequence are merged into the leaf
//!  16  fingerprints  one byte per slot, 2 B spare
//!  32  slots         key word, value word; the first two share the header's line
//! ```
//!
//! The key word of slot 0 is permanently the leaf's low fence, whether the slot is taken or not,
//! except for the first leaf, which begins at minus infinity. Recovery therefore finds every leaf's
//! original range, and the leaf that a log entry belongs to.

use bristlecone_pm::{Group, LINE_BYTES, Medium, Persistent, SlotKind, Step, Word};

use crate::index::parts::buffered::{LeafLayout, Link};
use crate::index::parts::slot::Slot;

/// The slots of leaves.
pub const LEAVES: SlotKind = SlotKind::new(8);
/// Size of a leaf in bytes.
pub const LEAF_BYTES: u64 = 256;
/// Offset of a leaf's slots.
pub const SLOTS_OFFSET: u64 = 32;
/// Maximum number of slots of a leaf.
pub const SLOTS_MAX: usize = 14;

/// The header of a leaf.
#[repr(C)]
pub struct Header {
    pub word: Word,
    pub stamp: Word,
    pub fingerprints: Group<2>,
}

/// A whole leaf.
#[repr(C)]
pub struct Leaf {
    pub header: Header,
    pub slots: [Slot; SLOTS_MAX],
}

// SAFETY: repr(C), words only, no padding (sizes asserted below).
unsafe impl Persistent for Leaf {}

const _: () = {
    assert!(size_of::<Leaf>() == LEAF_BYTES as usize);
    assert!(std::mem::offset_of!(Leaf, header.word) == 0);
    assert!(std::mem::offset_of!(Leaf, header.stamp) == 8);
    assert!(std::mem::offset_of!(Leaf, header.fingerprints) == 16);
    assert!(std::mem::offset_of!(Leaf, slots) == SLOTS_OFFSET as usize);
    assert!(LINE_BYTES.is_multiple_of(size_of::<Slot>()));
};

impl LeafLayout for Leaf {
    const KIND: SlotKind = LEAVES;
    const RECORD_STEPS: [Step; 2] = ["cclbtree write.1 key", "cclbtree write.1 value"];
    type Tags = [u64; 2];

    #[inline(always)]
    fn bytes(_: usize) -> usize {
        LEAF_BYTES as usize
    }

    #[inline(always)]
    fn slot_offset(leaf: u64, slot: usize) -> u64 {
        leaf + SLOTS_OFFSET + (slot * size_of::<Slot>()) as u64
    }

    fn link<M: Medium>(&self, medium: &M) -> Link {
        let LeafWord { bitmap, next } = LeafWord::unpack(self.header.word.load(medium));
        Link { bitmap, next }
    }

    fn stamp(&self) -> &Word {
        &self.header.stamp
    }

    fn fence(&self) -> &Word {
        &self.slots[0].key
    }

    fn tags<M: Medium>(&self, medium: &M) -> [u64; 2] {
        self.header.fingerprints.load(medium)
    }

    fn derive_tags<M: Medium>(&self, medium: &M, tags: [u64; 2]) {
        self.header.fingerprints.store_derived(medium, tags);
    }
}

/// The decoded word of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafWord {
    /// The taken slots.
    pub bitmap: u64,
    /// Offset of the next leaf; 0 for none.
    pub next: u64,
}

impl LeafWord {
    #[inline(always)]
    pub fn unpack(word: u64) -> Self {
        Self { bitmap: word & 0xffff, next: word >> 16 }
    }

    #[inline(always)]
    pub fn pack(self) -> u64 {
        self.bitmap | self.next << 16
    }
}

/// Returns the line of a leaf that contains slot `slot`.
#[inline(always)]
pub fn line_of(slot: usize) -> usize {
    (size_of::<Header>() + slot * size_of::<Slot>()) / LINE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_holds_slots_and_successor() {
        let word = LeafWord { bitmap: 0x3fff, next: (1 << 48) - 256 };
        assert_eq!(LeafWord::unpack(word.pack()), word);
        assert_eq!(LeafWord { bitmap: 0b101, next: 0x20_0100 }.pack(), 0x20_0100_0005);
    }

    #[test]
    fn the_format_is_golden() {
        let offset = |slot: usize| std::mem::offset_of!(Leaf, slots) + slot * size_of::<Slot>();
        assert_eq!([0, 1, 13].map(offset), [32, 48, 240]);
        assert_eq!(
            (std::mem::offset_of!(Header, stamp), std::mem::offset_of!(Header, fingerprints)),
            (8, 16)
        );
        assert_eq!((LEAF_BYTES, SLOTS_MAX, LEAVES.code()), (256, 14, 8));
        let word = LeafWord { bitmap: 0x2001, next: 0x1234_5678_9a00 };
        assert_eq!(word.pack(), 0x1234_5678_9a00_2001);
    }

    #[test]
    fn two_slots_share_the_headers_line() {
        let lines: Vec<_> = (0..SLOTS_MAX).map(line_of).collect();
        assert_eq!(lines, [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]);
    }
}
