//! Finds the bytes of a pool's file that have no memory or blocks, and allocates those that are
//! touched.
//!
//! A hole reads as zeros through the file. Through a mapping of shared memory, however, even a read
//! allocates a page, and fails with a signal if there is none. So:
//!
//! 1. The header up to the descriptors of the chunks in the file is backed at creation and as the
//!    file grows. It is backed at open for files that were copied or created by earlier versions.
//! 2. Descriptors behind that are read only where the file has data.
//! 3. A chunk is backed before it is used; an owned chunk at open.
//! 4. When a pool is open for reading, holes are replaced by zeros of this process and never filled.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{SeekFrom, seek};

use super::{Geometry, PoolFile};
use crate::{Medium, Region, Result};

pub(super) const PAGE_BYTES: u64 = crate::PAGE_BYTES as u64;

/// Returns the data ranges of a file between two offsets, in order. On a file system without holes,
/// everything is data.
pub(super) fn data(file: &File, from: u64, to: u64) -> impl Iterator<Item = Range<u64>> {
    let mut at = from;
    std::iter::from_fn(move || {
        if at >= to {
            return None;
        }
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start.max(at),
            // There is no data up to the end of the file.
            Err(rustix::io::Errno::NXIO) => to,
            Err(_) => at,
        };
        if start >= to {
            at = to;
            return None;
        }
        let end = seek(file, SeekFrom::Hole(start)).map_or(to, |end| end.clamp(start + 1, to));
        at = end;
        Some(start..end)
    })
}

/// Returns the same for a file that may be a device, all of which is data.
pub(super) fn data_or_all(
    file: &File,
    is_device: bool,
    from: u64,
    to: u64,
) -> impl Iterator<Item = Range<u64>> {
    let all = is_device.then_some(from..to);
    all.into_iter().chain((!is_device).then(|| data(file, from, to)).into_iter().flatten())
}

/// Returns the holes of a file between two offsets, in whole pages.
pub(super) fn holes(file: &File, from: u64, to: u64) -> impl Iterator<Item = Range<u64>> {
    let mut before = from;
    let ends = data(file, from, to).chain(std::iter::once(to..to));
    ends.filter_map(move |data| {
        let hole = before.next_multiple_of(PAGE_BYTES)..data.start / PAGE_BYTES * PAGE_BYTES;
        before = data.end;
        (hole.start < hole.end).then_some(hole)
    })
}

/// Returns the end of the pages that store the descriptors of the first `chunks` chunks.
fn descriptors_page_end(geometry: &Geometry, chunks: u64) -> u64 {
    (geometry.descriptors_offset() + chunks * 8).next_multiple_of(PAGE_BYTES)
}

/// Backs the header of a file that is mapped for writing, for its existing chunks.
pub(super) fn back_header(region: &Region, geometry: &Geometry) -> Result<()> {
    let Some(file) = region.sparse_file() else { return Ok(()) };
    let chunks = geometry.chunks_within(region.len());
    let end = descriptors_page_end(geometry, chunks).min(region.len());
    for hole in holes(file, 0, end) {
        region.populate(hole.start, hole.end - hole.start)?;
    }
    Ok(())
}

/// Replaces the holes of a file that is mapped for reading by zeros of this process.
pub(super) fn blank_holes(region: &Region, geometry: &Geometry) -> Result<()> {
    let Some(file) = region.as_file().filter(|_| region.in_memory()) else { return Ok(()) };
    let len = region.len().next_multiple_of(PAGE_BYTES);
    let end = if has_holes(file, geometry, len) { len } else { geometry.header_bytes().min(len) };
    for hole in holes(file, 0, end) {
        region.blank(hole.start, hole.end - hole.start)?;
    }
    Ok(())
}

/// Returns whether there may be holes behind the header. For a file in memory its allocated size
/// decides, without reading each page.
fn has_holes(file: &File, geometry: &Geometry, len: u64) -> bool {
    let header: u64 = data(file, 0, geometry.header_bytes().min(len)).map(|data| data.end - data.start).sum();
    let chunks = len.saturating_sub(geometry.header_bytes());
    file.metadata().map_or(true, |file| file.blocks() * 512 < header + chunks)
}

impl<M: Medium> PoolFile<M> {
    /// Backs the descriptor of a chunk that the file is about to grow by.
    pub(super) fn back_descriptor(&self, id: u32) -> Result<()> {
        let end = descriptors_page_end(&self.geometry, u64::from(id) + 1);
        self.region.populate(end - PAGE_BYTES, PAGE_BYTES)
    }

    /// Backs the holes of chunks that trees own, which a copy of the file may have left.
    pub(super) fn back_owned_chunks(&self) -> Result<()> {
        let (header, chunk_bytes) = (self.geometry.header_bytes(), self.geometry.chunk_bytes);
        let Some(file) = self.region.as_file().filter(|_| !self.is_read_only()) else { return Ok(()) };
        let end = self.chunk_offset(self.chunks_present());
        if !(self.region.in_memory() && has_holes(file, &self.geometry, end)) {
            return Ok(());
        }
        for hole in holes(file, header, end) {
            for id in (hole.start - header) / chunk_bytes..=(hole.end - 1 - header) / chunk_bytes {
                let chunk = self.chunk_offset(id as u32);
                let within = hole.start.max(chunk)..hole.end.min(chunk + chunk_bytes);
                if self.is_owned(id as u32) {
                    self.region.populate(within.start, within.end - within.start)?;
                }
            }
        }
        Ok(())
    }

    /// Calls `each` with the descriptors of chunks from `first` on that may be nonzero.
    pub(super) fn descriptors_from(
        &self,
        first: u32,
        mut each: impl FnMut(u32, u64) -> Result<()>,
    ) -> Result<()> {
        let (base, end) = (self.geometry.descriptors_offset(), self.geometry.descriptors_end());
        let from = base + u64::from(first) * 8;
        let mut look = |part: Range<u64>| {
            let ids = (part.start - base) / 8..(part.end - base).div_ceil(8);
            ids.map(|id| id as u32).try_for_each(|id| each(id, self.descriptor(id).load(self.medium())))
        };
        match self.region.sparse_file() {
            Some(file) => data(file, from, end).try_for_each(look),
            None => look(from..end),
        }
    }
}
