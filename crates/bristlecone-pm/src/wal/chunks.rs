//! The chunks of a log, and their reuse.

use super::layout::Generation;
use super::{APPENDERS, LOG_ENTRY_BYTES, Log, LogChunk, Standing};
use crate::sync::Ordering::Relaxed;
use crate::sync::wait::lock;
use crate::{Durable, Flushed, Medium, Persist, SlotKind, Step, Word};

impl<M: Medium> Log<M> {
    /// Returns the number of rotations so far.
    pub fn epoch(&self) -> u64 {
        lock(&self.chunks).epoch
    }

    /// Continues after `epoch` rotations, with chunks that were filled since the last one or before.
    pub fn resume(&self, epoch: u64, mut filled: Vec<LogChunk>) {
        lock(&self.chunks).epoch = epoch;
        self.appenders.iter().for_each(|appender| appender.lock().epoch = epoch);
        filled.iter_mut().for_each(|chunk| chunk.epoch = epoch);
        self.seal(filled);
    }

    /// Keeps chunks with live entries until the next rotation.
    pub fn seal(&self, chunks: Vec<LogChunk>) {
        lock(&self.chunks).sealed.extend(chunks);
    }

    /// Takes the sealed chunks whose numbers `wanted` accepts.
    pub fn take_sealed(&self, mut wanted: impl FnMut(u32) -> bool) -> Vec<LogChunk> {
        lock(&self.chunks).sealed.extract_if(.., |chunk| wanted(chunk.id)).collect()
    }

    /// Takes up to `count` sealed chunks, in the order in which they became full.
    pub fn take_oldest(&self, count: usize) -> Vec<LogChunk> {
        let sealed = &mut lock(&self.chunks).sealed;
        sealed.drain(..count.min(sealed.len())).collect()
    }

    /// Returns the number of threads with a chunk of their own.
    pub fn appenders(&self) -> usize {
        self.active.load(Relaxed)
    }

    /// Counts the chunks sealed since the last rotation.
    pub(super) fn chunks_sealed(&self) -> usize {
        lock(&self.chunks).sealed.len()
    }

    /// Returns whether a rotation would find chunks with entries other than copies.
    pub fn has_garbage(&self) -> bool {
        self.chunks_sealed() > 0 || self.appenders[..APPENDERS].iter().any(|each| each.lock().chunk.is_some())
    }

    /// Counts the chunks that hold entries, or are about to.
    pub fn chunks_in_use(&self) -> usize {
        self.in_use.load(Relaxed)
    }

    /// Counts the chunks of the pool that the log owns.
    pub fn chunks_owned(&self) -> usize {
        let chunks = lock(&self.chunks);
        self.chunks_in_use() + chunks.free.len() + usize::from(chunks.reserve.is_some())
    }

    /// Counts the empty chunks near the calling thread, without the reserve.
    pub fn chunks_free(&self) -> usize {
        let here = self.nodes.of_thread();
        lock(&self.chunks).free.iter().filter(|chunk| chunk.node == here).count()
    }

    /// Returns empty chunks to the pool, except the reserve, for other uses; returns how many.
    pub fn release_free(&self) -> usize {
        let free = std::mem::take(&mut lock(&self.chunks).free);
        free.iter().for_each(|chunk| self.pool.chunk_free(chunk.id));
        free.len()
    }

    /// Takes an empty chunk: a used one near the calling thread, or a new one, which the system places near it, or
    /// any other. Returns `None` if the pool is full.
    pub(super) fn take_chunk(&self) -> Option<LogChunk> {
        let here = self.nodes.of_thread();
        {
            let free = &mut lock(&self.chunks).free;
            if let Some(near) = free.iter().rposition(|chunk| chunk.node == here) {
                return Some(free.remove(near));
            }
        }
        let fresh = self.pool.chunk_alloc(self.owner, SlotKind::LOG, LOG_ENTRY_BYTES as u32, 1);
        let Ok(chunk) = fresh else { return lock(&self.chunks).free.pop() };
        let (generation, standing) = (Generation::default(), Standing::Checked);
        let mut fresh =
            LogChunk { id: chunk.id, offset: chunk.offset, generation, standing, node: here, epoch: 0 };
        // No separate flush: the first entry shares its line, which keeps their order, and the second one
        // straddles two lines, and fences.
        let generation = self.bump_generation(&mut fresh, "log chunk");
        fresh.node = self.nodes.of_memory(generation);
        Some(fresh)
    }

    /// Rotates to new chunks, which begins a new epoch. Returns its number, and the old chunks. Every earlier
    /// entry is in one of those; later entries are in other chunks, and belong to the new epoch.
    pub fn rotate(&self) -> (u64, Vec<LogChunk>) {
        let epoch = {
            let mut chunks = lock(&self.chunks);
            chunks.epoch += 1;
            chunks.epoch
        };
        let mut unfilled = Vec::new();
        for appender in &self.appenders {
            let mut appender = appender.lock();
            appender.epoch = epoch;
            unfilled.extend(appender.chunk.take());
        }
        // Appenders that had not rotated yet may have filled some meanwhile; others may already be full of later
        // entries.
        let mut old: Vec<_> = lock(&self.chunks).sealed.extract_if(.., |chunk| chunk.epoch < epoch).collect();
        old.append(&mut unfilled);
        (epoch, old)
    }

    /// Empties chunks without live entries, durably, for reuse. The log keeps a quarter of the number it uses, and
    /// returns the rest to the pool.
    pub fn recycle(&self, old: Vec<LogChunk>) {
        let medium = self.pool.medium();
        let count = old.len();
        let mut flushed = Flushed::none();
        let mut emptied = Vec::with_capacity(count);
        for mut chunk in old {
            let generation = self.bump_generation(&mut chunk, "log recycle.1");
            flushed = flushed.and(medium.flush(generation, "log recycle.1"));
            emptied.push(chunk);
        }
        let Durable { .. } = medium.fence(flushed, "log recycle.1");
        self.in_use.fetch_sub(count, Relaxed);
        let keep = self.chunks_in_use() / 4 + 1;
        let surplus = {
            let mut chunks = lock(&self.chunks);
            if chunks.reserve.is_none() {
                chunks.reserve = emptied.pop();
            }
            chunks.free.append(&mut emptied);
            let keep = keep.min(chunks.free.len());
            chunks.free.split_off(keep)
        };
        surplus.iter().for_each(|chunk| self.pool.chunk_free(chunk.id));
    }

    /// Advances a chunk to its next generation, which no entry has; returns the generation's word.
    fn bump_generation(&self, chunk: &mut LogChunk, step: Step) -> &Word {
        let medium = self.pool.medium();
        chunk.generation = chunk.generation.next();
        chunk.standing = Standing::Checked;
        self.cell(chunk, 1).stamp.store(medium, chunk.generation.end_mark());
        let header = self.header(chunk);
        let ordered = medium.ordered_within_line();
        header.generation.publish(medium, chunk.generation.pattern(), &ordered, step);
        // The copy is needed only after damage.
        let _ordered = medium.ordered_within_line();
        header.copy.store_derived(medium, chunk.generation.pattern());
        &header.generation
    }
}
