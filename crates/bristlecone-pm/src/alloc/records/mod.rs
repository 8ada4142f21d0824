//! Byte strings out of line: the keys and values that do not fit a word.
//!
//! A record is a header word (length in bits 0-31, CRC-32C in bits 32-63) and its bytes. It is
//! written and made durable before anything refers to it, and immutable until its slot is used
//! again, which waits until no reader can hold it.
//!
//! A design whose recovery does not look at its items opens its records
//! [unswept](RecordSpec::unswept). Behind the bytes of an *owned* record one more word is
//! stored, from which a liveness callback finds out whether the tree refers to the record.

mod classes;
mod marking;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use crate::sync::epoch::{self, Guard};
use crate::sync::{AtomicU64, Ordering::Relaxed};
use crate::{
    Chunk, Error, Flushed, Heap, HeapSpec, LINE_BYTES, Liveness, Medium, Notes, NotesReader, Persist,
    PoolFile, Released, Result, SlotKind, Step, TreeId, Word, read_bytes, write_bytes,
};

pub(crate) use self::classes::is_record_class;
pub use self::classes::record_slot_bytes;
use self::classes::{CLASSES, class_of, is_class_of};
use self::marking::Marking;

/// Longest key in bytes.
pub const KEY_BYTES_MAX: usize = 16 << 10;
/// Longest value in bytes.
pub const VALUE_BYTES_MAX: usize = 128 << 10;

const HEADER_BYTES: usize = 8;
/// Bytes of a short record, with its header.
const SHORT_BYTES: usize = 48;

/// What records are kept for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordSpec {
    /// The tree that owns the chunks.
    pub owner: TreeId,
    /// What the slots hold.
    pub kind: SlotKind,
    /// Whether every record has a word of its owner.
    pub owned: bool,
    /// Whether recovery marks no record: which are live is found out when free space is needed.
    pub unswept: bool,
    /// Whether the header of a slot that never held a record is zero.
    pub tagged: bool,
}

impl RecordSpec {
    /// Returns records without owners, of which recovery marks the live ones.
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
    /// Slots whose epoch is over. Readers' last words are run by any thread, at any time, even
    /// after the pool was closed: so they own this queue and nothing more.
    retired: Released<(u32, u64)>,
    /// Records that were retired and not freed yet.
    limbo: AtomicU64,
    /// Until recovery ends.
    marking: Marking,
}

impl<M: Medium> Records<M> {
    /// Takes over the records of a tree. None counts as live until it is marked; unswept ones all do until they are
    /// swept.
    ///
    /// # Errors
    ///
    /// [`Corrupted`](Error::Corrupted) if a chunk has slots of a size that no record has.
    pub fn open(pool: &Arc<PoolFile<M>>, spec: RecordSpec) -> Result<Self> {
        let mut records = Self {
            pool: Arc::clone(pool),
            spec,
            heaps: [const { OnceLock::new() }; CLASSES.len()],
            retired: Released::new(&pool.memory()),
            limbo: AtomicU64::new(0),
            marking: Marking::default(),
        };
        let chunks = pool.chunks_of(spec.owner);
        let mut marked = Vec::new();
        for chunk in chunks.iter().filter(|chunk| chunk.kind == spec.kind) {
            let class = CLASSES.iter().position(|&bytes| bytes == chunk.slot_bytes);
            let class = class.ok_or_else(|| {
                let what = format!("no record has slots of {} bytes", chunk.slot_bytes);
                Error::corrupted(what, format!("descriptor of chunk {}", chunk.id))
            })?;
            let (slots, _) =
                records.heap_of(&chunks, class).chunk_of(chunk.offset).expect("a chunk of the heap");
            marked.push((*chunk, class, slots));
        }
        if !spec.unswept {
            records.marking = Marking::over(pool, marked);
        }
        Ok(records)
    }

    /// Returns the heap of a class; one that opening did not find has no chunks yet.
    fn heap(&self, class: usize) -> &Heap<M> {
        self.heap_of(&[], class)
    }

    fn heap_of(&self, chunks: &[Chunk], class: usize) -> &Heap<M> {
        // Two heaps over one unswept chunk would each sweep it: only one of them may begin.
        self.heaps[class].get_or_init(|| {
            let RecordSpec { owner, kind, owned: _, unswept, tagged } = self.spec;
            let spec = HeapSpec { owner, kind, slot_bytes: CLASSES[class], tagged, unswept };
            Box::new(Heap::over(chunks, &self.pool, spec))
        })
    }

    /// Returns the bytes of a record of `len`, with its owner if it has one.
    fn owned_bytes(&self, len: usize) -> usize {
        len + if self.spec.owned { HEADER_BYTES } else { 0 }
    }

    /// Returns the class that a record of `len` bytes, and its owner if it has one, is kept in.
    fn class_of(&self, len: usize) -> usize {
        class_of(self.owned_bytes(len))
    }

    /// Makes sure that a record of `len` bytes can be written soon without a sweep.
    ///
    /// # Errors
    ///
    /// As [`Heap::alloc`].
    pub fn prepare(&self, len: usize, is_live: Liveness<'_>) -> Result<()> {
        self.drain_retired();
        self.heap(self.class_of(len)).prepare(is_live)
    }

    /// Sweeps every slot.
    pub fn sweep_all(&self, is_live: Liveness<'_>) {
        self.heaps.iter().filter_map(OnceLock::get).for_each(|heap| heap.sweep_all(is_live));
    }

    /// Keeps a live record that is about to leave the tree: see [`Heap::keep`].
    pub fn keep(&self, offset: u64) {
        let len = self.len_at(offset);
        if let Some(heap) = self.heaps.get(self.class_of(len)).and_then(OnceLock::get) {
            heap.keep(offset);
        }
    }

    /// Writes an owned record and its owner: as [`write`](Self::write).
    ///
    /// # Errors
    ///
    /// As [`Heap::alloc`].
    pub fn write_owned(&self, bytes: &[u8], owner: u64, step: Step) -> Result<(u64, Flushed)> {
        self.write_record(bytes, Some(owner), step)
    }

    fn owner_cell(&self, offset: u64, len: usize) -> &Word {
        self.pool.at(offset + (HEADER_BYTES + len.next_multiple_of(8)) as u64)
    }

    /// Returns the owner of the record at an offset of an unswept slot; `None` if no record can be there.
    pub fn owner_at(&self, offset: u64) -> Option<u64> {
        self.plausible(offset).map(|len| self.owner_cell(offset, len).load(self.pool.medium()))
    }

    /// Sets another owner of a live record; durable after the fence.
    pub fn set_owner(&self, offset: u64, owner: u64, step: Step) -> Flushed {
        let cell = self.owner_cell(offset, self.len_at(offset));
        cell.store(self.pool.medium(), owner);
        self.pool.medium().flush(cell, step)
    }

    /// Returns the length of a record that may be at an offset.
    fn plausible(&self, offset: u64) -> Option<usize> {
        let class = self.class_at(offset).ok()?;
        self.pool.holds(offset, u64::from(CLASSES[class])).then(|| self.len_at(offset))
    }

    /// Returns whether the record at an offset has no bytes, or there never was one.
    pub fn is_empty_at(&self, offset: u64) -> bool {
        self.len_at(offset) == 0
    }

    /// Returns whether a record may be at an offset.
    pub fn is_plausible(&self, offset: u64) -> bool {
        self.plausible(offset).is_some()
    }

    /// Returns the length that a header claims, or zero if that cannot be.
    fn len_at(&self, offset: u64) -> usize {
        if !self.pool.holds(offset, HEADER_BYTES as u64) {
            return 0;
        }
        let len = self.header_at(offset) as u32 as usize;
        let fits = len <= VALUE_BYTES_MAX && self.pool.holds(offset, (HEADER_BYTES + len) as u64);
        if fits { len } else { 0 }
    }

    /// Writes a record and returns its offset, on its way to the medium. Nothing may refer to it before the
    /// fence.
    ///
    /// # Errors
    ///
    /// As [`Heap::alloc`].
    pub fn write(&self, bytes: &[u8], step: Step) -> Result<(u64, Flushed)> {
        self.write_record(bytes, None, step)
    }

    fn write_record(&self, bytes: &[u8], owner: Option<u64>, step: Step) -> Result<(u64, Flushed)> {
        assert!(
            bytes.len() <= VALUE_BYTES_MAX && owner.is_some() == self.spec.owned,
            "no record of this kind"
        );
        self.drain_retired();
        let offset = self.heap(self.class_of(bytes.len())).alloc()?;
        let medium = self.pool.medium();
        let words = 1 + bytes.len().div_ceil(8);
        let cells = self.pool.words(offset, words + usize::from(owner.is_some()));
        cells[0].store(medium, bytes.len() as u64 | u64::from(crc32c::crc32c(bytes)) << 32);
        write_bytes(medium, &cells[1..words], bytes);
        if let Some(owner) = owner {
            cells[words].store(medium, owner);
        }
        Ok((offset, medium.flush(cells, step)))
    }

    /// Returns the bytes of a record that was reached while pinned. A reader that was too late for its
    /// tree's validation never gets here. In a damaged pool an offset may be that of no record:
    /// then there are no bytes.
    pub fn read<'g>(&'g self, offset: u64, _pinned: &'g Guard) -> &'g [u8] {
        let medium = self.pool.medium();
        let len = self.len_at(offset);
        if len == 0 {
            return &[];
        }
        let cells = self.pool.words(offset + HEADER_BYTES as u64, len.div_ceil(8));
        medium.about_to_read(cells.as_ptr().cast(), len);
        // SAFETY: the words lie in the mapping. A record is published after its last store and not
        // written again before its slot is freed, which the guard holds off; so no thread changes
        // these bytes while the slice lives.
        unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), len) }
    }

    /// Frees a record once no reader can hold it. Its unlink is durable already.
    pub fn retire(&self, offset: u64, guard: &Guard) {
        let class = self.class_of(self.len_at(offset)) as u32;
        let queue = self.retired.queue();
        self.limbo.fetch_add(1, Relaxed);
        // SAFETY: the closure owns what it uses, and may run on any thread.
        unsafe { guard.defer_unchecked(move || queue.push((class, offset))) };
    }

    /// Frees a record that was never published.
    pub fn free(&self, offset: u64) {
        if let Some(heap) = self.heaps[self.class_of(self.len_at(offset))].get() {
            heap.free(offset);
        }
    }

    /// Frees what readers have released.
    fn drain_retired(&self) {
        while let Some((class, offset)) = self.retired.pop() {
            self.limbo.fetch_sub(1, Relaxed);
            if let Some(heap) = self.heaps[class as usize].get() {
                heap.free(offset);
            }
        }
    }

    /// Prefetches a record that may be at an offset, if it is not long.
    #[inline]
    pub fn prefetch(&self, offset: u64) {
        self.pool.prefetch(offset);
        if offset % LINE_BYTES as u64 > (LINE_BYTES - SHORT_BYTES) as u64 {
            self.pool.prefetch(offset.wrapping_add(LINE_BYTES as u64));
        }
    }

    /// Marks a record that the tree refers to, at recovery, and returns whether it is the first time. May be called
    /// from several threads, and only before [`finish_recovery`](Self::finish_recovery).
    ///
    /// # Errors
    ///
    /// [`Corrupted`](Error::Corrupted) if no record can be there.
    pub fn mark_live(&self, offset: u64) -> Result<bool> {
        let (class, slots) = self.marking.chunk_of(offset).ok_or_else(|| self.no_record(offset))?;
        let (within, slot_bytes) = ((offset - slots.offset) as u32, CLASSES[class]);
        let is_slot = within.is_multiple_of(slot_bytes)
            && u64::from(within) + u64::from(slot_bytes) <= self.pool.chunk_bytes();
        if !is_slot || !self.is_of_class(self.header_at(offset), class) {
            return Err(self.no_record(offset));
        }
        Ok(slots.mark((within / slot_bytes) as usize))
    }

    fn is_of_class(&self, header: u64, class: usize) -> bool {
        let len = header as u32 as usize;
        len <= VALUE_BYTES_MAX && is_class_of(class, self.owned_bytes(len))
    }

    fn no_record(&self, offset: u64) -> Error {
        Error::corrupted("a reference to no record", format!("{} at {offset:#x}", self.spec.kind))
    }

    fn header_at(&self, offset: u64) -> u64 {
        self.pool.words(offset, 1)[0].load(self.pool.medium())
    }

    /// Returns the class of the record at an offset, its header believed only if it fits its chunk.
    fn class_at(&self, offset: u64) -> Result<usize> {
        let broken = || self.no_record(offset);
        let (first, chunk_bytes) = (self.pool.chunk_offset(0), self.pool.chunk_bytes());
        let end = first + self.pool.chunks_begun() * chunk_bytes;
        if !offset.is_multiple_of(8) || !(first..end).contains(&offset) {
            return Err(broken());
        }
        let len = self.header_at(offset) as u32 as usize;
        // No record reaches beyond its chunk, nor then beyond the pool.
        let within = (offset - first) % chunk_bytes + (HEADER_BYTES + len) as u64 <= chunk_bytes;
        if len > VALUE_BYTES_MAX || !within {
            return Err(broken());
        }
        // A follower has no heaps.
        let class = self.class_of(len);
        if self.heaps[class].get().is_none() && !self.pool.is_followed() { Err(broken()) } else { Ok(class) }
    }

    /// Compares a record's bytes with its checksum.
    ///
    /// # Errors
    ///
    /// [`Corrupted`](Error::Corrupted) if they differ, or no record can be there.
    pub fn verify(&self, offset: u64) -> Result<()> {
        self.class_at(offset)?;
        let medium = self.pool.medium();
        let header = self.header_at(offset);
        let len = header as u32 as usize;
        let mut bytes = Vec::new();
        read_bytes(medium, self.pool.words(offset + HEADER_BYTES as u64, len.div_ceil(8)), len, &mut bytes);
        if crc32c::crc32c(&bytes) == (header >> 32) as u32 {
            return Ok(());
        }
        Err(Error::corrupted("checksum of a record differs", format!("{} at {offset:#x}", self.spec.kind)))
    }

    /// Ends recovery: chunks without live records go back to the pool.
    pub fn finish_recovery(&mut self) {
        self.marking = Marking::default();
        self.heaps.iter().filter_map(OnceLock::get).for_each(|heap| heap.finish_recovery());
    }

    /// Notes which slots are taken, once no thread writes any more: see [`Heap::suspend`]. `None` while a reader, as far as
    /// is known, holds a record that the tree no longer refers to.
    pub fn suspend(&self, notes: &mut Notes) -> Option<()> {
        if notes.are_live() {
            return Some(());
        }
        let is_settled = epoch::settle(|| {
            self.drain_retired();
            self.limbo() == 0
        });
        is_settled.then_some(())?;
        let heaps = || self.heaps.iter().filter_map(OnceLock::get).filter(|heap| heap.has_chunks());
        notes.push(heaps().count() as u64);
        heaps().try_for_each(|heap| heap.suspend(notes))
    }

    /// Takes over records as [`suspend`](Self::suspend) noted them. `None`: it noted others.
    pub fn resume(pool: &Arc<PoolFile<M>>, spec: RecordSpec, notes: &mut NotesReader<'_>) -> Option<Self> {
        let records = Self { marking: Marking::default(), ..Self::open(pool, spec).ok()? };
        if notes.are_live() {
            return Some(records);
        }
        let heaps = || records.heaps.iter().filter_map(OnceLock::get);
        let is_as_many = notes.read()? == heaps().count() as u64;
        (is_as_many && heaps().try_for_each(|heap| heap.resume(notes)).is_some()).then_some(records)
    }

    /// Returns how many records the tree refers to no longer, but readers may still hold.
    pub fn limbo(&self) -> u64 {
        self.limbo.load(Relaxed)
    }

    /// Returns how many of those readers do hold still, as far as is known; the others are free space.
    pub fn held(&self) -> u64 {
        self.limbo().saturating_sub(self.retired.len() as u64)
    }

    /// Returns whether readers have released some that are not free yet.
    pub fn has_released(&self) -> bool {
        !self.retired.is_empty()
    }

    /// Returns (records live, bytes of chunks owned). Exact while no thread writes and no reader is pinned.
    pub fn stats(&self) -> (u64, u64) {
        self.drain_retired();
        self.heaps
            .iter()
            .filter_map(OnceLock::get)
            .map(|heap| heap.stats())
            .fold((0, 0), |sum, stats| (sum.0 + stats.live_slots, sum.1 + stats.chunks * stats.chunk_bytes))
    }
}
