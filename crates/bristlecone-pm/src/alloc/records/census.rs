//! The census of records after a kill: which of those that the killed process may have written are in use.
//!
//! A tree that is taken over from a killed process reads no leaf. Its records are opened unswept, so that their slots
//! count as taken, and new records get slots of other chunks. Later, when space is needed or the tree is closed, the
//! tree [notes](Census::note) each record that its leaves refer to, and all others become free.
//!
//! Threads may write meanwhile. A record that leaves the tree is retired, which excludes it from the census. A thread
//! retires it under the guard with which it removed it. So the epochs of all threads must end between the last note
//! and the end of the census.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::Records;
use super::classes::CLASSES;
use crate::Medium;

/// The records that a tree refers to, among those of unswept chunks.
#[derive(Debug, Default)]
pub struct Census {
    /// By offset: the bytes of a chunk's slots, and the noted ones.
    chunks: BTreeMap<u64, (u32, Vec<u64>)>,
}

impl Census {
    /// Notes that the tree refers to the record at an offset.
    pub fn note(&mut self, offset: u64) {
        if let Some((&chunk, (bytes, noted))) = self.chunks.range_mut(..=offset).next_back() {
            let slot = ((offset - chunk) / u64::from(*bytes)) as usize;
            noted.get_mut(slot / 64).into_iter().for_each(|word| *word |= 1 << (slot % 64));
        }
    }

    fn has(&self, offset: u64) -> bool {
        self.chunks.range(..=offset).next_back().is_some_and(|(chunk, (bytes, noted))| {
            let slot = ((offset - chunk) / u64::from(*bytes)) as usize;
            noted.get(slot / 64).is_some_and(|word| word >> (slot % 64) & 1 != 0)
        })
    }
}

impl<M: Medium> Records<M> {
    /// Returns whether a census may find free slots.
    pub fn needs_census(&self) -> bool {
        self.heaps.iter().filter_map(OnceLock::get).any(|heap| heap.has_unswept())
    }

    /// Begins a census; `None` if every slot is known.
    pub fn begin_census(&self) -> Option<Census> {
        let mut chunks = BTreeMap::new();
        for (heap, &bytes) in self.heaps.iter().zip(&CLASSES) {
            let unknown = heap.get().into_iter().flat_map(|heap| heap.unswept_chunks());
            chunks.extend(unknown.map(|chunk| (chunk.offset, (bytes, vec![0; chunk.slots.div_ceil(64)]))));
        }
        (!chunks.is_empty()).then_some(Census { chunks })
    }

    /// Ends a census: frees each slot of which nothing is known and that was not noted. All threads that were pinned at
    /// the last note must have unpinned since.
    pub fn end_census(&self, census: &Census) {
        self.heaps
            .iter()
            .filter_map(OnceLock::get)
            .for_each(|heap| heap.sweep_all(&|offset| census.has(offset)));
    }
}
