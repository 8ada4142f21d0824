//! Writing records.

use std::sync::OnceLock;

use super::{Records, VALUE_BYTES_MAX, checksum};
use crate::{Flushed, Heap, Medium, Persist, Result, Step, write_bytes};

impl<M: Medium> Records<M> {
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

    /// Writes an owned record and its owner; otherwise like [`write`](Self::write).
    ///
    /// # Errors
    ///
    /// As [`Heap::alloc`].
    pub fn write_owned(&self, bytes: &[u8], owner: u64, step: Step) -> Result<(u64, Flushed)> {
        self.write_record(bytes, Some(owner), step, Heap::alloc)
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

    /// Prefetches for writing the slot that [`write_near`](Self::write_near) would take for a record of `len` bytes, if it
    /// is one of the leaf's.
    #[inline]
    pub fn prefetch_near(&self, len: usize, leaf: u64) {
        if let Some(heap) = self.heaps.get(self.class_of(len)).and_then(OnceLock::get) {
            heap.prefetch_near(leaf);
        }
    }

    /// Stores a new owner of a live record; durable after the fence.
    pub fn set_owner(&self, offset: u64, owner: u64, step: Step) -> Flushed {
        let cell = self.owner_cell(offset, self.len_at(offset));
        cell.store(self.pool.medium(), owner);
        self.pool.medium().flush(cell, step)
    }
}
