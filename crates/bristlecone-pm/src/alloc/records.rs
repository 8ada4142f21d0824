//! Byte strings out of line: the keys and values that do not fit a word.
//!
//! A record is a header word (length in bits 0-31, CRC-32C in bits 32-63) and its bytes. It is
//! written and made durable before anything refers to it, and immutable until its slot is used
//! again, which waits until no reader can hold it.
//!
//! A design whose recovery does not look at its items opens its records
//! [unswept](RecordSpec::unswept). Behind the bytes of an *owned* record stands one more
//! word, from which a judge can tell whether the tree refers to the record.

use std::sync::{Arc, OnceLock};

use crate::sync::epoch::Guard;
use crate::sync::{AtomicU64, Ordering::Relaxed};
use crossbeam_queue::SegQueue;

use crate::{
    Chunk, Error, Flushed, Heap, HeapSpec, Judge, Medium, Persist, PoolFile, Result, SlotKind, Step, TreeId,
    Word, read_bytes, write_bytes,
};

/// Longest key in bytes.
pub const KEY_BYTES_MAX: usize = 16 << 10;
/// Longest value in bytes.
pub const VALUE_BYTES_MAX: usize = 128 << 10;

const HEADER_BYTES: usize = 8;

/// Slot sizes: two to an octave, from 16 B to beyond the longest record.
const CLASSES: [u32; 28] = [
    16,
    24,
    32,
    48,
    64,
    96,
    128,
    192,
    256,
    384,
    512,
    768,
    1 << 10,
    1536,
    2 << 10,
    3 << 10,
    4 << 10,
    6 << 10,
    8 << 10,
    12 << 10,
    16 << 10,
    24 << 10,
    32 << 10,
    48 << 10,
    64 << 10,
    96 << 10,
    128 << 10,
    192 << 10,
];

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
    retired: Arc<SegQueue<(u32, u64)>>,
    /// Records that were retired and not freed yet.
    limbo: AtomicU64,
}

impl<M: Medium> Records<M> {
    /// Takes over the records of a tree. None counts as live until it is marked; unswept ones all do until they are
    /// swept.
    ///
    /// # Errors
    ///
    /// [`Corrupted`](Error::Corrupted) if a chunk has slots of a size that no record has.
    pub fn open(pool: &Arc<PoolFile<M>>, spec: RecordSpec) -> Result<Self> {
        let records = Self {
            pool: Arc::clone(pool),
            spec,
            heaps: [const { OnceLock::new() }; CLASSES.len()],
            retired: Arc::default(),
            limbo: AtomicU64::new(0),
        };
        let chunks = pool.chunks_of(spec.owner);
        for chunk in chunks.iter().filter(|chunk| chunk.kind == spec.kind) {
            let class = CLASSES.iter().position(|&bytes| bytes == chunk.slot_bytes);
            let class = class.ok_or_else(|| {
                let what = format!("no record has slots of {} bytes", chunk.slot_bytes);
                Error::corrupted(what, format!("descriptor of chunk {}", chunk.id))
            })?;
            records.heap_of(&chunks, class);
        }
        Ok(records)
    }

    /// The heap of a class; one that opening did not find has no chunks yet.
    fn heap(&self, class: usize) -> &Heap<M> {
        self.heap_of(&[], class)
    }

    fn heap_of(&self, chunks: &[Chunk], class: usize) -> &Heap<M> {
        // Two heaps over one unsettled chunk would each judge it: only one of them may begin.
        self.heaps[class].get_or_init(|| {
            let RecordSpec { owner, kind, owned: _, unswept, tagged } = self.spec;
            let spec = HeapSpec { owner, kind, slot_bytes: CLASSES[class], tagged, unswept };
            Box::new(Heap::over(chunks, &self.pool, spec))
        })
    }

    /// The class that a record of `len` bytes, and its owner if it has one, is kept in.
    fn class_of(&self, len: usize) -> usize {
        class_of(len + if self.spec.owned { HEADER_BYTES } else { 0 })
    }

    /// Sees to it that a record of `len` bytes can be written soon without a judge.
    pub fn prepare(&self, len: usize, judge: Judge<'_>) -> Result<()> {
        self.drain_retired();
        self.heap(self.class_of(len)).prepare(judge)
    }

    /// Has every unsettled slot judged.
    pub fn settle_all(&self, judge: Judge<'_>) {
        self.heaps.iter().filter_map(OnceLock::get).for_each(|heap| heap.settle_all(judge));
    }

    /// The record is live and about to leave the tree: see [`Heap::keep`].
    pub fn keep(&self, offset: u64) {
        let len = self.len_at(offset);
        if let Some(heap) = self.heaps.get(self.class_of(len)).and_then(OnceLock::get) {
            heap.keep(offset);
        }
    }

    /// Writes an owned record and its owner: as [`write`](Self::write).
    pub fn write_owned(&self, bytes: &[u8], owner: u64, step: Step) -> Result<(u64, Flushed)> {
        self.write_record(bytes, Some(owner), step)
    }

    fn owner_cell(&self, offset: u64, len: usize) -> &Word {
        self.pool.at(offset + (HEADER_BYTES + len.next_multiple_of(8)) as u64)
    }

    /// The owner of the record at an offset of an unsettled slot; `None` if none can stand there.
    pub fn owner_at(&self, offset: u64) -> Option<u64> {
        self.plausible(offset).map(|len| self.owner_cell(offset, len).load(self.pool.medium()))
    }

    /// Gives a live record another owner; durable after the fence.
    pub fn set_owner(&self, offset: u64, owner: u64, step: Step) -> Flushed {
        let cell = self.owner_cell(offset, self.len_at(offset));
        cell.store(self.pool.medium(), owner);
        self.pool.medium().flush(cell, step)
    }

    /// The length of a record that may stand at an offset.
    fn plausible(&self, offset: u64) -> Option<usize> {
        let class = self.class_at(offset).ok()?;
        self.pool.holds(offset, u64::from(CLASSES[class])).then(|| self.len_at(offset))
    }

    /// Whether the record at an offset has no bytes, or there never was one.
    pub fn is_empty_at(&self, offset: u64) -> bool {
        self.len_at(offset) == 0
    }

    /// Whether a record may stand at an offset.
    pub fn is_plausible(&self, offset: u64) -> bool {
        self.plausible(offset).is_some()
    }

    /// The length that a header claims, or zero if that cannot be.
    fn len_at(&self, offset: u64) -> usize {
        if !self.pool.holds(offset, HEADER_BYTES as u64) {
            return 0;
        }
        let len = self.pool.words(offset, 1)[0].load(self.pool.medium()) as u32 as usize;
        let fits = len <= VALUE_BYTES_MAX && self.pool.holds(offset, (HEADER_BYTES + len) as u64);
        if fits { len } else { 0 }
    }

    /// Writes a record: its offset, on its way to the medium. Nobody may refer to it before the
    /// fence.
    pub fn write(&self, bytes: &[u8], step: Step) -> Result<(u64, Flushed)> {
        self.write_record(bytes, None, step)
    }

    fn write_record(&self, bytes: &[u8], owner: Option<u64>, step: Step) -> Result<(u64, Flushed)> {
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

    /// The bytes of a record that was reached while pinned. A reader who was too late for its
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
        // written again before its slot is freed, which the guard holds off; so nobody changes
        // these bytes while the slice lives.
        unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), len) }
    }

    /// Frees a record once no reader can hold it. Its unlink is durable already.
    pub fn retire(&self, offset: u64, guard: &Guard) {
        let class = self.class_of(self.len_at(offset)) as u32;
        let queue = Arc::clone(&self.retired);
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

    /// Frees what readers have let go of.
    fn drain_retired(&self) {
        while let Some((class, offset)) = self.retired.pop() {
            self.limbo.fetch_sub(1, Relaxed);
            if let Some(heap) = self.heaps[class as usize].get() {
                heap.free(offset);
            }
        }
    }

    /// Recovery: the tree refers to this record. `true`: for the first time. `Corrupted` if no
    /// record can stand there.
    pub fn mark_live(&self, offset: u64) -> Result<bool> {
        self.heaps[self.class_at(offset)?].get().map_or(Ok(false), |heap| heap.mark_live(offset))
    }

    /// The class of the record at an offset, its header believed only if it fits its chunk.
    fn class_at(&self, offset: u64) -> Result<usize> {
        let broken =
            || Error::corrupted("a reference to no record", format!("{} at {offset:#x}", self.spec.kind));
        let (first, chunk_bytes) = (self.pool.chunk_offset(0), self.pool.chunk_bytes());
        let end = first + self.pool.chunk_counts().1 * chunk_bytes;
        if !offset.is_multiple_of(8) || !(first..end).contains(&offset) {
            return Err(broken());
        }
        let len = self.pool.words(offset, 1)[0].load(self.pool.medium()) as u32 as usize;
        // No record reaches beyond its chunk, nor then beyond the pool.
        let within = (offset - first) % chunk_bytes + (HEADER_BYTES + len) as u64 <= chunk_bytes;
        if len > VALUE_BYTES_MAX || !within || self.heaps[self.class_of(len)].get().is_none() {
            return Err(broken());
        }
        Ok(self.class_of(len))
    }

    /// Compares a record's bytes with its checksum.
    pub fn verify(&self, offset: u64) -> Result<()> {
        self.class_at(offset)?;
        let medium = self.pool.medium();
        let header = self.pool.words(offset, 1)[0].load(medium);
        let len = header as u32 as usize;
        let mut bytes = Vec::new();
        read_bytes(medium, self.pool.words(offset + HEADER_BYTES as u64, len.div_ceil(8)), len, &mut bytes);
        if crc32c::crc32c(&bytes) == (header >> 32) as u32 {
            return Ok(());
        }
        Err(Error::corrupted("checksum of a record differs", format!("{} at {offset:#x}", self.spec.kind)))
    }

    /// Recovery is over: chunks without live records go back to the pool.
    pub fn finish_recovery(&self) {
        self.heaps.iter().filter_map(OnceLock::get).for_each(|heap| heap.finish_recovery());
    }

    /// Records that the tree refers to no longer, but that readers may still hold.
    pub fn limbo(&self) -> u64 {
        self.limbo.load(Relaxed)
    }

    /// Returns how many of those readers do hold still, as far as is known; the others are room.
    pub fn held(&self) -> u64 {
        self.limbo().saturating_sub(self.retired.len() as u64)
    }

    /// Returns whether readers have let go of some that are not free yet.
    pub fn has_let_go(&self) -> bool {
        !self.retired.is_empty()
    }

    /// (records live, bytes of chunks owned). Exact while nobody writes and no reader is pinned.
    pub fn stats(&self) -> (u64, u64) {
        self.drain_retired();
        self.heaps
            .iter()
            .filter_map(OnceLock::get)
            .map(|heap| heap.stats())
            .fold((0, 0), |sum, stats| (sum.0 + stats.live_slots, sum.1 + stats.chunks * stats.chunk_bytes))
    }
}

/// Whether records stand in slots of this size.
pub(crate) fn is_record_class(slot_bytes: u32) -> bool {
    CLASSES.contains(&slot_bytes)
}

/// The smallest class that holds a record of `len` bytes.
fn class_of(len: usize) -> usize {
    CLASSES.partition_point(|&bytes| (bytes as usize) < len + HEADER_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CHUNK_BYTES, Domain, Geometry, Native, Region, TreeSpec};

    fn records() -> (Arc<PoolFile<Native>>, Records<Native>) {
        let geometry = Geometry { chunk_bytes: CHUNK_BYTES, chunks_max: 64, trees_max: 2 };
        let region = Region::memory(geometry.max_bytes()).unwrap();
        let medium = Native::new(Domain::Adr);
        let pool = PoolFile::create_in(region, geometry, Domain::Adr, medium).unwrap();
        let spec = TreeSpec {
            name: "t".into(),
            design: 1,
            key_kind: "bytes".into(),
            value_kind: "bytes".into(),
            params: [0; 8],
        };
        let id = pool.create_tree(&spec).unwrap().id;
        let records = Records::open(&pool, RecordSpec::new(id, SlotKind::KEY_RECORD)).unwrap();
        (pool, records)
    }

    #[test]
    fn every_length_comes_back() {
        let (pool, records) = records();
        let guard = crate::sync::epoch::pin();
        let bytes: Vec<u8> = (0..VALUE_BYTES_MAX).map(|i| (i * 31) as u8).collect();
        for len in (0..300).chain([4096, 16 << 10, 65_535, 65_536, VALUE_BYTES_MAX]) {
            let (offset, flushed) = records.write(&bytes[..len], "test").unwrap();
            let _durable = pool.medium().fence(flushed, "test");
            assert_eq!(records.read(offset, &guard), &bytes[..len]);
            records.verify(offset).unwrap();
        }
    }

    #[test]
    fn a_pinned_reader_keeps_the_bytes() {
        let (_pool, records) = records();
        let (offset, _flushed) = records.write(b"kept while read", "test").unwrap();
        let reader = crate::sync::epoch::pin();
        let bytes = records.read(offset, &reader);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                records.retire(offset, &crate::sync::epoch::pin());
                for round in 0..2000_u32 {
                    let guard = crate::sync::epoch::pin();
                    guard.flush();
                    let (other, _flushed) = records.write(&round.to_le_bytes().repeat(3), "test").unwrap();
                    assert_ne!(other, offset);
                }
            });
        });
        assert_eq!(bytes, b"kept while read");
    }

    #[test]
    fn what_readers_let_go_is_used_again() {
        let (_pool, records) = records();
        for round in 0..200_000_u64 {
            let (offset, _flushed) = records.write(&[round as u8; 100], "test").unwrap();
            records.retire(offset, &crate::sync::epoch::pin());
        }
        assert!(records.stats().1 <= 4 * CHUNK_BYTES, "{:?}", records.stats());
    }

    #[test]
    fn nonsense_is_no_record() {
        let (pool, records) = records();
        let (offset, _flushed) = records.write(b"right", "test").unwrap();
        for wrong in [0, 8, offset + 1, offset + 8, u64::MAX, u64::MAX - 7, 1 << 40] {
            assert!(records.mark_live(wrong).and(records.verify(wrong)).is_err(), "{wrong:#x}");
        }
        pool.at::<Word>(offset + 8).store(pool.medium(), 1);
        assert!(matches!(records.verify(offset), Err(Error::Corrupted { .. })));
    }
}
