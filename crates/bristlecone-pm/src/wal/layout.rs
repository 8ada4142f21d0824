//! The layout of a log on the medium: chunks of slots of 24 B, a header followed by entries.
//!
//! ```text
//! header   generation | its copy | spare               slot 0
//! entry    stamp | key | value                         slot 1 and later ones
//! stamp    bit 0 removed | bits 1-8 generation | bits 9-57 sequence | bits 58-63 check
//! ```
//!
//! A generation is a byte with an even number of ones; in the header it fills all eight bytes of a word,
//! twice. So a flipped bit never makes one generation another. The check of an entry covers its three
//! words and its slot. The *end mark* of a generation is a stamp with ones in all other bits, which
//! differs from any entry in many bits.
//!
//! Eight slots take three lines. Only the first slot of the eight begins a line; all others share a line
//! with the end of the entry before them, and are written together with its end mark.
//!
//! Before checks were introduced, a header held the generation, a number up to 255, in its lowest byte
//! only, and sequences used the bits of the check. Such chunks are still readable.

use crate::{LINE_BYTES, Medium, Persistent, Word};

/// Bytes of an entry, and of the header in the first slot.
pub const LOG_ENTRY_BYTES: usize = 24;
/// Generations of a chunk.
pub(super) const GENERATIONS: u64 = 127;
const GENERATION_SHIFT: u32 = 1;
const SEQUENCE_SHIFT: u32 = 9;
const SEQUENCE_BITS: u32 = 49;
const CHECK_SHIFT: u32 = SEQUENCE_SHIFT + SEQUENCE_BITS;
const CHECK_BITS: u32 = 64 - CHECK_SHIFT;
/// Number of slots after which their position in lines repeats.
const SLOTS_A_ROUND: usize = 8;
/// Multipliers of an entry's words for its check.
const FACTORS: [u64; 3] = [0x9b5a_d4b2_a6d5_2d4b, 0xb2d6_a59a_d34b_5a6d, 0xd2b4_964b_a5a9_6d35];

/// An entry on the medium.
#[repr(C)]
pub(super) struct Cell {
    pub stamp: Word,
    pub item: Item,
}

/// Contents of an entry.
#[repr(C)]
pub(super) struct Item {
    pub key: Word,
    pub value: Word,
}

// SAFETY: repr(C), words only, no padding (sizes asserted below).
unsafe impl Persistent for Cell {}

/// The first slot of a chunk.
#[repr(C)]
pub(super) struct Header {
    pub generation: Word,
    pub copy: Word,
    pub spare: Word,
}

// SAFETY: repr(C), words only, no padding (sizes asserted below).
unsafe impl Persistent for Header {}

const _: () = {
    assert!(size_of::<Cell>() == LOG_ENTRY_BYTES && size_of::<Header>() == LOG_ENTRY_BYTES);
    // The pool clears the first two words of a chunk.
    assert!(std::mem::offset_of!(Header, generation) == 0 && std::mem::offset_of!(Header, copy) == 8);
    assert!((SLOTS_A_ROUND * LOG_ENTRY_BYTES).is_multiple_of(LINE_BYTES));
    // Any flipped bit of a word changes the check. No factor has a run of equal bits long enough for the
    // change to the bits of the check to be zero, or to be cancelled by a carry.
    let mut at = 0;
    while at < FACTORS.len() {
        assert!(FACTORS[at] & 1 == 1);
        let mut shift = 0;
        while shift + CHECK_BITS <= 64 {
            let window = FACTORS[at] >> shift & ((1 << CHECK_BITS) - 1);
            assert!(window != 0 && window != (1 << CHECK_BITS) - 1);
            shift += 1;
        }
        at += 1;
    }
};

impl Cell {
    /// Returns whether it straddles two lines.
    pub fn straddles(&self) -> bool {
        line_of(&self.stamp) != line_of(&self.item.value)
    }
}

fn line_of(word: &Word) -> usize {
    std::ptr::from_ref(word).addr() / LINE_BYTES
}

/// Returns whether a slot begins a line.
#[inline(always)]
pub(super) fn begins_line(slot: usize) -> bool {
    slot.is_multiple_of(SLOTS_A_ROUND)
}

/// Number of slots whose stamps are in the line that a slot begins.
pub(super) const STAMPS_A_LINE: usize = LINE_BYTES.div_ceil(LOG_ENTRY_BYTES);

/// An entry of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Order of entries, defined by their tree: at most [`SEQUENCE_MAX`](Self::SEQUENCE_MAX).
    pub sequence: u64,
    /// Whether the key was removed.
    pub removed: bool,
    /// Word of the key.
    pub key: u64,
    /// Word of the value.
    pub value: u64,
}

impl LogEntry {
    /// The greatest sequence: a lock that counts ten million a second reaches it in a year and a half.
    pub const SEQUENCE_MAX: u64 = (1 << SEQUENCE_BITS) - 2;
    /// The greatest sequence that recovery accepts: an equal number remain for later writes.
    pub const SEQUENCE_BELIEVED_MAX: u64 = Self::SEQUENCE_MAX / 2;

    #[inline(always)]
    pub(super) fn stamp(&self, generation: Generation, slot: usize) -> u64 {
        assert!(self.sequence <= Self::SEQUENCE_MAX, "a sequence beyond all sequences");
        let bits =
            u64::from(self.removed) | generation.0 << GENERATION_SHIFT | self.sequence << SEQUENCE_SHIFT;
        bits | check([bits, self.key, self.value], slot) << CHECK_SHIFT
    }

    /// Returns the entry in a slot, if the check is valid.
    pub(super) fn at<M: Medium>(medium: &M, cell: &Cell, stamp: u64, slot: usize) -> Option<Self> {
        let bits = stamp & ((1 << CHECK_SHIFT) - 1);
        let entry = Self::unchecked(medium, cell, bits);
        (stamp >> CHECK_SHIFT == check([bits, entry.key, entry.value], slot)).then_some(entry)
    }

    /// Returns the entry in a slot of a chunk without checks.
    pub(super) fn unchecked<M: Medium>(medium: &M, cell: &Cell, stamp: u64) -> Self {
        let [key, value] = [&cell.item.key, &cell.item.value].map(|word| word.load(medium));
        Self { sequence: stamp >> SEQUENCE_SHIFT, removed: stamp & 1 != 0, key, value }
    }
}

/// Returns the check of an entry, computed from its words, with the stamp's check bits left out.
#[inline(always)]
fn check([bits, key, value]: [u64; 3], slot: usize) -> u64 {
    let [a, b, c] = FACTORS;
    let stamp = bits | (slot as u64) << CHECK_SHIFT;
    stamp.wrapping_mul(a).wrapping_add(key.wrapping_mul(b)).wrapping_add(value.wrapping_mul(c)) >> CHECK_SHIFT
}

/// Distinguishes the entries of a chunk from its earlier contents; zero in a chunk without entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Generation(u64);

impl Generation {
    /// Returns the generation after this one.
    pub fn next(self) -> Self {
        let number = (self.0 >> 1) % GENERATIONS + 1;
        Self(number << 1 | u64::from(number.count_ones() & 1))
    }

    /// Returns the generation of a stamp.
    #[inline(always)]
    pub fn of_stamp(stamp: u64) -> Self {
        Self(stamp >> GENERATION_SHIFT & 0xff)
    }

    /// Returns whether it is a valid generation, or zero.
    #[inline(always)]
    pub fn is_whole(self) -> bool {
        self.0.count_ones().is_multiple_of(2)
    }

    /// Returns the stamp behind the last entry.
    #[inline(always)]
    pub fn end_mark(self) -> u64 {
        !(0xff << GENERATION_SHIFT) | self.0 << GENERATION_SHIFT
    }

    /// Returns the word in a header.
    pub fn pattern(self) -> u64 {
        self.0 * 0x0101_0101_0101_0101
    }

    /// Returns the generation that a header's word encodes, if it is valid.
    pub fn of_pattern(word: u64) -> Option<Self> {
        let generation = Self(word & 0xff);
        (word != 0 && generation.is_whole() && generation.pattern() == word).then_some(generation)
    }

    /// Returns the generation in a header of a chunk without checks: up to 255, or zero.
    pub fn of_number(word: u64) -> Self {
        Self(word & 0xff)
    }
}

#[cfg(test)]
pub(super) use tests::GOLDEN_STAMP;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_flipped_bit_of_an_entry_goes_unnoticed() {
        let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
        for slot in 1..2000 {
            noise = noise.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let (key, value) = if slot % 2 == 0 { (noise, noise.rotate_left(21)) } else { (slot as u64, 0) };
            let entry = LogEntry { sequence: noise >> 15, removed: slot % 3 == 0, key, value };
            let generation = Generation((noise >> 8 & 0xff) & !1).next();
            let stamp = entry.stamp(generation, slot);
            let words = [stamp, key, value];
            let right = |[stamp, key, value]: [u64; 3], slot: usize| {
                let bits = stamp & ((1 << CHECK_SHIFT) - 1);
                stamp >> CHECK_SHIFT == check([bits, key, value], slot)
            };
            assert!(right(words, slot) && (stamp ^ generation.end_mark()).count_ones() > 1);
            for bit in 0..192 {
                let mut flipped = words;
                flipped[bit / 64] ^= 1 << (bit % 64);
                assert!(!right(flipped, slot), "bit {bit} of {words:x?}");
            }
        }
    }

    #[test]
    fn generations_differ_in_two_bits() {
        let mut all = vec![Generation::default().next()];
        while all.len() < GENERATIONS as usize {
            all.push(all[all.len() - 1].next());
        }
        assert_eq!(all[all.len() - 1].next(), all[0]);
        all.push(Generation::default());
        for (at, one) in all.iter().enumerate() {
            assert!(one.is_whole() && Generation::of_stamp(one.end_mark()) == *one);
            let other = all[..at].iter().find(|other| (other.0 ^ one.0).count_ones() < 2);
            assert!(other.is_none(), "{one:?} {other:?}");
            assert_eq!(Generation::of_pattern(one.pattern()), (one.0 != 0).then_some(*one));
        }
        // The successor of an old generation always differs from it.
        assert!((1..=0xff).all(|old| Generation(old).next().0 != old));
    }

    #[test]
    fn the_layout_is_golden() {
        let entry = LogEntry { sequence: 0x1234, removed: true, key: 0x5678, value: 0x9abc };
        let generation = Generation::default().next();
        assert_eq!(
            (generation.pattern(), generation.end_mark()),
            (0x0303_0303_0303_0303, 0xffff_ffff_ffff_fe07)
        );
        assert_eq!(entry.stamp(generation, 1), GOLDEN_STAMP);
        assert_eq!([1, 2, 5, 7].map(|slot| slot * LOG_ENTRY_BYTES), [24, 48, 120, 168]);
        assert!(begins_line(8) && !begins_line(9) && STAMPS_A_LINE == 3);
    }

    pub const GOLDEN_STAMP: u64 = 0x8800_0000_0024_6807;
}
