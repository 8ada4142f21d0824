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
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::sync::{Arc, OnceLock};

use crate::counts::Counts;
use crate::sync::epoch::{self, Guard};
use crate::sync::{AtomicU64, Ordering::Relaxed};
use crate::{
    Chunk, Error, Heap, HeapSpec, Liveness, Manifest, ManifestReader, Medium, PoolFile, Released, Result,
    SlotKind, TreeId,
};

pub use self::census::Census;
use self::checksum::checksum;
pub(crate) use self::classes::is_record_class;
use self::classes::{CLASSES, class_of};
pub use self::classes::{record_bytes_max, record_slot_bytes};
use self::marking::Marking;
pub use self::marking::{AllMarks, Marks};

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

    #[cold]
    fn no_record(&self, offset: u64) -> Error {
        Error::corrupted("a dangling record reference", format!("{} at {offset:#x}", self.spec.kind))
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
