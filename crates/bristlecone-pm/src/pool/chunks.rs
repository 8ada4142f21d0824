//! Chunks: whom each belongs to, in one word apiece.

use std::sync::atomic::Ordering::Relaxed;

use super::PoolFile;
use super::directory::TreeId;
use super::layout::{Descriptor, SlotKind};
use crate::{Durable, Error, Flushed, Medium, Persist, Result, Word};

/// A chunk that belongs to a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its number.
    pub id: u32,
    /// What its slots hold.
    pub kind: SlotKind,
    /// Bytes of a slot.
    pub slot_bytes: u32,
    /// Where it begins.
    pub offset: u64,
}

/// Which chunks can be handed out.
#[derive(Debug, Default)]
pub(super) struct FreeChunks {
    /// Chunks given back, most recently last.
    free: Vec<u32>,
    /// Chunks below this number were handed out at least once since the pool was opened or
    /// before.
    begun: u32,
}

impl<M: Medium> PoolFile<M> {
    pub(super) fn descriptor(&self, id: u32) -> &Word {
        self.at(self.geometry.descriptors_offset() + u64::from(id) * 8)
    }

    pub(crate) fn chunk_offset(&self, id: u32) -> u64 {
        self.geometry.header_bytes() + u64::from(id) * self.geometry.chunk_bytes
    }

    /// Bytes of every chunk.
    pub fn chunk_bytes(&self) -> u64 {
        self.geometry.chunk_bytes
    }

    /// Every chunk of a tree.
    pub fn chunks_of(&self, tree: TreeId) -> Vec<Chunk> {
        let begun = self.lock_chunks().begun;
        let owned = |id| match Descriptor::decode(self.descriptor(id).load(self.medium()))? {
            Descriptor::Owned { owner, kind, slot_bytes } if owner == tree.0 => {
                Some(Chunk { id, kind, slot_bytes, offset: self.chunk_offset(id) })
            }
            _ => None,
        };
        (0..begun).filter_map(owned).collect()
    }

    /// Gives a chunk to a tree. The first words of so many slots as `tags` says, or of all, are
    /// durably zero before the chunk has its owner.
    pub(crate) fn chunk_alloc(
        &self,
        owner: TreeId,
        kind: SlotKind,
        slot_bytes: u32,
        tags: u64,
    ) -> Result<Chunk> {
        let id = self.take_chunk()?;
        let offset = self.chunk_offset(id);
        if let Err(error) = self.region.populate(offset, self.geometry.chunk_bytes) {
            self.put_chunks(std::iter::once(id));
            return Err(error);
        }
        let (descriptor, medium) = (self.descriptor(id), self.medium());
        let mut flushed = Flushed::none();
        if Descriptor::decode(descriptor.load(medium)) != Some(Descriptor::Fresh) {
            for slot in 0..tags.min(self.geometry.chunk_bytes / u64::from(slot_bytes)) {
                let tag = self.at::<Word>(offset + slot * u64::from(slot_bytes));
                tag.store(medium, 0);
                flushed = flushed.and(medium.flush(tag, "pool chunk_alloc.1"));
            }
        }
        let durable = medium.fence(flushed, "pool chunk_alloc.1");
        let word = Descriptor::Owned { owner: owner.0, kind, slot_bytes }.encode();
        descriptor.publish(medium, word, &durable, "pool chunk_alloc.2");
        let Durable { .. } = medium.persist(descriptor, "pool chunk_alloc.2");
        Ok(Chunk { id, kind, slot_bytes, offset })
    }

    /// Reserves the number of a chunk that exists in the file.
    fn take_chunk(&self) -> Result<u32> {
        let mut chunks = self.lock_chunks();
        if let Some(id) = chunks.free.pop() {
            self.chunks_taken.fetch_add(1, Relaxed);
            return Ok(id);
        }
        if u64::from(chunks.begun) == self.geometry.chunks_max {
            return Err(Error::PoolFull { max_bytes: self.geometry.max_bytes() });
        }
        let id = chunks.begun;
        self.region.grow(self.chunk_offset(id) + self.geometry.chunk_bytes)?;
        chunks.begun += 1;
        self.chunks_taken.fetch_add(1, Relaxed);
        Ok(id)
    }

    /// Takes back what `take_chunk` gave.
    fn put_chunks(&self, ids: impl ExactSizeIterator<Item = u32>) {
        self.chunks_taken.fetch_sub(ids.len() as u64, Relaxed);
        self.lock_chunks().free.extend(ids);
    }

    /// Takes a chunk from its owner, durably, before anybody else can get it.
    pub(crate) fn chunk_free(&self, id: u32) {
        let (descriptor, medium) = (self.descriptor(id), self.medium());
        descriptor.store(medium, Descriptor::Free.encode());
        let Durable { .. } = medium.persist(descriptor, "pool chunk_free");
        self.put_chunks(std::iter::once(id));
    }

    /// Makes room for `bytes` of chunks ahead of time, so that later growth costs no page faults.
    pub fn prefault(&self, bytes: u64) -> Result<()> {
        self.writable()?;
        let mut taken = Vec::new();
        let mut result = Ok(());
        for _ in 0..bytes.div_ceil(self.geometry.chunk_bytes) {
            match self.take_chunk() {
                Ok(id) => taken.push(id),
                Err(Error::PoolFull { .. }) => break,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let populate = |ids: &[u32]| {
            ids.iter()
                .try_for_each(|&id| self.region.populate(self.chunk_offset(id), self.geometry.chunk_bytes))
        };
        let share = taken.len().div_ceil(threads).max(1);
        let populated = std::thread::scope(|scope| {
            let workers: Vec<_> = taken.chunks(share).map(|ids| scope.spawn(move || populate(ids))).collect();
            workers.into_iter().try_for_each(|worker| worker.join().unwrap_or(Ok(())))
        });
        self.put_chunks(taken.into_iter().rev());
        result.and(populated)
    }

    /// Chunks that could still be handed out, if the file can grow. Asked often: takes no lock.
    pub fn chunks_available(&self) -> u64 {
        self.geometry.chunks_max.saturating_sub(self.chunks_taken.load(Relaxed))
    }

    /// Chunks that the pool can have.
    pub fn chunks_max(&self) -> u64 {
        self.geometry.chunks_max
    }

    /// Chunks (free, that the file holds by now, that it may come to hold).
    pub fn chunk_counts(&self) -> (u64, u64, u64) {
        let chunks = self.lock_chunks();
        (chunks.free.len() as u64, chunks.begun.into(), self.geometry.chunks_max)
    }

    /// Chunks that lie within the file.
    pub(super) fn chunks_present(&self) -> u32 {
        let bytes = self.region.len().saturating_sub(self.geometry.header_bytes());
        (bytes / self.geometry.chunk_bytes).min(self.geometry.chunks_max) as u32
    }

    /// Validates every descriptor after opening and finds what is free.
    pub(super) fn recover_chunks(&self) -> Result<()> {
        let present = self.chunks_present();
        let mut free = Vec::new();
        for id in 0..self.geometry.chunks_max as u32 {
            let word = self.descriptor(id).load(self.medium());
            let broken = |what: String| Err(Error::corrupted(what, format!("descriptor of chunk {id}")));
            match Descriptor::decode(word) {
                None => return broken(format!("unknown descriptor {word:#x}")),
                Some(Descriptor::Fresh) if id >= present => {}
                Some(_) if id >= present => {
                    return broken("the file ends before this chunk: truncated".into());
                }
                Some(Descriptor::Fresh | Descriptor::Free) => free.push(id),
                Some(Descriptor::Owned { owner, slot_bytes, .. }) => {
                    let fits = u64::from(slot_bytes) <= self.geometry.chunk_bytes;
                    if u64::from(owner) >= self.geometry.trees_max || !fits {
                        return broken(format!("owner {owner} or slots of {slot_bytes} bytes cannot be"));
                    }
                }
            }
        }
        free.reverse();
        self.chunks_taken.store(u64::from(present) - free.len() as u64, Relaxed);
        *self.lock_chunks() = FreeChunks { free, begun: present };
        Ok(())
    }

    /// Chunks whose owner is no tree.
    pub(super) fn stray_chunks(&self) -> Vec<u32> {
        let live: Vec<u32> = self.live_trees().map(|id| id.0).collect();
        let begun = self.lock_chunks().begun;
        let stray = |id: &u32| {
            let word = self.descriptor(*id).load(self.medium());
            matches!(Descriptor::decode(word), Some(Descriptor::Owned { owner, .. }) if !live.contains(&owner))
        };
        (0..begun).filter(stray).collect()
    }
}
