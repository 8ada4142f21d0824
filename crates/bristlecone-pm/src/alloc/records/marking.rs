//! Lookup of a tree's record chunks by offset, and marks of the records in use. Recovery does one lookup and sets one
//! mark for each record.

use std::sync::{Arc, Mutex, PoisonError};

use super::classes::lens_of;
use super::{Records, checksum};
use crate::alloc::slots::Slots;
use crate::sync::Ordering::Relaxed;
use crate::sync::epoch::Guard;
use crate::sync::wait::lock;
use crate::{Chunk, Medium, PoolFile, Result, Word};

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
    divisor: Divisor,
    /// The lengths of records that belong in these slots: the smallest one, and how much longer the others may be.
    lens: (u32, u32),
    /// Number of slots, and their bytes.
    count: u32,
    bytes: u32,
    slots: Arc<Slots>,
    /// Held while a thread sets marks without locked instructions.
    marking: Mutex<()>,
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
    chunk: &'a RecordChunk,
    /// Index of the chunk.
    at: usize,
    slot: u32,
}

impl Place<'_> {
    /// Returns whether a record of this length belongs in the slot.
    #[inline(always)]
    pub fn fits(&self, len: u32) -> bool {
        len.wrapping_sub(self.chunk.lens.0) <= self.chunk.lens.1
    }

    /// Marks the slot; returns whether it was unmarked.
    pub fn mark(&self) -> bool {
        self.chunk.slots.mark(self.slot as usize)
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
                divisor: Divisor::new(chunk.slot_bytes),
                lens: (least, most - least),
                count: (pool.chunk_bytes() / u64::from(chunk.slot_bytes)) as u32,
                bytes: chunk.slot_bytes,
                slots,
                marking: Mutex::default(),
            });
        }
        Self { first: first.offset, within: pool.chunk_bytes().trailing_zeros(), chunks: places }
    }

    /// Returns the slot that begins at an offset.
    #[inline(always)]
    pub fn place_of(&self, offset: u64) -> Option<Place<'_>> {
        let behind = offset.checked_sub(self.first)?;
        let at = usize::try_from(behind >> self.within).ok()?;
        let chunk = self.chunks.get(at)?.as_ref()?;
        let slot = chunk.divisor.divide((behind & ((1 << self.within) - 1)) as u32)?;
        (slot < chunk.count).then_some(Place { chunk, at, slot })
    }
}

/// Marks of a chunk that a thread sets together.
const TOGETHER: usize = 64;

/// The marks of one recovering thread. It collects those of each chunk, and sets them when there are enough: the marks of
/// one leaf lie anywhere, and each would wait for its line, and for other threads.
#[derive(Debug, Default)]
pub struct Marks {
    /// By chunk: the number of slots collected, and the slots.
    counts: Vec<u8>,
    slots: Vec<[u32; TOGETHER]>,
    /// Offset of a record that was marked twice.
    double: Option<u64>,
}

impl Marks {
    /// Adds the mark of a slot.
    #[inline(always)]
    pub(super) fn add(&mut self, place: &Place<'_>) {
        if place.at >= self.counts.len() {
            self.grow(place.at + 1);
        }
        let (count, slots) = (&mut self.counts[place.at], &mut self.slots[place.at]);
        slots[usize::from(*count) % TOGETHER] = place.slot;
        *count += 1;
        if usize::from(*count) == TOGETHER {
            *count = 0;
            self.double = self.double.or(place.chunk.mark_all(slots));
        }
    }

    #[cold]
    fn grow(&mut self, chunks: usize) {
        self.counts.resize(chunks, 0);
        self.slots.resize(chunks, [0; TOGETHER]);
    }

    /// Sets the marks that are left.
    fn finish(&mut self, marking: &Marking) {
        for (chunk, (count, slots)) in marking.chunks.iter().zip(self.counts.iter_mut().zip(&self.slots)) {
            if let Some(chunk) = chunk {
                let slots = &slots[..usize::from(std::mem::take(count))];
                self.double = self.double.or(chunk.mark_all(slots));
            }
        }
    }
}

impl RecordChunk {
    /// Marks slots; returns the offset of one that was marked before.
    #[inline(never)]
    fn mark_all(&self, slots: &[u32]) -> Option<u64> {
        let mut double = None;
        let _only = lock(&self.marking);
        for &slot in slots {
            let (word, bit) = (&self.slots.bitmap[slot as usize / 64], 1 << (slot % 64));
            let before = word.load(Relaxed);
            word.store(before | bit, Relaxed);
            if before & bit != 0 {
                double = Some(self.slots.offset + u64::from(slot) * u64::from(self.bytes));
            }
        }
        double
    }
}

/// The marks of all recovering threads, for some kinds of records.
#[derive(Debug)]
pub struct AllMarks<const KINDS: usize>(Mutex<Vec<[Marks; KINDS]>>);

impl<const KINDS: usize> Default for AllMarks<KINDS> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<const KINDS: usize> AllMarks<KINDS> {
    /// Returns marks that no other thread uses.
    pub fn take(&self) -> [Marks; KINDS] {
        let idle = lock(&self.0).pop();
        idle.unwrap_or_else(|| [(); KINDS].map(|()| Marks::default()))
    }

    /// Takes back marks that were [taken](Self::take).
    pub fn put(&self, marks: [Marks; KINDS]) {
        lock(&self.0).push(marks);
    }

    /// Sets all marks that were put back, each kind for its records. Returns, for each kind, the offset of a record that was
    /// marked twice.
    #[must_use]
    pub fn finish<M: Medium>(self, records: [&Records<M>; KINDS]) -> [Option<u64>; KINDS] {
        let mut all = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        std::array::from_fn(|kind| {
            let marks = all.iter_mut().map(|marks| &mut marks[kind]);
            marks.fold(None, |double, marks| {
                marks.finish(&records[kind].marking);
                double.or(marks.double)
            })
        })
    }
}

impl<M: Medium> Records<M> {
    /// Marks a record as referred to by the tree during recovery. Returns whether it was unmarked. May be called from
    /// several threads, and only before [`finish_recovery`](Self::finish_recovery).
    ///
    /// # Errors
    ///
    /// [`Corrupted`](crate::Error::Corrupted) if no record can begin there.
    pub fn mark_live(&self, offset: u64) -> Result<bool> {
        self.place_of(offset).map(|(place, ..)| place.mark()).ok_or_else(|| self.no_record(offset))
    }

    /// Adds the mark of a record to those of a thread: as [`mark_live`](Self::mark_live), but [`AllMarks::finish`] sets it,
    /// and tells whether one was set. Must not be mixed with `mark_live`. Returns the length of the record.
    ///
    /// # Errors
    ///
    /// As [`mark_live`](Self::mark_live).
    #[inline(always)]
    pub fn mark(&self, offset: u64, marks: &mut Marks) -> Result<usize> {
        let Some((place, header, _)) = self.place_of(offset) else { return Err(self.no_record(offset)) };
        marks.add(&place);
        Ok(header as u32 as usize)
    }

    /// As [`mark`](Self::mark), but returns the bytes of the record, after comparing them with their checksum: a mismatch
    /// is only remembered.
    ///
    /// # Errors
    ///
    /// As [`mark_live`](Self::mark_live).
    #[inline(always)]
    pub fn mark_and_read<'g>(
        &'g self,
        offset: u64,
        marks: &mut Marks,
        _pinned: &'g Guard,
    ) -> Result<&'g [u8]> {
        let Some((place, header, behind)) = self.place_of(offset) else { return Err(self.no_record(offset)) };
        marks.add(&place);
        let len = header as u32 as usize;
        let bytes = self.bytes_of(&behind[..len.div_ceil(8)], len);
        if len == 0 || checksum(bytes) != (header >> 32) as u32 {
            let _ = self.verify(offset);
        }
        Ok(bytes)
    }

    /// Returns the slot of the record at an offset, the header, and the words behind it, which hold its bytes; `None` if no
    /// record can begin there.
    #[inline(always)]
    fn place_of(&self, offset: u64) -> Option<(Place<'_>, u64, &[Word])> {
        let place = self.marking.place_of(offset)?;
        let (header, behind) = self.pool.words_from(offset)?.split_first()?;
        let header = header.load(self.pool.medium());
        let len = header as u32;
        (place.fits(len) && len.div_ceil(8) as usize <= behind.len()).then_some((place, header, behind))
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

    fn chunk(class: usize, owner_bytes: usize, offset: u64, count: u32) -> RecordChunk {
        let (least, most) = lens_of(class, owner_bytes);
        let slots = Arc::new(Slots::new(0, offset, count as usize));
        let bytes = CLASSES[class];
        let lens = (least, most - least);
        RecordChunk { divisor: Divisor::new(bytes), lens, count, bytes, slots, marking: Mutex::default() }
    }

    #[test]
    fn lengths_belong_in_one_class() {
        for class in 0..CLASSES.len() {
            for owner_bytes in [0, 8] {
                let place = Place { chunk: &chunk(class, owner_bytes, 0, 64), at: 0, slot: 0 };
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
        let chunks = vec![Some(chunk(1, 0, 4096, 200)), None, Some(chunk(2, 0, 3 * 4096, 100))];
        let marking = Marking { first: 4096, within: 12, chunks };
        let offsets = || (0..100).flat_map(|slot| [4096 + 24 * slot, 3 * 4096 + 32 * slot]);
        let place = |offset| marking.place_of(offset).unwrap();
        let add = |marks: &mut Marks, offsets: &[u64]| {
            offsets.iter().for_each(|&offset| marks.add(&place(offset)));
            marks.finish(&marking);
            marks.double.take()
        };
        let all: Vec<u64> = offsets().collect();
        let [mut one, mut other] = [Marks::default(), Marks::default()];
        assert_eq!([add(&mut one, &all), add(&mut other, &[4096 + 24 * 150])], [None; 2]);
        assert!(all.iter().all(|&offset| !place(offset).mark()), "all marks are set");
        for double in [4096, 4096 + 24 * 99, 3 * 4096 + 32 * 50, 4096 + 24 * 150] {
            assert_eq!([add(&mut one, &[double]), add(&mut one, &[])], [Some(double), None], "by a thread");
            assert_eq!(add(&mut other, &[double]), Some(double), "by two threads");
        }
        let twice = 4096 + 24 * 101;
        assert_eq!(add(&mut one, &[twice, 4096 + 24 * 102, twice]), Some(twice));
        assert!(
            [4095, 4097, 2 * 4096, 4096 + 24 * 200, 4 * 4096]
                .iter()
                .all(|&at| marking.place_of(at).is_none())
        );
    }
}
