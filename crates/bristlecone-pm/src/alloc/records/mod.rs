//! Byte strings out of line: the keys and values that do not fit a word.
//!
//! A record is a header word (length in bits 0-31, CRC-32C in bits 32-63) followed by its bytes. It is durable before
//! anything refers to it. It is immutable until its slot is reused, which waits until no reader can hold it.
//!
//! A design whose recovery does not read its items opens its records [unswept](RecordSpec::unswept). An *owned* record
//! has one more word behind its bytes. From this word a liveness callback determines whether the tree refers to the
//! record.

mod census;
mod checksum;
mod classes;
mod marking;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use crate::counts::Counts;
use crate::sync::epoch::{self, Guard};
use crate::sync::{AtomicU64, Ordering::Relaxed};
use crate::{
    Chunk, Error, Flushed, Heap, HeapSpec, LINE_BYTES, Liveness, Manifest, ManifestReader, Medium, Persist,
    PoolFile, Released, Result, SlotKind, Step, TreeId, Word, read_bytes, write_bytes,
};

pub use self::census::Census;
use self::checksum::checksum;
pub(crate) use self::classes::is_record_class;
use self::classes::{CLASSES, class_of};
pub use self::classes::{record_bytes_max, record_slot_bytes};
pub use self::marking::{AllMarks, Marks};
use self::marking::{Marking, Place};

/// Longest key in bytes.
pub const KEY_BYTES_MAX: usize = 16 << 10;
/// Longest value in bytes.
pub const VALUE_BYTES_MAX: usize = 128 << 10;

const HEADER_BYTES: usize = 8;

/// Kinds of counts: records retired, and those of them freed.
const RETIRED: usize = 0;
const FREED: usize = 1;
/// Bytes of a short record, with its header, and of the longest that is prefetched whole wherever it begins.
const SHORT_BYTES: u64 = 48;
const REACH_MAX: u64 = 128;

/// Parameters of a tree's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordSpec {
    /// The tree that owns the chunks.
    pub owner: TreeId,
    /// The kind of the slots' contents.
    pub kind: SlotKind,
    /// Whether every record has a word of its owner.
    pub owned: bool,
    /// Whether recovery marks no record: the live ones are determined when space is needed.
    pub unswept: bool,
    /// Whether the header of a slot that never held a record is zero.
    pub tagged: bool,
}

impl RecordSpec {
    /// Returns parameters for records without owners, of which recovery marks the live ones.
    pub fn new(owner: TreeId, kind: SlotKind) -> Self {
        Self { owner, kind, owned: false, unswept: false, tagged: false }
    }
}

/// The keys or the values of one tree.
#[derive(Debug)]
pub struct Records<M: Medium> {
    pool: Arc<PoolFile<M>>,
    spec: RecordSpec,
    /// Few classes are in use; the others cost a word.
    heaps: [OnceLock<Box<Heap<M>>>; CLASSES.len()],
    /// Slots whose epoch is over. Deferred functions run on any thread, at any time, even after the pool was closed, so
    /// they own this queue and nothing else.
    retired: Released<(u32, u64)>,
    /// Records that were retired and not yet freed.
    limbo: Counts<2>,
    /// Used until recovery ends.
    marking: Marking,
    /// 1 if a damaged record was met.
    damaged: AtomicU64,
    /// Bytes that a prefetch fetches, if they lie in two lines.
    reach: AtomicU64,
}

impl<M: Medium> Records<M> {
    /// Opens the records of a tree. A record counts as free until it is marked; an unswept record counts as live until
    /// it is swept.
    ///
    /// # Errors
    ///
    /// [`Corrupted`](Error::Corrupted) if a chunk has a slot size that records do not use.
    pub fn open(pool: &Arc<PoolFile<M>>, spec: RecordSpec) -> Result<Self> {
        let mut records = Self {
            pool: Arc::clone(pool),
            spec,
            heaps: [const { OnceLock::new() }; CLASSES.len()],
            retired: Released::new(&pool.memory()),
            limbo: Counts::default(),
            marking: Marking::default(),
            damaged: AtomicU64::new(0),
            reach: AtomicU64::new(SHORT_BYTES),
        };
        let chunks = pool.chunks_of(spec.owner);
        let mut marked = Vec::new();
        for chunk in chunks.iter().filter(|chunk| chunk.kind == spec.kind) {
            let class = CLASSES.iter().position(|&bytes| bytes == chunk.slot_bytes);
            let class = class.ok_or_else(|| {
                let what = format!("no record has slots of {} bytes", chunk.slot_bytes);
                Error::corrupted(what, format!("descriptor of chunk {}", chunk.id))
            })?;
            let slots = records.heap_of(&chunks, class).chunk_at(chunk.offset).expect("a chunk of the heap");
            marked.push((*chunk, class, slots));
        }
        if !spec.unswept {
            records.marking = Marking::over(pool, marked, records.owned_bytes(0));
        }
        Ok(records)
    }

    /// Returns the heap for records of `len` bytes. A heap that was not found at open has no chunks yet.
    fn heap_for(&self, len: usize) -> Result<&Heap<M>> {
        let class = self.class_of(len);
        self.heaps[class].get().map_or_else(|| self.begin_heap(class, len), |heap| Ok(&**heap))
    }

    /// Creates the heap of a class. Returns an error if a chunk is too small for its slots.
    #[cold]
    fn begin_heap(&self, class: usize, bytes: usize) -> Result<&Heap<M>> {
        let chunk_bytes = self.pool.chunk_bytes();
        // A key must fit its chunk together with an owner, because it may become a separator.
        if u64::from(CLASSES[class]) >= chunk_bytes + u64::from(self.spec.owned) {
            let what = if self.spec.kind == SlotKind::KEY_RECORD { "key" } else { "value" };
            return Err(Error::TooLong { what, bytes, max_bytes: record_bytes_max(chunk_bytes) });
        }
        Ok(self.heap_of(&[], class))
    }

    fn heap_of(&self, chunks: &[Chunk], class: usize) -> &Heap<M> {
        self.reach.fetch_max(u64::from(CLASSES[class]).min(REACH_MAX), Relaxed);
        // Two heaps on one unswept chunk would each sweep it: only one may be created.
        self.heaps[class].get_or_init(|| {
            let RecordSpec { owner, kind, owned: _, unswept, tagged } = self.spec;
            let spec = HeapSpec { owner, kind, slot_bytes: CLASSES[class], tagged, unswept };
            Box::new(Heap::over(chunks, &self.pool, spec))
        })
    }

    /// Returns the bytes of a record of `len`, including its owner if it has one.
    fn owned_bytes(&self, len: usize) -> usize {
        len + if self.spec.owned { HEADER_BYTES } else { 0 }
    }

    /// Returns the class for a record of `len` bytes and its owner if it has one.
    fn class_of(&self, len: usize) -> usize {
        class_of(self.owned_bytes(len))
    }

    /// Ensures that a record of `len` bytes can be written soon without a sweep.
    ///
    /// # Errors
    ///
    /// As [`Heap::alloc`].
    pub fn prepare(&self, len: usize, is_live: Liveness<'_>) -> Result<()> {
        self.drain_retired();
        self.heap_for(len)?.prepare(is_live)
    }

    /// Sweeps every slot.
    pub fn sweep_all(&self, is_live: Liveness<'_>) {
        self.heaps.iter().filter_map(OnceLock::get).for_each(|heap| heap.sweep_all(is_live));
    }

    /// Protects a live record that is about to leave the tree: see [`Heap::keep`].
    pub fn keep(&self, offset: u64) {
        let len = self.len_at(offset);
        if let Some(heap) = self.heaps.get(self.class_of(len)).and_then(OnceLock::get) {
            heap.keep(offset);
        }
    }

    /// Writes an owned record and its owner; otherwise like [`write`](Self::write).
    ///
    /// # Errors
    ///
    /// As [`Heap::alloc`].
    pub fn write_owned(&self, bytes: &[u8], owner: u64, step: Step) -> Result<(u64, Flushed)> {
        self.write_record(bytes, Some(owner), step, Heap::alloc)
    }

    fn owner_cell(&self, offset: u64, len: usize) -> &Word {
        self.pool.at(offset + (HEADER_BYTES + len.next_multiple_of(8)) as u64)
    }

    /// Returns the owner of the record at an offset of an unswept slot, or `None` if no record can begin there.
    pub fn owner_at(&self, offset: u64) -> Option<u64> {
        self.plausible(offset).map(|len| self.owner_cell(offset, len).load(self.pool.medium()))
    }

    /// Stores a new owner of a live record; durable after the fence.
    pub fn set_owner(&self, offset: u64, owner: u64, step: Step) -> Flushed {
        let cell = self.owner_cell(offset, self.len_at(offset));
        cell.store(self.pool.medium(), owner);
        self.pool.medium().flush(cell, step)
    }

    /// Returns the length of the record at an offset, if its header is plausible.
    fn plausible(&self, offset: u64) -> Option<usize> {
        let class = self.class_at(offset).ok()?;
        self.pool.holds(offset, u64::from(CLASSES[class])).then(|| self.len_at(offset))
    }

    /// Returns whether the record at an offset is empty or was never written.
    pub fn is_empty_at(&self, offset: u64) -> bool {
        self.len_at(offset) == 0
    }

    /// Returns whether a record may be at an offset.
    pub fn is_plausible(&self, offset: u64) -> bool {
        self.plausible(offset).is_some()
    }

    /// Returns the length in a header, or zero if it is impossible.
    fn len_at(&self, offset: u64) -> usize {
        self.stored(offset).1
    }

    /// Returns the words that hold the bytes of a record, their number of bytes, and the checksum in the header. An
    /// impossible record has no bytes.
    #[inline(always)]
    fn stored(&self, offset: u64) -> (&[Word], usize, u32) {
        let Some((header, behind)) = self.pool.words_from(offset).and_then(<[Word]>::split_first) else {
            return (&[], 0, 0);
        };
        let header = header.load(self.pool.medium());
        let len = header as u32 as usize;
        let fits = len <= VALUE_BYTES_MAX && len.div_ceil(8) <= behind.len();
        let len = if fits { len } else { 0 };
        (&behind[..len.div_ceil(8)], len, (header >> 32) as u32)
    }

    /// Writes and flushes a record and returns its offset. Nothing may refer to it before the fence.
    ///
    /// # Errors
    ///
    /// As [`Heap::alloc`].
    pub fn write(&self, bytes: &[u8], step: Step) -> Result<(u64, Flushed)> {
        self.write_record(bytes, None, step, Heap::alloc)
    }

    /// As [`write`](Self::write), near the last records of the leaf at an offset.
    ///
    /// # Errors
    ///
    /// As [`Heap::alloc`].
    pub fn write_near(&self, bytes: &[u8], leaf: u64, step: Step) -> Result<(u64, Flushed)> {
        self.write_record(bytes, None, step, |heap| heap.alloc_near(leaf))
    }

    /// Prefetches for writing the slot that [`write_near`](Self::write_near) would take for a record of `len` bytes, if it
    /// is one of the leaf's.
    #[inline]
    pub fn prefetch_near(&self, len: usize, leaf: u64) {
        if let Some(heap) = self.heaps.get(self.class_of(len)).and_then(OnceLock::get) {
            heap.prefetch_near(leaf);
        }
    }

    fn write_record(
        &self,
        bytes: &[u8],
        owner: Option<u64>,
        step: Step,
        alloc: impl Fn(&Heap<M>) -> Result<u64>,
    ) -> Result<(u64, Flushed)> {
        assert!(
            bytes.len() <= VALUE_BYTES_MAX && owner.is_some() == self.spec.owned,
            "no record of this kind"
        );
        self.drain_retired();
        let offset = alloc(self.heap_for(bytes.len())?)?;
        let medium = self.pool.medium();
        let words = 1 + bytes.len().div_ceil(8);
        let cells = self.pool.words(offset, words + usize::from(owner.is_some()));
        cells[0].store(medium, bytes.len() as u64 | u64::from(checksum(bytes)) << 32);
        write_bytes(medium, &cells[1..words], bytes);
        if let Some(owner) = owner {
            cells[words].store(medium, owner);
        }
        Ok((offset, medium.flush(cells, step)))
    }

    /// Returns the bytes of a record that was reached while pinned. A reader whose validation failed must not call
    /// this. In a damaged pool the offset may be wrong; the result is then empty.
    #[inline]
    pub fn read<'g>(&'g self, offset: u64, _pinned: &'g Guard) -> &'g [u8] {
        let (cells, len, _) = self.stored(offset);
        self.bytes_of(cells, len)
    }

    /// Returns the bytes in words. The caller is pinned while the result lives.
    #[inline(always)]
    fn bytes_of<'a>(&self, cells: &'a [Word], len: usize) -> &'a [u8] {
        debug_assert!(len <= size_of_val(cells));
        if len > 0 {
            self.pool.medium().about_to_read(cells.as_ptr().cast(), len);
        }
        // SAFETY: the words lie in the mapping. A record is published after its last store and not written again before
        // its slot is freed, which the caller's guard prevents; so no thread changes these bytes while the slice lives.
        unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), len) }
    }

    /// Frees a record once no reader can hold it. Its unlink must already be durable.
    pub fn retire(&self, offset: u64, guard: &Guard) {
        if self.spec.unswept {
            self.keep(offset);
        }
        let class = self.class_of(self.len_at(offset)) as u32;
        let queue = self.retired.queue();
        self.limbo.add(RETIRED, 1);
        // SAFETY: the closure owns what it uses, and may run on any thread.
        unsafe { guard.defer_unchecked(move || queue.push((class, offset))) };
    }

    /// Frees a record that was never published.
    pub fn free(&self, offset: u64) {
        if let Some(heap) = self.heaps[self.class_of(self.len_at(offset))].get() {
            heap.free(offset);
        }
    }

    /// Frees the records that readers have released.
    fn drain_retired(&self) {
        while let Some((class, offset)) = self.retired.pop() {
            self.limbo.add(FREED, 1);
            if let Some(heap) = self.heaps[class as usize].get() {
                heap.free(offset);
            }
        }
    }

    /// Prefetches the record that may be at an offset: at most two lines.
    #[inline]
    pub fn prefetch(&self, offset: u64) {
        self.pool.prefetch(offset);
        if offset % LINE_BYTES as u64 + self.reach.load(Relaxed) > LINE_BYTES as u64 {
            self.pool.prefetch(offset.wrapping_add(LINE_BYTES as u64));
        }
    }

    /// Marks a record as referred to by the tree during recovery. Returns whether it was unmarked. May be called from
    /// several threads, and only before [`finish_recovery`](Self::finish_recovery).
    ///
    /// # Errors
    ///
    /// [`Corrupted`](Error::Corrupted) if no record can begin there.
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

    #[cold]
    fn no_record(&self, offset: u64) -> Error {
        Error::corrupted("a dangling record reference", format!("{} at {offset:#x}", self.spec.kind))
    }

    fn header_at(&self, offset: u64) -> u64 {
        self.pool.words(offset, 1)[0].load(self.pool.medium())
    }

    /// Returns the class of the record at an offset. The header is trusted only if the record fits its chunk.
    fn class_at(&self, offset: u64) -> Result<usize> {
        let broken = || self.no_record(offset);
        let (first, chunk_bytes) = (self.pool.chunk_offset(0), self.pool.chunk_bytes());
        let end = first + self.pool.chunks_begun() * chunk_bytes;
        if !offset.is_multiple_of(8) || !(first..end).contains(&offset) {
            return Err(broken());
        }
        let len = self.header_at(offset) as u32 as usize;
        // No record extends beyond its chunk, and so none beyond the pool.
        let within = (offset - first) % chunk_bytes + (HEADER_BYTES + len) as u64 <= chunk_bytes;
        if len > VALUE_BYTES_MAX || !within {
            return Err(broken());
        }
        // A follower has no heaps.
        let class = self.class_of(len);
        if self.heaps[class].get().is_none() && !self.pool.is_followed() { Err(broken()) } else { Ok(class) }
    }

    /// Returns the bytes of a record as [`read`](Self::read) does, after comparing them with their checksum.
    ///
    /// # Errors
    ///
    /// Same as [`verify`](Self::verify).
    #[inline]
    pub fn read_verified<'g>(&'g self, offset: u64, pinned: &'g Guard) -> Result<&'g [u8]> {
        if let Some(bytes) = self.read_sound(offset, pinned) {
            return Ok(bytes);
        }
        // What has no bytes is looked at twice: an impossible length reads like zero.
        self.verify(offset).map(|()| self.read(offset, pinned))
    }

    /// As [`read_verified`](Self::read_verified), for where a call would cost too much. Returns `None` for a record
    /// without bytes, and for one that differs from its checksum.
    #[inline(always)]
    pub fn read_sound<'g>(&'g self, offset: u64, _pinned: &'g Guard) -> Option<&'g [u8]> {
        let (cells, len, sum) = self.stored(offset);
        let bytes = self.bytes_of(cells, len);
        (len > 0 && checksum(bytes) == sum).then_some(bytes)
    }

    /// Compares a record's bytes with its checksum. A mismatch is remembered: see
    /// [`is_damaged`](Self::is_damaged).
    ///
    /// # Errors
    ///
    /// [`Corrupted`](Error::Corrupted) if they differ, or no record can begin there.
    #[cold]
    pub fn verify(&self, offset: u64) -> Result<()> {
        self.compare(offset).inspect_err(|_| self.damaged.store(1, Relaxed))
    }

    fn compare(&self, offset: u64) -> Result<()> {
        self.class_at(offset)?;
        let medium = self.pool.medium();
        let header = self.header_at(offset);
        let len = header as u32 as usize;
        let mut bytes = Vec::new();
        read_bytes(medium, self.pool.words(offset + HEADER_BYTES as u64, len.div_ceil(8)), len, &mut bytes);
        if checksum(&bytes) == (header >> 32) as u32 {
            return Ok(());
        }
        Err(Error::corrupted("checksum of a record differs", format!("{} at {offset:#x}", self.spec.kind)))
    }

    /// Returns whether a damaged record was met since the tree was recovered. A saved or shared index passes this on.
    #[inline]
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Relaxed) != 0
    }

    /// Ends recovery: chunks without live records are returned to the pool.
    pub fn finish_recovery(&mut self) {
        self.marking = Marking::default();
        self.heaps.iter().filter_map(OnceLock::get).for_each(|heap| heap.finish_recovery());
    }

    /// Saves which slots are taken, once no thread writes any more: see [`Heap::save`]. Returns `None` while a
    /// reader may hold a record that the tree no longer refers to.
    pub fn save(&self, manifest: &mut Manifest) -> Option<()> {
        manifest.push(self.damaged.load(Relaxed));
        if manifest.is_live() {
            return Some(());
        }
        let is_settled = epoch::settle(|| {
            self.drain_retired();
            self.limbo() == 0
        });
        is_settled.then_some(())?;
        let heaps = || self.heaps.iter().filter_map(OnceLock::get).filter(|heap| heap.has_chunks());
        manifest.push(heaps().count() as u64);
        heaps().try_for_each(|heap| heap.save(manifest))
    }

    /// Restores records as [`save`](Self::save) saved them. Returns `None` if they were saved for other records.
    pub fn resume(
        pool: &Arc<PoolFile<M>>,
        spec: RecordSpec,
        manifest: &mut ManifestReader<'_>,
    ) -> Option<Self> {
        let damaged = AtomicU64::new(manifest.read()?);
        let records = Self { marking: Marking::default(), damaged, ..Self::open(pool, spec).ok()? };
        if manifest.is_live() {
            return Some(records);
        }
        let heaps = || records.heaps.iter().filter_map(OnceLock::get);
        let is_as_many = manifest.read()? == heaps().count() as u64;
        (is_as_many && heaps().try_for_each(|heap| heap.resume(manifest)).is_some()).then_some(records)
    }

    /// Takes over the records of a killed process that had [`save`](Self::save)d them for followers. Which slots are free
    /// is unknown until a [census](Self::begin_census).
    pub fn take_over(
        pool: &Arc<PoolFile<M>>,
        spec: RecordSpec,
        manifest: &mut ManifestReader<'_>,
    ) -> Option<Self> {
        let damaged = AtomicU64::new(manifest.read()?);
        Some(Self { damaged, ..Self::open(pool, RecordSpec { unswept: true, ..spec }).ok()? })
    }

    /// Returns the number of records that left the tree but may still be held by readers.
    pub fn limbo(&self) -> u64 {
        // Freed ones first: each of them was counted as retired before.
        let freed = self.limbo.sum(FREED);
        self.limbo.sum(RETIRED).wrapping_sub(freed)
    }

    /// Returns how many of those records readers may still hold; the others are free space.
    pub fn held(&self) -> u64 {
        self.limbo().saturating_sub(self.retired.len() as u64)
    }

    /// Returns whether readers have released records that are not yet freed.
    pub fn has_released(&self) -> bool {
        !self.retired.is_empty()
    }

    /// Returns (live records, bytes of owned chunks). Exact while no thread writes and no reader is pinned.
    pub fn stats(&self) -> (u64, u64) {
        self.drain_retired();
        self.heaps
            .iter()
            .filter_map(OnceLock::get)
            .map(|heap| heap.stats())
            .fold((0, 0), |sum, stats| (sum.0 + stats.live_slots, sum.1 + stats.chunks * stats.chunk_bytes))
    }
}
