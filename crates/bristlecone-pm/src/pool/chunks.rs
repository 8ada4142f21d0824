//! Chunks and their owners: one descriptor word per chunk.

use std::panic::resume_unwind;
use std::thread::{Builder, ScopedJoinHandle};
use std::time::Instant;

use super::PoolFile;
use super::backing::{PAGE_BYTES, data};
use super::layout::{COMMITS_OWNER, Descriptor, ENTRY_FREE, SlotKind};
use super::spec::TreeId;
use crate::sync::Ordering::Relaxed;
use crate::{Error, Medium, Persist, Result, Word, thread_index};

/// A chunk that belongs to a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its number.
    pub id: u32,
    /// The kind of its slots' contents.
    pub kind: SlotKind,
    /// Bytes of a slot.
    pub slot_bytes: u32,
    /// Offset in the pool.
    pub offset: u64,
}

/// The chunks that can be handed out.
#[derive(Debug, Default)]
pub(super) struct FreeChunks {
    /// Freed chunks, most recent last. The medium has bytes for them.
    pub(super) free: Vec<u32>,
    /// Chunks within the file for which the medium may have no bytes.
    pub(super) bare: Vec<u32>,
    /// Chunks below this number lie within the file.
    pub(super) begun: u32,
    /// Whether the medium had no bytes for the last chunk requested.
    refused: bool,
    /// Number of times since then that a thread asked for the available space.
    asked: u32,
    /// Chunks reserved for operations that must not fail. The medium has bytes for them.
    pub(super) spare: Vec<u32>,
    /// By thread, how many of the spare chunks it may still take.
    pub(super) set_aside: Vec<(usize, usize)>,
}

/// Set in the result of `chunks_available` while the medium has no space.
pub(super) const REFUSED: u64 = 1 << 63;
/// Set in the result of `chunks_available` while chunks are set aside for threads.
pub(super) const SET_ASIDE: u64 = 1 << 62;
/// Number of calls after which the medium is asked again for space.
const ASKED_AGAIN: u32 = 1024;

impl FreeChunks {
    /// Records that the medium has no space, if the error says so.
    fn note(&mut self, error: &Error) {
        if error.is_no_room() {
            (self.refused, self.asked) = (true, 0);
        }
    }

    /// Returns how many chunks can be handed out; while the medium has no space, only those that are backed.
    fn available(&self, chunks_max: u64) -> u64 {
        let free = (self.free.len() + self.idle()) as u64;
        let flags = if self.set_aside.is_empty() { 0 } else { SET_ASIDE };
        if self.refused {
            return free | REFUSED | flags;
        }
        (chunks_max.saturating_sub(self.begun.into()) + free + self.bare.len() as u64) | flags
    }
}

impl<M: Medium> PoolFile<M> {
    pub(super) fn descriptor(&self, id: u32) -> &Word {
        assert!(u64::from(id) < self.geometry.chunks_max, "a chunk beyond the pool");
        self.at(self.geometry.descriptors_offset() + u64::from(id) * 8)
    }

    pub(crate) fn chunk_offset(&self, id: u32) -> u64 {
        self.geometry.header_bytes() + u64::from(id) * self.geometry.chunk_bytes
    }

    /// Returns the size of a chunk in bytes.
    pub fn chunk_bytes(&self) -> u64 {
        self.geometry.chunk_bytes
    }

    /// Returns every chunk of a tree. Empty for a follower, which gets all locations from the writer.
    pub fn chunks_of(&self, tree: TreeId) -> Vec<Chunk> {
        let begun = self.lock_chunks().begun;
        self.chunks_among(begun, tree)
    }

    /// Returns the current chunks of a tree in a pool that is followed.
    pub fn chunks_now_of(&self, tree: TreeId) -> Vec<Chunk> {
        self.chunks_among(self.geometry.chunks_within(self.region.len_now()) as u32, tree)
    }

    fn chunks_among(&self, begun: u32, tree: TreeId) -> Vec<Chunk> {
        let owned = |id| match Descriptor::decode(self.descriptor(id).load(self.medium()))? {
            Descriptor::Owned { owner, kind, slot_bytes } if owner == tree.0 => {
                Some(Chunk { id, kind, slot_bytes, offset: self.chunk_offset(id) })
            }
            _ => None,
        };
        (0..begun).filter_map(owned).collect()
    }

    /// Allocates a chunk to a tree. Before the chunk has its owner, the first words of its first `tags` slots, or
    /// of all, are durably zero, and the file durably includes the chunk.
    pub(crate) fn chunk_alloc(
        &self,
        owner: TreeId,
        kind: SlotKind,
        slot_bytes: u32,
        tags: u64,
    ) -> Result<Chunk> {
        let whole = slot_bytes.is_multiple_of(8) && u64::from(slot_bytes) <= self.geometry.chunk_bytes;
        assert!(slot_bytes > 0 && whole, "slots of {slot_bytes} bytes");
        let begun = Instant::now();
        let id = self.take_chunk()?;
        self.events().note_chunk(begun.elapsed());
        let offset = self.chunk_offset(id);
        let (descriptor, medium) = (self.descriptor(id), self.medium());
        let last = self.at::<Word>(offset + self.geometry.chunk_bytes - size_of::<Word>() as u64);
        let mut flushed = last.extend(medium);
        if Descriptor::decode(descriptor.load(medium)) != Some(Descriptor::Fresh) {
            // A log's tag has a copy behind it, in its line.
            let words = if kind == SlotKind::LOG { 2 } else { 1 };
            for slot in 0..tags.min(self.geometry.chunk_bytes / u64::from(slot_bytes)) {
                let tag = self.words(offset + slot * u64::from(slot_bytes), words);
                tag.iter().for_each(|word| word.store(medium, 0));
                flushed = flushed.and(medium.flush(tag, "pool chunk_alloc.1"));
            }
        }
        let durable = medium.fence(flushed, "pool chunk_alloc.1");
        if let Err(error) = self.health() {
            self.put_chunks(std::iter::once(id));
            return Err(error);
        }
        let word = Descriptor::Owned { owner: owner.0, kind, slot_bytes }.encode();
        descriptor.publish(medium, word, &durable, "pool chunk_alloc.2");
        medium.persist(descriptor, "pool chunk_alloc.2");
        Ok(Chunk { id, kind, slot_bytes, offset })
    }

    /// Takes a chunk that the medium has bytes for; a spare one if there is no other.
    fn take_chunk(&self) -> Result<u32> {
        match self.take_unspared_chunk() {
            Err(error) if error.is_no_room() => {
                self.with_chunks(|chunks| chunks.take_spare(thread_index())).ok_or(error)
            }
            taken => taken,
        }
    }

    pub(super) fn take_unspared_chunk(&self) -> Result<u32> {
        loop {
            let chunk = self.reserve_chunk()?;
            match self.back_chunk(chunk) {
                Ok(()) => return Ok(chunk.0),
                // A sparse copy of a pool has no bytes for free chunks; the next chunk may have some.
                Err(error) if chunk.1 && error.is_no_room() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reserves the number of a chunk within the file, and returns whether the medium should have bytes for it.
    fn reserve_chunk(&self) -> Result<(u32, bool)> {
        self.with_chunks(|chunks| match chunks.free.pop() {
            Some(id) => Ok((id, true)),
            None => self.reserve_bare(chunks).map(|id| (id, false)),
        })
    }

    /// Reserves a chunk that is not backed; grows the file if necessary.
    fn reserve_bare(&self, chunks: &mut FreeChunks) -> Result<u32> {
        if let Some(id) = chunks.bare.pop() {
            return Ok(id);
        }
        if u64::from(chunks.begun) >= self.chunks_reachable() {
            return Err(Error::PoolFull { max_bytes: self.reachable_bytes() });
        }
        let id = chunks.begun;
        let grown = self
            .back_descriptor(id)
            .and_then(|()| self.asked_for_room(id))
            .and_then(|()| self.region.grow(self.chunk_offset(id) + self.geometry.chunk_bytes));
        grown.inspect_err(|error| chunks.note(error))?;
        chunks.begun += 1;
        Ok(id)
    }

    /// Backs a reserved chunk unless it is already backed. On `Err`, the reservation is dropped.
    fn back_chunk(&self, (id, backed): (u32, bool)) -> Result<()> {
        let provided = self.region.populate(self.chunk_offset(id), self.geometry.chunk_bytes);
        if provided.is_ok() && backed {
            return Ok(());
        }
        let provided = provided.and_then(|()| self.asked_for_room(id));
        self.with_chunks(|chunks| match &provided {
            Ok(()) => chunks.refused = false,
            Err(error) => {
                chunks.bare.push(id);
                chunks.note(error);
            }
        });
        provided
    }

    /// Requests the bytes of a chunk from the medium.
    fn asked_for_room(&self, id: u32) -> Result<()> {
        let bytes = self.chunk_offset(id) + self.geometry.chunk_bytes;
        if self.medium().has_room() { Ok(()) } else { Err(Error::MediumFull { bytes }) }
    }

    /// Changes which chunks can be handed out, and updates their number.
    pub(super) fn with_chunks<R>(&self, change: impl FnOnce(&mut FreeChunks) -> R) -> R {
        let mut chunks = self.lock_chunks();
        let done = change(&mut chunks);
        self.chunks_available.store(chunks.available(self.chunks_reachable()), Relaxed);
        done
    }

    /// Returns backed chunks to the pool.
    fn put_chunks(&self, ids: impl IntoIterator<Item = u32>) {
        self.with_chunks(|chunks| {
            for id in ids {
                debug_assert!(id < chunks.begun && !chunks.free.contains(&id), "a chunk was freed twice");
                chunks.free.push(id);
            }
        });
    }

    /// Removes the owner of a chunk, durably, before another tree can get it.
    pub(crate) fn chunk_free(&self, id: u32) {
        let (descriptor, medium) = (self.descriptor(id), self.medium());
        descriptor.store(medium, Descriptor::Free.encode());
        medium.persist(descriptor, "pool chunk_free");
        self.put_chunks([id]);
    }

    /// Allocates space for `bytes` of chunks in advance, so that later growth causes no page faults.
    ///
    /// # Errors
    ///
    /// [`ReadOnly`](Error::ReadOnly), [`Forked`](Error::Forked), [`MediumFull`](Error::MediumFull), and errors of
    /// the system.
    pub fn prefault(&self, bytes: u64) -> Result<()> {
        self.writable()?;
        let mut reserved = Vec::new();
        let mut result = Ok(());
        for _ in 0..bytes.div_ceil(self.geometry.chunk_bytes) {
            match self.reserve_chunk() {
                Ok(chunk) => reserved.push(chunk),
                Err(Error::PoolFull { .. }) => break,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let share = reserved.len().div_ceil(threads).max(1);
        let parts = std::thread::scope(|scope| {
            // If a thread cannot be started, this thread does its share.
            let start =
                |part| Builder::new().spawn_scoped(scope, move || self.back_chunks(part)).map_err(|_| part);
            let workers: Vec<_> = reserved.chunks(share).map(start).collect();
            let finish = |worker: std::result::Result<ScopedJoinHandle<'_, _>, _>| match worker {
                Ok(worker) => worker.join().unwrap_or_else(|panic| resume_unwind(panic)),
                Err(part) => self.back_chunks(part),
            };
            workers.into_iter().map(finish).collect::<Vec<_>>()
        });
        let (mut backed, mut populated) = (Vec::new(), Ok(()));
        for (ids, done) in parts {
            backed.extend(ids);
            populated = populated.and(done);
        }
        self.put_chunks(backed.into_iter().rev());
        result.and(populated)
    }

    /// Backs reserved chunks up to the first for which the medium has no bytes. Returns the backed ones.
    fn back_chunks(&self, reserved: &[(u32, bool)]) -> (Vec<u32>, Result<()>) {
        let mut backed = Vec::new();
        for (at, &chunk) in reserved.iter().enumerate() {
            if let Err(error) = self.back_chunk(chunk) {
                let rest = reserved[at + 1..].iter().map(|&(id, _)| id);
                self.with_chunks(|chunks| chunks.bare.extend(rest));
                return (backed, Err(error));
            }
            backed.push(chunk.0);
        }
        (backed, Ok(()))
    }

    /// Returns how many chunks can still be handed out, as far as is known. After the medium ran out of space,
    /// only backed chunks count until it has space again. Takes no lock while there is space, because it is
    /// called often.
    #[inline]
    pub fn chunks_available(&self) -> u64 {
        let available = self.chunks_available.load(Relaxed);
        if available & (REFUSED | SET_ASIDE) == 0 { available } else { self.chunks_for_thread(available) }
    }

    /// Returns how many chunks are backed, while the medium has no space. Asks the medium again periodically.
    #[cold]
    pub(super) fn chunks_backed(&self) -> u64 {
        let again = self.with_chunks(|chunks| {
            chunks.asked += 1;
            chunks.asked.is_multiple_of(ASKED_AGAIN)
        });
        if again {
            self.retry_growth();
        }
        self.chunks_available.load(Relaxed) & !(REFUSED | SET_ASIDE)
    }

    /// Asks the medium again if it had no space, and returns whether it has space now. Costs a few system calls.
    pub fn retry_growth(&self) -> bool {
        if self.chunks_available.load(Relaxed) & REFUSED == 0 {
            return false;
        }
        let Ok(id) = self.with_chunks(|chunks| self.reserve_bare(chunks)) else { return false };
        let backed = self.back_chunk((id, false)).is_ok();
        if backed {
            self.put_chunks([id]);
        }
        backed
    }

    /// Returns the error of an operation that finds no space without requesting a chunk.
    pub fn no_room(&self) -> Error {
        if self.chunks_available.load(Relaxed) & REFUSED == 0 {
            Error::PoolFull { max_bytes: self.reachable_bytes() }
        } else {
            Error::MediumFull { bytes: self.region.len() + self.geometry.chunk_bytes }
        }
    }

    /// Limits the bytes of chunks to which the file grows in this process, rounded up to whole chunks. It takes effect
    /// immediately, and may be above the maximum of the pool, or below what the file has.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes.div_ceil(self.geometry.chunk_bytes), Relaxed);
        self.with_chunks(|_| ());
    }

    /// Returns the bytes to which the pool can grow in this process: its maximum, or less where address space was
    /// insufficient or a limit is set.
    fn reachable_bytes(&self) -> u64 {
        let limit = self.limit.load(Relaxed).saturating_mul(self.geometry.chunk_bytes);
        let reachable = self.geometry.max_bytes().min(self.region.reserved());
        reachable.min(limit.saturating_add(self.geometry.header_bytes()))
    }

    /// Returns how many chunks fit these bytes.
    fn chunks_reachable(&self) -> u64 {
        (self.reachable_bytes() - self.geometry.header_bytes()) / self.geometry.chunk_bytes
    }

    /// Returns the maximum number of chunks of the pool.
    pub fn chunks_max(&self) -> u64 {
        self.geometry.chunks_max
    }

    /// Returns counts of chunks: (free, in the file now, possible in the file).
    pub fn chunk_counts(&self) -> (u64, u64, u64) {
        let chunks = self.lock_chunks();
        let free = chunks.free.len() + chunks.bare.len() + chunks.spare.len();
        (free as u64, chunks.begun.into(), self.geometry.chunks_max)
    }

    /// Returns how many chunks the file holds now. Takes no lock: every read of a record that is kept for its owner asks.
    pub(crate) fn chunks_begun(&self) -> u64 {
        self.geometry.chunks_within(self.region.len())
    }

    /// Returns how many chunks lie within the file.
    pub(super) fn chunks_present(&self) -> u32 {
        self.geometry.chunks_within(self.region.len()) as u32
    }

    /// Validates every descriptor after open and finds the free chunks.
    pub(super) fn recover_chunks(&self) -> Result<()> {
        let present = self.chunks_present();
        let mut found = FreeChunks { begun: present, ..FreeChunks::default() };
        self.recover_pages(present)?;
        for id in 0..present {
            match Descriptor::decode(self.descriptor(id).load(self.medium())) {
                Some(Descriptor::Fresh) if self.looks_used(id) => {
                    return Err(broken(id, "marked as never used, but the chunk begins with data"));
                }
                Some(Descriptor::Fresh) => found.bare.push(id),
                Some(Descriptor::Free) => found.free.push(id),
                Some(Descriptor::Owned { owner: COMMITS_OWNER, slot_bytes, .. })
                    if self.has_commits() && self.is_of_commits(slot_bytes) => {}
                Some(Descriptor::Owned { .. }) if self.is_page(id) => {}
                Some(Descriptor::Owned { owner, slot_bytes, .. }) => {
                    let whole = u64::from(slot_bytes) <= self.geometry.chunk_bytes;
                    if !self.has_entry(TreeId(owner)) || !whole {
                        let what = format!("owner {owner} or slots of {slot_bytes} bytes cannot be");
                        return Err(broken(id, what));
                    }
                }
                None => return Err(self.unknown_descriptor(id)),
            }
        }
        self.descriptors_from(present, |id, word| match Descriptor::decode(word) {
            None => Err(self.unknown_descriptor(id)),
            // A chunk without an owner holds no data.
            Some(Descriptor::Fresh | Descriptor::Free) => Ok(()),
            Some(_) => Err(broken(id, "the file ends before this chunk: truncated")),
        })?;
        found.free.reverse();
        found.bare.reverse();
        self.with_chunks(|chunks| *chunks = found);
        Ok(())
    }

    fn unknown_descriptor(&self, id: u32) -> Error {
        broken(id, format!("unknown descriptor {:#x}", self.descriptor(id).load(self.medium())))
    }

    /// Returns whether a chunk that is marked as never written begins with nonzero data. Holes are not read.
    pub(super) fn looks_used(&self, id: u32) -> bool {
        let start = self.chunk_offset(id);
        let begins =
            |file| data(file, start, start + PAGE_BYTES).next().is_some_and(|data| data.start == start);
        let may_begin = self.region.as_file().is_some() && self.region.sparse_file().is_none_or(begins);
        may_begin
            && self.words(start, PAGE_BYTES as usize / 8).iter().any(|word| word.load(self.medium()) != 0)
    }

    /// Returns whether a tree owns a chunk.
    pub(super) fn is_owned(&self, id: u32) -> bool {
        matches!(Descriptor::decode(self.descriptor(id).load(self.medium())), Some(Descriptor::Owned { .. }))
    }

    /// Returns the chunks whose owner does not exist.
    pub(super) fn stray_chunks(&self) -> Vec<u32> {
        // A tree that is being created has chunks before it is live.
        let has_tree = |id| self.has_entry(id) && self.entry(id).state.load(self.medium()) != ENTRY_FREE;
        let begun = self.lock_chunks().begun;
        let stray = |id: &u32| match Descriptor::decode(self.descriptor(*id).load(self.medium())) {
            Some(Descriptor::Owned { owner: COMMITS_OWNER, .. }) => !self.has_commits(),
            Some(Descriptor::Owned { owner, .. }) => !self.is_page(*id) && !has_tree(TreeId(owner)),
            _ => false,
        };
        (0..begun).filter(stray).collect()
    }
}

pub(super) fn broken(id: u32, what: impl Into<String>) -> Error {
    Error::corrupted(what, format!("descriptor of chunk {id}"))
}
