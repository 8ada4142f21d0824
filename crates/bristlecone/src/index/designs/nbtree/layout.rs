//! Layout of an NBTree leaf on the medium: one block of unordered slots.
//!
//! ```text
//! block (1 KiB, 63 slots; with one layer 58)
//!   0  state   FREE, LIVE | offset of the block that this one replaces, or REPLACED | stamp
//!   8  birth   stamp of the replacement that made the block
//!  16  slots   key word, value word; with one layer from 96 on, after
//!  16  bitmap, and from 32 on the fingerprints (one layer only)
//! ```
//!
//! The value word of a slot is self-describing:
//!
//! ```text
//! 0                   empty: the slot holds no item
//! below 2^48, even    offset of a record that holds the value
//! below 2^48, odd     sealed: the value is in another block's cell; 1 is sealed and empty
//! anything else       the value itself, each bit of MASK flipped
//! ```
//!
//! Word values that would collide with the first three cases are boxed in a record, so that every
//! key and every value can be stored.

use crate::index::parts::slot::SLOT_BYTES;
use bristlecone_pm::{LINE_BYTES, Persistent, SlotKind, Word};

/// The slots of blocks.
pub const BLOCKS: SlotKind = SlotKind::new(4);

/// `state` of a block that belongs to no leaf, as in a newly allocated chunk.
pub const FREE: u64 = 0;
const LIVE: u64 = 1;
const REPLACED: u64 = 2;
const KIND_BITS: u32 = 2;

/// Maximum number of slots of a block: their bits share a word with the mark of a replacement.
pub const SLOTS_MAX: usize = 63;

/// The header of a block.
#[repr(C)]
pub struct Header {
    pub state: Word,
    pub birth: Word,
}

// SAFETY: repr(C), words only, no padding (sizes asserted below).
unsafe impl Persistent for Header {}
pub const HEADER_BYTES: usize = 16;
/// The start of the metadata with a single layer, and its end: the bitmap and one more word, then
/// the fingerprints.
const META_BYTES: usize = 16;
const SINGLE_LAYER_BYTES: usize = 96;

const _: () = {
    assert!(size_of::<Header>() == HEADER_BYTES);
    assert!(std::mem::offset_of!(Header, birth) == 8);
    // A slot never straddles two lines.
    assert!(LINE_BYTES.is_multiple_of(SLOT_BYTES) && SINGLE_LAYER_BYTES.is_multiple_of(SLOT_BYTES));
};

/// The decoded `state` of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Belongs to no leaf.
    Free,
    /// Belongs to a leaf, once it has replaced the block at `origin` (if any).
    Live { origin: u64 },
    /// No longer belongs to a leaf: the blocks created with this stamp replaced it.
    Replaced { by: u64 },
}

impl State {
    pub fn encode(self) -> u64 {
        match self {
            Self::Free => FREE,
            Self::Live { origin } => origin | LIVE,
            Self::Replaced { by } => by << KIND_BITS | REPLACED,
        }
    }

    pub fn decode(word: u64) -> Option<Self> {
        match word & ((1 << KIND_BITS) - 1) {
            FREE if word == FREE => Some(Self::Free),
            LIVE => Some(Self::Live { origin: word & !LIVE }),
            REPLACED => Some(Self::Replaced { by: word >> KIND_BITS }),
            _ => None,
        }
    }
}

/// Upper bound of stamps, above the number of replacements in the life of any tree: a stamp beyond
/// it is damaged. The limit leaves space for the kind of a state in the same word.
pub const STAMP_END: u64 = 1 << 48;
const _: () = assert!(STAMP_END < 1 << (u64::BITS - KIND_BITS));

/// The value word of a slot without an item.
pub const EMPTY: u64 = 0;
/// The value word of a sealed slot without an item.
pub const SEALED_EMPTY: u64 = 1;
/// Mask that flips plain values, so that common small values do not look like offsets. It is neither
/// a plausible address nor a round number.
const MASK: u64 = 0xa5c3_96e1_5b2d_7f84;
/// Upper bound of offsets.
const OFFSETS_END: u64 = 1 << 48;

/// A decoded value word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// No item.
    Empty,
    /// A word value.
    Plain(u64),
    /// A value in the record at this offset.
    Record(u64),
    /// The contents of the cell at this offset; zero for no item.
    Sealed(u64),
}

impl Stored {
    #[inline(always)]
    pub fn decode(word: u64) -> Self {
        if word >= OFFSETS_END {
            Self::Plain(word ^ MASK)
        } else if word & 1 != 0 {
            Self::Sealed(word & !1)
        } else if word == EMPTY {
            Self::Empty
        } else {
            Self::Record(word)
        }
    }

    /// Returns the word that holds `value` itself, if possible.
    #[inline(always)]
    pub fn plain(value: u64) -> Option<u64> {
        Some(value ^ MASK).filter(|&word| word >= OFFSETS_END)
    }

    /// Returns whether a word is a plain value.
    #[inline(always)]
    pub fn is_plain(word: u64) -> bool {
        word >= OFFSETS_END
    }

    /// Returns the word that refers to the value in the cell at this offset.
    pub fn sealed(cell: u64) -> u64 {
        cell | 1
    }

    #[inline(always)]
    pub fn is_sealed(word: u64) -> bool {
        word < OFFSETS_END && word & 1 != 0
    }
}

/// The sizes fixed when a tree was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Bytes before the slots.
    head_bytes: usize,
    /// Slots of a block.
    pub slots: usize,
    /// A bit for every slot.
    all: u64,
    /// Number of slots that would fit before the first one.
    head_slots: u32,
    /// Number of lines of a block, a power of two, minus one.
    last_line: u32,
}

impl Shape {
    pub fn new(block_bytes: usize, layers: u64) -> Self {
        let head_bytes = if layers == 1 { SINGLE_LAYER_BYTES } else { HEADER_BYTES };
        let slots = (block_bytes - head_bytes) / SLOT_BYTES;
        let lines = block_bytes / LINE_BYTES;
        assert!((1..=SLOTS_MAX).contains(&slots) && lines.is_power_of_two());
        Self {
            block_bytes,
            head_bytes,
            slots,
            all: (1 << slots) - 1,
            head_slots: (head_bytes / SLOT_BYTES) as u32,
            last_line: lines as u32 - 1,
        }
    }

    /// Returns a bit for every slot.
    #[inline(always)]
    pub fn all(self) -> u64 {
        self.all
    }

    /// Returns the offset of the first slot of the block at `block`.
    #[inline(always)]
    pub fn first(self, block: u64) -> u64 {
        block + self.head_bytes as u64
    }

    /// Returns the offset of slot `slot` of the block at `block`.
    #[inline(always)]
    pub fn slot(self, block: u64, slot: usize) -> u64 {
        self.first(block) + (slot * SLOT_BYTES) as u64
    }

    /// Returns the offset of the cell of slot `slot` that holds its value.
    #[inline(always)]
    pub fn cell(self, block: u64, slot: usize) -> u64 {
        self.slot(block, slot) + 8
    }

    /// Returns the block and the slot of a value cell, if the offset is that of one.
    pub fn cell_at(self, offset: u64) -> Option<(u64, usize)> {
        let within = offset % self.block_bytes as u64;
        let block = offset - within;
        let slot = within.checked_sub(self.head_bytes as u64)? as usize / SLOT_BYTES;
        (slot < self.slots && self.cell(block, slot) == offset).then_some((block, slot))
    }

    /// Returns the line of its block in which a slot lies.
    #[inline(always)]
    pub fn line(self, slot: usize) -> usize {
        (self.head_bytes + slot * SLOT_BYTES) / LINE_BYTES
    }

    /// Returns the home line of a key with this hash, where the key is stored unless the line is
    /// full.
    #[inline(always)]
    pub fn home(self, hash: u64) -> usize {
        // Uses other bits than the fingerprints.
        ((hash >> 48) as u32 & self.last_line) as usize
    }

    /// Returns the line for a key whose home line is full, unless it is full as well.
    #[inline(always)]
    pub fn beside(line: usize) -> usize {
        line ^ 1
    }

    /// Returns the slot for a key with this hash, out of the slots `free`, which must not be empty.
    #[inline(always)]
    pub fn pick(self, free: u64, hash: u64) -> usize {
        let home = self.home(hash);
        let at_home = free & self.slots_of_line(home);
        let slots = if at_home != 0 { at_home } else { self.near(free, home) };
        slots.trailing_zeros() as usize
    }

    /// Returns the slots of `free` that lie beside a line, or all.
    #[cold]
    fn near(self, free: u64, line: usize) -> u64 {
        let beside = free & self.slots_of_line(Self::beside(line));
        if beside != 0 { beside } else { free }
    }

    /// Returns the slots that begin in a line.
    #[inline(always)]
    pub fn slots_of_line(self, line: usize) -> u64 {
        const EACH: usize = LINE_BYTES / SLOT_BYTES;
        // Bits of all slot positions, of which the header takes the first ones.
        let places = ((1_u64 << EACH) - 1) << (EACH * line);
        places >> self.head_slots & self.all
    }

    /// Offsets of the bitmap and of the fingerprints, with a single layer.
    pub fn meta(self, block: u64) -> (u64, u64) {
        (block + META_BYTES as u64, block + 2 * META_BYTES as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_fill_their_bytes() {
        for (bytes, two, one) in [(128, 7, 2), (256, 15, 10), (512, 31, 26), (1024, 63, 58)] {
            assert_eq!((Shape::new(bytes, 2).slots, Shape::new(bytes, 1).slots), (two, one));
        }
        let shape = Shape::new(1024, 2);
        assert_eq!((shape.line(2), shape.line(3), shape.line(62)), (0, 1, 15));
        assert_eq!(shape.slot(4096, 62), 4096 + 1008);
        let cells: Vec<_> = (4096..5120).filter_map(|offset| shape.cell_at(offset)).collect();
        assert_eq!(cells, (0..63).map(|slot| (4096, slot)).collect::<Vec<_>>());
        assert_eq!((shape.cell(4096, 0), shape.cell_at(0), shape.cell_at(8)), (4120, None, None));
        for (bytes, layers) in [(128, 1), (128, 2), (256, 1), (512, 2), (1024, 1), (1024, 2)] {
            let shape = Shape::new(bytes, layers);
            for line in 0..bytes / LINE_BYTES {
                let slots = (0..shape.slots).filter(|&slot| shape.line(slot) == line);
                assert_eq!(shape.slots_of_line(line), slots.fold(0, |mask, slot| mask | 1 << slot));
            }
            let mut homes = vec![0; bytes / LINE_BYTES];
            (0..1024_u64).for_each(|bits| homes[shape.home(bits << 48)] += 1);
            assert!(homes.iter().all(|count| count * homes.len() == 1024), "{homes:?}");
        }
    }

    #[test]
    fn the_format_is_golden() {
        assert_eq!((HEADER_BYTES, META_BYTES, SINGLE_LAYER_BYTES), (16, 16, 96));
        let two = Shape::new(256, 2);
        assert_eq!((two.slot(512, 0), two.cell(512, 0), two.slot(512, 14)), (528, 536, 752));
        let one = Shape::new(256, 1);
        assert_eq!((one.meta(512), one.slot(512, 0), one.slot(512, 9)), ((528, 544), 608, 752));
        assert_eq!(State::Live { origin: 0x3000 }.encode(), 0x3001);
        assert_eq!(State::Replaced { by: 5 }.encode(), 0x16);
        assert_eq!((Stored::plain(7), Stored::sealed(0x3018)), (Some(0xa5c3_96e1_5b2d_7f83), 0x3019));
        assert_eq!((FREE, EMPTY, SEALED_EMPTY), (0, 0, 1));
    }

    #[test]
    fn states_come_back() {
        for state in [
            State::Free,
            State::Live { origin: 0 },
            State::Live { origin: 1 << 40 },
            State::Replaced { by: STAMP_END - 1 },
        ] {
            assert_eq!(State::decode(state.encode()), Some(state));
        }
        assert_eq!((State::decode(3), State::decode(4)), (None, None));
    }

    #[test]
    fn every_value_is_plain_or_boxed() {
        for value in [0, 1, u64::MAX, 1 << 63, MASK, MASK ^ 1, MASK ^ (OFFSETS_END - 1), !MASK, 1 << 48] {
            match Stored::plain(value) {
                Some(word) => assert_eq!(Stored::decode(word), Stored::Plain(value)),
                None => assert!(value ^ MASK < OFFSETS_END),
            }
        }
        assert_eq!(Stored::decode(EMPTY), Stored::Empty);
        assert_eq!(Stored::decode(SEALED_EMPTY), Stored::Sealed(0));
        assert_eq!(Stored::decode(Stored::sealed(4096)), Stored::Sealed(4096));
        assert_eq!(Stored::decode(4096), Stored::Record(4096));
    }
}
