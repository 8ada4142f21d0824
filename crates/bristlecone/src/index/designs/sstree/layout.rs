//! Layout of an SSTree leaf on the medium: a chain of subnodes.
//!
//! ```text
//! subnode (256 B, 14 slots; 128 B: 6; 192 B: 10)
//!   0  next          FREE, END, or the offset of the successor
//!   8  bitmap        valid in the head only: the taken slots of the whole leaf (56 bits);
//!                    the top byte is one more than the slot of the staged item, or 0
//!  16  annex         the staged item, key word and value word (head only);
//!                    or, delegated, the fingerprints of the SUCCESSOR's slots, one byte each
//!  32  slots         key word, value word; the first two share the header's line
//! ```

use crate::index::parts::slot::SLOT_BYTES;
use crate::index::parts::words::WORDS_MAX;
use bristlecone_pm::{Group, LINE_BYTES, Persistent, SlotKind, Word};

/// The slots of subnodes.
pub const SUBNODES: SlotKind = SlotKind::new(1);

/// `next` of a subnode that belongs to no leaf. Zero, where the paper uses all ones: a chunk newly added
/// to the file is zero, so it needs no initialization.
pub const FREE: u64 = 0;
/// `next` of the last subnode of a leaf.
pub const END: u64 = u64::MAX;

/// Number of words of a subnode's fingerprints.
pub const FINGERPRINT_WORDS: usize = 2;
/// Maximum number of subnodes of a leaf, if their slots fit its bitmap.
pub const SUBNODES_MAX: usize = 5;
/// Maximum number of slots of a leaf: they share one bitmap word with the slot of the staged item.
pub const LEAF_SLOTS_MAX: usize = STAGE_SHIFT as usize;
/// Maximum number of slots of a subnode.
pub const SUBNODE_SLOTS_MAX: usize = 14;

/// Position behind the bits of slots.
const STAGE_SHIFT: u32 = 56;

/// Returns the additional bits of a bitmap word: the slot whose item is also in the annex.
pub fn stage(slot: usize) -> u64 {
    (slot as u64 + 1) << STAGE_SHIFT
}

/// Returns a bitmap word's bits of slots, and the slot of the staged item.
pub fn unstage(word: u64) -> (u64, Option<usize>) {
    let slot = (word >> STAGE_SHIFT).checked_sub(1).map(|slot| slot as usize);
    (word & ((1 << STAGE_SHIFT) - 1), slot)
}

/// The header of a subnode.
#[repr(C)]
pub struct Header {
    pub next: Word,
    pub bitmap: Word,
    pub annex: Group<FINGERPRINT_WORDS>,
}

// SAFETY: repr(C), words only, no padding (sizes asserted below).
unsafe impl Persistent for Header {}
pub const HEADER_BYTES: usize = 32;

const _: () = {
    assert!(size_of::<Header>() == HEADER_BYTES);
    assert!(std::mem::offset_of!(Header, next) == 0);
    assert!(std::mem::offset_of!(Header, bitmap) == 8);
    assert!(std::mem::offset_of!(Header, annex) == 16);
    // A slot never straddles two lines, and a header lies in one.
    assert!(LINE_BYTES.is_multiple_of(SLOT_BYTES) && HEADER_BYTES.is_multiple_of(SLOT_BYTES));
    assert!(HEADER_BYTES < LINE_BYTES);
};

/// Returns the number of slots of a subnode.
pub const fn slots_of(subnode_bytes: usize) -> usize {
    (subnode_bytes - HEADER_BYTES) / SLOT_BYTES
}

/// The sizes fixed when a tree was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a subnode.
    pub subnode_bytes: usize,
    /// Slots of a subnode.
    pub slots: usize,
    /// Maximum number of subnodes of a leaf.
    pub subnodes_max: usize,
    /// Whether the fingerprints of all subnodes are in DRAM, not only those of the head.
    pub resident: bool,
    /// Positions of a subnode among a leaf's items in a scan: lines of them, so that copies are aligned.
    pub stride: usize,
    /// 2^16 / slots, rounded up: division by multiplication.
    reciprocal: usize,
}

impl Shape {
    pub fn new(subnode_bytes: usize, subnodes_max: usize, resident: bool) -> Self {
        let slots = slots_of(subnode_bytes);
        assert!(slots <= SUBNODE_SLOTS_MAX && (1..=SUBNODES_MAX).contains(&subnodes_max));
        assert!(slots * subnodes_max <= LEAF_SLOTS_MAX);
        let stride = slots.next_multiple_of(LINE_BYTES / SLOT_BYTES);
        assert!(stride * subnodes_max <= WORDS_MAX);
        let reciprocal = (1_usize << 16).div_ceil(slots);
        Self { subnode_bytes, slots, subnodes_max, resident, stride, reciprocal }
    }

    /// Number of subnodes whose fingerprints are in DRAM.
    pub fn tagged_subnodes(self) -> usize {
        if self.resident { self.subnodes_max } else { 1 }
    }

    /// Returns the position of the subnode that a bit of the leaf's bitmap belongs to, and the slot in it.
    #[inline(always)]
    pub fn place(self, bit: usize) -> (usize, usize) {
        let at = (bit * self.reciprocal) >> 16;
        (at, bit - at * self.slots)
    }

    /// Returns the bits of the subnode at position `at`, where the head has the lowest.
    #[inline(always)]
    pub fn bits(self, at: usize) -> u64 {
        self.head_bits() << (at * self.slots)
    }

    #[inline(always)]
    pub fn head_bits(self) -> u64 {
        (1 << self.slots) - 1
    }

    /// Returns whether the line of slot `slot` ends behind it.
    pub fn ends_line(self, slot: usize) -> bool {
        (HEADER_BYTES + (slot + 1) * SLOT_BYTES).is_multiple_of(LINE_BYTES)
    }

    /// Returns the slots that lie in the same line as slot `slot`, as bits of one subnode.
    pub fn line_mates(self, slot: usize) -> u64 {
        (0..self.slots).filter(|&other| self.share_line(other, slot)).fold(0, |bits, i| bits | 1 << i)
    }

    /// Returns whether two slots of a subnode lie in the same line.
    pub fn share_line(self, one: usize, other: usize) -> bool {
        let line = |slot: usize| (HEADER_BYTES + slot * SLOT_BYTES) / LINE_BYTES;
        line(one) == line(other)
    }
}

/// Returns whether slot `slot` shares the line of its subnode's header.
pub fn beside_header(slot: usize) -> bool {
    HEADER_BYTES + slot * SLOT_BYTES < LINE_BYTES
}

/// Returns the offset of slot `slot` of the subnode at `subnode`.
#[inline(always)]
pub fn slot_offset(subnode: u64, slot: usize) -> u64 {
    debug_assert!(slot <= SUBNODE_SLOTS_MAX, "slot {slot}");
    subnode + (HEADER_BYTES + slot * SLOT_BYTES) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_fill_their_bytes() {
        for (bytes, slots) in [(128, 6), (192, 10), (256, 14)] {
            assert_eq!(Shape::new(bytes, 4, true).slots, slots);
        }
    }

    #[test]
    fn the_format_is_golden() {
        assert_eq!((HEADER_BYTES, SLOT_BYTES, STAGE_SHIFT), (32, 16, 56));
        assert_eq!((slot_offset(512, 0), slot_offset(512, 13)), (544, 752));
        assert_eq!((FREE, END, stage(5)), (0, u64::MAX, 0x0600_0000_0000_0000));
        assert_eq!(unstage(0x0600_0000_0000_0021), (0x21, Some(5)));
        assert_eq!(unstage(0x21), (0x21, None));
        assert_eq!(Shape::new(256, 3, true).bits(2), 0x3fff << 28);
    }

    #[test]
    fn places_are_those_of_the_bits() {
        for bytes in [128, 192, 256] {
            let shape = Shape::new(bytes, if bytes == 256 { 4 } else { 5 }, false);
            for bit in 0..64 {
                assert_eq!(shape.place(bit), (bit / shape.slots, bit % shape.slots));
            }
        }
    }

    #[test]
    fn line_mates_follow_the_lines() {
        let shape = Shape::new(256, 3, true);
        assert_eq!(shape.line_mates(0), 0b11);
        assert_eq!(shape.line_mates(1), 0b11);
        assert_eq!(shape.line_mates(2), 0b11_1100);
        assert_eq!(shape.line_mates(13), 0b1111 << 10);
        assert!(beside_header(1) && !beside_header(2));
    }

    #[test]
    fn bits_of_subnodes_tile_the_bitmap() {
        for (bytes, subnodes, slots) in [(256, 4, 14), (192, 5, 10), (128, 5, 6)] {
            let shape = Shape::new(bytes, subnodes, true);
            let all = (0..subnodes).map(|at| shape.bits(at));
            let all = all.inspect(|bits| assert_eq!(bits.count_ones() as usize, slots));
            assert_eq!(all.fold(0, |sum, bits| sum | bits), (1 << (subnodes * slots)) - 1);
        }
    }
}
