//! What the chunks of a pool are for.

use bristlecone_pm::{Geometry, LINE_BYTES, Part, part_of_descriptor};

/// What each chunk is for, as the pool's descriptors say.
pub(super) struct Parts {
    header_bytes: usize,
    descriptors: usize,
    chunk_bits: u32,
    chunks: Vec<Part>,
}

impl Parts {
    pub(super) fn new(geometry: Geometry) -> Self {
        Self {
            header_bytes: geometry.header_bytes() as usize,
            descriptors: geometry.descriptors_offset() as usize,
            chunk_bits: geometry.chunk_bytes.trailing_zeros(),
            chunks: vec![Part::Other; geometry.chunks_max as usize],
        }
    }

    /// Looks at a store: it may be that of a descriptor.
    #[inline]
    pub(super) fn learn(&mut self, offset: usize, value: u64) {
        if offset < self.header_bytes {
            let word = offset.checked_sub(self.descriptors).map(|at| at / 8);
            if let Some(part) = word.and_then(|word| self.chunks.get_mut(word)) {
                *part = part_of_descriptor(value);
            }
        }
    }

    #[inline]
    pub(super) fn of(&self, line: usize) -> Part {
        let chunk = (line * LINE_BYTES).checked_sub(self.header_bytes).map(|at| at >> self.chunk_bits);
        chunk.and_then(|chunk| self.chunks.get(chunk)).copied().unwrap_or(Part::Other)
    }
}
