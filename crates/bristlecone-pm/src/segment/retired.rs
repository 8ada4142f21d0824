//! Retired memory that followers may still read, and the location of cells.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::ProtFlags;

use super::mapping::Mapping;
use super::{Mode, Segment};
use crate::{PAGE_BYTES, failpoint};

/// Offset of cells in extent 0.
const CELLS_AT: u64 = 1 << 35;
/// Bytes for all cells.
const CELLS_BYTES: usize = 64 << 20;
/// Alignment of cells, so that no two share a line, or a pair of lines that is fetched together.
const CELL_ALIGN: usize = 128;

/// Retired memory of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retired {
    Extent(u32),
    /// A cell, and its size.
    Post(u64, usize),
}

/// The cells of a segment.
#[derive(Debug, Default)]
pub(super) struct SharedCells {
    /// `None`: there are none. Each cell keeps the segment alive, and with it this mapping.
    mapping: Option<Mapping>,
    begun: usize,
    /// Bytes that the file has allocated.
    backed: usize,
    /// Free zeroed cells, by size.
    free: BTreeMap<usize, Vec<u64>>,
}

impl SharedCells {
    /// Maps the cells of a segment, all zero; none if nothing is to be shared.
    pub fn begin(file: &File, are_wanted: bool) -> Self {
        let zero = || {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(file, flags, CELLS_AT, CELLS_BYTES as u64)
        };
        let is_zero = are_wanted && failpoint::call("fallocate", zero).is_ok();
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        Self { mapping: if is_zero { map(file, prot) } else { None }, ..Self::default() }
    }

    /// Maps the cells that a killed writer left, of which `begun` bytes are begun. All of them stay. Returns `None` if
    /// kills have left too many.
    pub fn again(file: &File, begun: u64) -> Option<Self> {
        let begun = usize::try_from(begun).ok().filter(|&begun| begun <= CELLS_BYTES / 2)?;
        let mapping = map(file, ProtFlags::READ | ProtFlags::WRITE)?;
        let backed = begun.next_multiple_of(PAGE_BYTES);
        (backed == 0 || mapping.back(0, backed).is_some()).then_some(())?;
        Some(Self { mapping: Some(mapping), begun, backed, ..Self::default() })
    }

    /// Maps the cells of a segment for a follower.
    pub fn follow(file: &File) -> Option<Self> {
        map(file, ProtFlags::READ).map(|mapping| Self { mapping: Some(mapping), ..Self::default() })
    }

    fn take(&mut self, bytes: usize) -> Option<u64> {
        if let Some(cell) = self.free.get_mut(&bytes).and_then(Vec::pop) {
            return Some(cell);
        }
        let end = self.begun + bytes;
        let mapping = self.mapping.as_ref().filter(|_| end <= CELLS_BYTES)?;
        if end > self.backed {
            let pages = end.next_multiple_of(PAGE_BYTES);
            mapping.back(self.backed, pages - self.backed)?;
            self.backed = pages;
        }
        let cell = self.begun as u64;
        self.begun = end;
        Some(cell)
    }
}

fn map(file: &File, prot: ProtFlags) -> Option<Mapping> {
    Mapping::of(file, CELLS_AT, CELLS_BYTES, prot)
}

fn bytes_of(layout: Layout) -> usize {
    assert!(layout.align() <= CELL_ALIGN);
    layout.size().next_multiple_of(CELL_ALIGN)
}

impl Segment {
    /// Allocates a zeroed value that followers can see; returns its offset.
    pub(super) fn take_cell(&self, layout: Layout) -> Option<u64> {
        (self.mode == Mode::Write && self.is_whole() && self.opener.is_here()).then_some(())?;
        self.free_retired();
        let cells = &mut self.state().cells;
        let cell = cells.take(bytes_of(layout));
        self.live.iter().for_each(|live| live.cells().store(cells.begun as u64, Relaxed));
        cell
    }

    /// Makes cells that a follower cannot read appear as zeros: see [`Mapping::watch`].
    pub(super) fn watch_cells(&mut self) {
        let cells = &mut self.state.get_mut().unwrap_or_else(PoisonError::into_inner).cells;
        cells.mapping.iter_mut().for_each(|mapping| mapping.watch(self.place.path(), &self.over));
    }

    /// Returns the address of a cell.
    pub(super) fn cell_at(&self, offset: u64, layout: Layout) -> Option<*const u8> {
        let base = self.state().cells.mapping.as_ref()?.base();
        let end = offset.checked_add(bytes_of(layout) as u64)?;
        let fits = offset.is_multiple_of(CELL_ALIGN as u64) && end <= CELLS_BYTES as u64;
        fits.then(|| base.wrapping_add(offset as usize).cast_const())
    }

    pub(super) fn free_cell(&self, offset: u64, layout: Layout) {
        let retired = Retired::Post(offset, bytes_of(layout));
        if self.mode == Mode::Write && self.opener.is_here() && !self.retire(retired) {
            self.clear(retired);
        }
    }

    /// Retires memory that followers may still read. Returns `false` if there are no followers.
    pub(super) fn retire(&self, retired: Retired) -> bool {
        let followed = self.live.as_ref().filter(|live| live.had_followers());
        followed.inspect(|live| self.state().retired.push((live.begin_epoch(), retired))).is_some()
    }

    /// Clears retired memory that no follower reads any more. A stopped follower keeps it indefinitely: with changed
    /// contents its lookup might loop.
    pub(super) fn free_retired(&self) {
        let Some(live) = &self.live else { return };
        if self.state().retired.is_empty() {
            return;
        }
        let passed = live.passed_by_all(&self.file);
        let clear: Vec<Retired> = self
            .state()
            .retired
            .extract_if(.., |(epoch, _)| *epoch <= passed)
            .map(|(_, retired)| retired)
            .collect();
        clear.into_iter().for_each(|retired| self.clear(retired));
    }

    fn clear(&self, retired: Retired) {
        match retired {
            Retired::Extent(extent) => self.clear_extent(extent),
            Retired::Post(offset, bytes) => {
                let cells = &mut self.state().cells;
                let Some(mapping) = &cells.mapping else { return };
                // SAFETY: a freed cell that no thread reads any more.
                unsafe { mapping.base().wrapping_add(offset as usize).write_bytes(0, bytes) };
                cells.free.entry(bytes).or_default().push(offset);
            }
        }
    }
}
