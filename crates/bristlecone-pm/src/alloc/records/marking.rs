//! Lookup of a tree's record chunks by offset, and marks of the records in use. Recovery does one lookup and sets one
//! mark for each record.

use std::sync::Arc;

use super::classes::lens_of;
use crate::alloc::slots::Slots;
use crate::sync::{AtomicU64, Ordering::AcqRel};
use crate::{Chunk, Medium, PoolFile, prefetch_to_write};

/// The chunks that a tree had when it was opened.
#[derive(Debug, Default)]
pub struct Marking {
    /// Offset of the first one.
    first: u64,
    /// Bits of an offset within its chunk.
    within: u32,
    /// The chunks of the pool from the first to the last; `None` for those that are no record chunks of this tree.
    chunks: Vec<Option<RecordChunk>>,
}

#[derive(Debug)]
struct RecordChunk {
    slot_bytes: Divisor,
    /// The lengths of records that belong in these slots: the smallest one, and how much longer the others may be.
    lens: (u32, u32),
    count: u32,
    slots: Arc<Slots>,
}

/// A divisor of 32-bit numbers, by which two multiplications divide.
#[derive(Clone, Copy, Debug)]
struct Divisor(u64);

impl Divisor {
    /// Returns the divisor `by`, which must be at least two.
    fn new(by: u32) -> Self {
        Self(u64::MAX / u64::from(by) + 1)
    }

    /// Returns the quotient if there is no remainder. Exact for all 32-bit numbers: Lemire, Kaser and Kurz, *Faster
    /// remainder by direct computation*.
    #[inline(always)]
    fn divide(self, number: u32) -> Option<u32> {
        let number = u64::from(number);
        let quotient = (u128::from(number) * u128::from(self.0)) >> 64;
        (number.wrapping_mul(self.0) < self.0).then_some(quotient as u32)
    }
}

/// The slot of a record.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    word: &'a AtomicU64,
    bit: u64,
    lens: (u32, u32),
}

impl Place<'_> {
    /// Returns whether a record of this length belongs in the slot.
    #[inline(always)]
    pub fn fits(&self, len: u32) -> bool {
        len.wrapping_sub(self.lens.0) <= self.lens.1
    }

    /// Marks the slot; returns whether it was unmarked.
    pub fn mark(&self) -> bool {
        self.word.fetch_or(self.bit, AcqRel) & self.bit == 0
    }
}

impl Marking {
    /// Builds the lookup for `chunks`, in order of their numbers, each with its class and slots. Each record has
    /// `owner_bytes` behind its bytes.
    pub fn over<M: Medium>(
        pool: &PoolFile<M>,
        chunks: Vec<(Chunk, usize, Arc<Slots>)>,
        owner_bytes: usize,
    ) -> Self {
        let (Some((first, ..)), Some((last, ..))) = (chunks.first(), chunks.last()) else {
            return Self::default();
        };
        let (first, last) = (*first, *last);
        let mut places = Vec::new();
        places.resize_with((last.id - first.id) as usize + 1, || None);
        for (chunk, class, slots) in chunks {
            let (least, most) = lens_of(class, owner_bytes);
            places[(chunk.id - first.id) as usize] = Some(RecordChunk {
                slot_bytes: Divisor::new(chunk.slot_bytes),
                lens: (least, most - least),
                count: (pool.chunk_bytes() / u64::from(chunk.slot_bytes)) as u32,
                slots,
            });
        }
        Self { first: first.offset, within: pool.chunk_bytes().trailing_zeros(), chunks: places }
    }

    /// Returns the slot that begins at an offset.
    #[inline(always)]
    pub fn place_of(&self, offset: u64) -> Option<Place<'_>> {
        let behind = offset.checked_sub(self.first)?;
        let chunk = self.chunks.get(usize::try_from(behind >> self.within).ok()?)?.as_ref()?;
        let slot = chunk.slot_bytes.divide((behind & ((1 << self.within) - 1)) as u32)?;
        let word = chunk.slots.bitmap.get(slot as usize / 64).filter(|_| slot < chunk.count)?;
        Some(Place { word, bit: 1 << (slot % 64), lens: chunk.lens })
    }
}

/// Number of words of slots whose marks are collected.
const WORDS: usize = 32;

/// The marks of a leaf's records, collected by a thread. Threads share the bitmaps, and neighbours in a leaf are often
/// neighbours in a bitmap: one locked instruction sets the marks of a word.
///
/// Marks are only set by [`finish`](Self::finish).
#[derive(Debug, Default)]
pub struct Marks<'a> {
    /// Each word has one place in this table.
    words: [Option<(&'a AtomicU64, u64)>; WORDS],
    /// The places in use.
    used: u32,
    /// Whether a slot was marked before.
    is_double: bool,
}

impl<'a> Marks<'a> {
    /// Adds the mark of a slot.
    #[inline(always)]
    pub(super) fn add(&mut self, place: &Place<'a>) {
        let Place { word, bit, .. } = *place;
        let address = std::ptr::from_ref(word).addr() as u64 / 8;
        let at = (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - WORDS.ilog2())) as usize;
        match &mut self.words[at] {
            Some((own, bits)) if std::ptr::eq(*own, word) => {
                self.is_double |= *bits & bit != 0;
                *bits |= bit;
            }
            other => {
                prefetch_to_write(word);
                if let Some((other, bits)) = other.replace((word, bit)) {
                    self.is_double |= other.fetch_or(bits, AcqRel) & bits != 0;
                }
                self.used |= 1 << at;
            }
        }
    }

    /// Sets the marks that were added since the last call. Returns whether all of these slots were unmarked before.
    #[must_use]
    pub fn finish(&mut self) -> bool {
        while self.used != 0 {
            let at = self.used.trailing_zeros() as usize;
            self.used &= self.used - 1;
            if let Some((word, bits)) = self.words[at].take() {
                self.is_double |= word.fetch_or(bits, AcqRel) & bits != 0;
            }
        }
        !std::mem::take(&mut self.is_double)
    }
}

#[cfg(test)]
mod tests {
    use super::super::classes::{CLASSES, class_of};
    use super::*;
    use crate::VALUE_BYTES_MAX;

    #[test]
    fn multiplications_divide() {
        for by in CLASSES {
            for number in (0..100_000).chain([u32::MAX, u32::MAX / by * by, (1 << 21) - by, (1 << 30) + by]) {
                let quotient = number.is_multiple_of(by).then_some(number / by);
                assert_eq!(Divisor::new(by).divide(number), quotient, "{number} by {by}");
            }
        }
    }

    #[test]
    fn lengths_belong_in_one_class() {
        let word = AtomicU64::new(0);
        for class in 0..CLASSES.len() {
            for owner_bytes in [0, 8] {
                let (least, most) = lens_of(class, owner_bytes);
                let place = Place { word: &word, bit: 1, lens: (least, most - least) };
                for len in (0..300_000).chain([u32::MAX, u32::MAX - 7]) {
                    let bytes = len as usize + owner_bytes;
                    let fits = len as usize <= VALUE_BYTES_MAX && class_of(bytes) == class;
                    assert_eq!(place.fits(len), fits, "{len} bytes in class {class}");
                }
            }
        }
    }

    #[test]
    fn a_slot_marked_twice_is_noticed() {
        let bitmap: Vec<AtomicU64> = (0..200).map(|_| AtomicU64::new(0)).collect();
        let place = |slot: usize| Place { word: &bitmap[slot / 64], bit: 1 << (slot % 64), lens: (0, 0) };
        let mut marks = Marks::default();
        // More words than the table has places.
        (0..12_800).for_each(|slot| marks.add(&place(slot)));
        assert!(marks.finish() && marks.finish());
        assert!(bitmap.iter().all(|word| word.fetch_or(0, AcqRel) == u64::MAX));
        for double in [0, 63, 12_799] {
            marks.add(&place(double));
            assert!(!marks.finish(), "marked by an earlier leaf");
            assert!(marks.finish());
        }
        let bitmap = [AtomicU64::new(0)];
        let place = |bit: u64| Place { word: &bitmap[0], bit, lens: (0, 0) };
        [1, 2, 1].map(|bit| marks.add(&place(bit)));
        assert!(!marks.finish(), "marked twice by a leaf");
        assert!(!place(2).mark() && place(4).mark());
    }
}
