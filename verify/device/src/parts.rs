//! The purpose of a pool's chunks.

use bristlecone_pm::{Geometry, LINE_BYTES, Part, PartOf, kind_of_descriptor};

/// Information about a pool that a device needs to count writes by purpose.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The sizes of the pool.
    pub geometry: Geometry,
    /// The purpose of the slots of its chunks.
    pub part_of: PartOf,
}

/// The purpose of each chunk, according to the pool's descriptors.
pub(super) struct Parts {
    header_bytes: usize,
    descriptors: usize,
    chunk_bits: u32,
    chunks: Vec<Part>,
    part_of: PartOf,
}

impl Parts {
    pub(super) fn new(Layout { geometry, part_of }: Layout) -> Self {
        Self {
            header_bytes: geometry.header_bytes() as usize,
            descriptors: geometry.descriptors_offset() as usize,
            chunk_bits: geometry.chunk_bytes.trailing_zeros(),
            chunks: vec![Part::Other; geometry.chunks_max as usize],
            part_of,
        }
    }

    /// Inspects a store, which may be that of a descriptor.
    #[inline]
    pub(super) fn learn(&mut self, offset: usize, value: u64) {
        if offset < self.header_bytes {
            let word = offset.checked_sub(self.descriptors).map(|at| at / 8);
            if let Some(part) = word.and_then(|word| self.chunks.get_mut(word)) {
                *part = kind_of_descriptor(value).and_then(self.part_of).unwrap_or(Part::Other);
            }
        }
    }

    #[inline]
    pub(super) fn of(&self, line: usize) -> Part {
        let chunk = (line * LINE_BYTES).checked_sub(self.header_bytes).map(|at| at >> self.chunk_bits);
        chunk.and_then(|chunk| self.chunks.get(chunk)).copied().unwrap_or(Part::Other)
    }
}
